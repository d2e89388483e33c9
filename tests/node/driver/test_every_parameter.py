"""No parameter is forgotten: each leaf of NetworkConfig changes the plan of a NIC, or is listed with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dranet.core.attributes import BANDWIDTH, RAIL
from dranet.core.errors import InvalidInput
from dranet.core.netconfig import NetworkConfig
from dranet.core.netconfig_parse import parse, schema
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest

from .conftest import TestNode

NOT_IN_THE_PLAN = {
    "profile": "the profile provider turns it into the other parameters before anything is planned",
    "perDevice[]": "prepare turns it into the other parameters before anything is planned",
}

MAC, OTHER_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
ROUTE = {"destination": "192.0.2.0/24", "gateway": "10.1.0.254"}
RULE = {"source": "10.1.0.0/24", "table": 100}
NEIGHBOUR = {"destination": "10.1.0.9", "hardwareAddr": MAC}


def link(**said: Any) -> dict[str, Any]:
    return {"interface": said}


def child(kind: str, **said: Any) -> dict[str, Any]:
    return link(type=kind, addresses=["10.9.0.1/24"], **said)


def route(**said: Any) -> dict[str, Any]:
    return {"routes": [{**ROUTE, **said}]}


def rule(**said: Any) -> dict[str, Any]:
    return {"rules": [{**RULE, **said}]}


def rails(networks: dict[str, list[str]] | None = None, **said: Any) -> dict[str, Any]:
    return {**link(addresses=["10.1.0.1/24"]), "railRouting": said, "rails": networks or {"1": ["10.7.0.0/16"]}}


def neighbour(**said: Any) -> dict[str, Any]:
    return {"neighbors": [{**NEIGHBOUR, **said}]}


CEILING = {"bandwidthCeiling": "200M"}

# What is said without the parameter, and with it: two configurations that differ in nothing else.
SAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "interface.name": (link(), link(name="net1")),
    "interface.addresses[]": (link(), link(addresses=["10.9.0.1/24"])),
    "interface.type": (link(addresses=["10.9.0.1/24"]), child("IPVLAN")),
    "interface.addressing": (link(), link(addressing="DHCP")),
    "interface.ipvlan.mode": (child("IPVLAN"), child("IPVLAN", ipvlan={"mode": "L3"})),
    "interface.ipvlan.flag": (child("IPVLAN"), child("IPVLAN", ipvlan={"flag": "Private"})),
    "interface.macvlan.mode": (child("Macvlan"), child("Macvlan", macvlan={"mode": "Private"})),
    "interface.acceptRA": (link(), link(acceptRA=2)),
    "interface.dhcp": (link(), link(dhcp=True)),
    "interface.mtu": (link(), link(mtu=1400)),
    "interface.hardwareAddr": (link(), link(hardwareAddr=MAC)),
    "interface.gsoMaxSize": (link(), link(gsoMaxSize=60000)),
    "interface.groMaxSize": (link(), link(groMaxSize=60000)),
    "interface.gsoIPv4MaxSize": (link(), link(gsoIPv4MaxSize=60000)),
    "interface.groIPv4MaxSize": (link(), link(groIPv4MaxSize=60000)),
    "interface.disableEbpfPrograms": (link(), link(disableEbpfPrograms=True)),
    "interface.forwarding": (link(), link(forwarding=True)),
    "interface.arpIgnore": (link(), link(arpIgnore=1)),
    "interface.arpAnnounce": (link(), link(arpAnnounce=2)),
    "interface.rpFilter": (link(), link(rpFilter=2)),
    "railRouting.tables": (rails(), rails(tables=200)),
    "railRouting.priority": (rails(), rails(priority=30000)),
    "railRouting.gateway": (rails(), rails(gateway="10.1.0.77")),
    "railRouting.sameRail": (rails(), rails(sameRail="gateway")),
    "railRouting.crossRail": (rails(), rails(crossRail="none")),
    "rails": (rails(), rails({"1": ["10.8.0.0/16"]})),
    "interface.bandwidthCeiling": (child("Macvlan", hardwareAddr=MAC), child("Macvlan", hardwareAddr=MAC, **CEILING)),
    "interface.vrf.name": (link(), link(vrf={"name": "blue"})),
    "interface.vrf.table": (link(vrf={"name": "blue"}), link(vrf={"name": "blue", "table": 77})),
    "routes[].destination": (route(), route(destination="198.51.100.0/24")),
    "routes[].gateway": (route(), route(gateway="10.1.0.253")),
    "routes[].source": (route(), route(source="10.1.0.1")),
    "routes[].scope": (route(), {"routes": [{"destination": "192.0.2.0/24", "scope": 253}]}),
    "routes[].table": (route(), route(table=100)),
    "rules[].priority": (rule(), rule(priority=500)),
    "rules[].source": (rule(), rule(source="10.1.0.1/32")),
    "rules[].destination": (rule(), rule(destination="192.0.2.0/24")),
    "rules[].table": (rule(), rule(table=101)),
    "neighbors[].destination": (neighbour(), neighbour(destination="10.1.0.8")),
    "neighbors[].hardwareAddr": (neighbour(), neighbour(hardwareAddr=OTHER_MAC)),
    # These NICs are not virtual functions, so the claim is refused; `test_vf_feature.py` tests each of these.
    "vf.vlan": ({}, {"vf": {"vlan": 100}}),
    "vf.vlanPriority": ({}, {"vf": {"vlan": 100, "vlanPriority": 3}}),
    "vf.trust": ({}, {"vf": {"trust": True}}),
    "vf.spoofCheck": ({}, {"vf": {"spoofCheck": False}}),
    "vf.maxRate": ({}, {"vf": {"maxRate": 100}}),
    "vf.minRate": ({}, {"vf": {"minRate": 100}}),
    "environment[]": ({}, {"environment": ["gloo"]}),
    "ethtool.features": ({}, {"ethtool": {"features": {"tx-scatter-gather": False}}}),
    # These NICs have no private flags, so what the parameter changes is that the claim is refused.
    "ethtool.privateFlags": ({}, {"ethtool": {"privateFlags": {"none-such": True}}}),
}

REFUSED_HERE = {"ethtool.privateFlags", *(path for path in SAMPLES if path.startswith("vf."))}


def leaves(struct: type[msgspec.Struct], path: str = "") -> Iterator[str]:
    """Every parameter that is no group of others, by its path."""
    for info in schema(struct).values():
        inner, where = info.kind, f"{path}{info.wire_name}"
        if getattr(inner, "__origin__", None) is list:
            (inner,) = inner.__args__
            where += "[]"
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from leaves(inner, f"{where}.")
        else:
            yield where


def test_every_parameter_has_a_sample_or_a_reason() -> None:
    assert sorted([*SAMPLES, *NOT_IN_THE_PLAN]) == sorted(leaves(NetworkConfig))


def outcome(node: TestNode, config: dict[str, Any]) -> Any:
    """The plan of a NIC as it would be kept, or why there is none. A child of it is a share."""
    given = AllocatedDevice("r", "node", "nic0", None, False, {BANDWIDTH: "100M"})
    found = node.device("nic0")
    capacity, attributes = {**found.device.capacity, BANDWIDTH: "400M"}, {**found.device.attributes, RAIL: 0}
    shared = msgspec.structs.replace(found.device, capacity=capacity, attributes=attributes)
    request = DeviceRequest(given, msgspec.structs.replace(found, device=shared), parse(config))
    try:
        return msgspec.to_builtins(node.planner.plan([request])[0])
    except InvalidInput as error:
        return str(error)


@pytest.mark.parametrize("path", SAMPLES)
def test_every_parameter_changes_the_plan(node: TestNode, path: str) -> None:
    without, said = SAMPLES[path]
    assert outcome(node, without) != outcome(node, said)


@pytest.mark.parametrize("path", NOT_IN_THE_PLAN)
def test_excluded_parameters_do_not_change_the_plan(node: TestNode, path: str) -> None:
    said = {"profile": "any"} if path == "profile" else {"perDevice": [{"interface": {"mtu": 1400}}]}
    assert outcome(node, {}) == outcome(node, said)


@pytest.mark.parametrize("path", [path for path in SAMPLES if path not in REFUSED_HERE])
def test_every_sample_can_be_planned(node: TestNode, path: str) -> None:
    """So that no parameter passes only because its sample is refused."""
    assert not isinstance(outcome(node, SAMPLES[path][1]), str)
