"""Reading claims."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core.errors import InvalidInput
from dranet.core.netconfig_parse import parse
from dranet.node.claims.allocation import (
    ClaimError,
    allocated_devices,
    named_by_containers,
    network_config,
    reserved_pods,
)


def claim(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "c", "namespace": "d", "uid": "u"}, "status": status}


def config(*entries: dict[str, Any]) -> dict[str, Any]:
    return claim(allocation={"devices": {"config": list(entries)}})


def entry(parameters: Any, source: str = "FromClaim", driver: str = "dra.net", requests: Any = ()) -> dict[str, Any]:
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def test_unreserved_claim_has_no_pods() -> None:
    assert reserved_pods(claim()) == []


def test_all_reserved_pods_are_listed() -> None:
    users = [{"resource": "pods", "name": n, "uid": n} for n in ("one", "two")]
    assert [pod.name for pod in reserved_pods(claim(reservedFor=users))] == ["one", "two"]


def test_reservation_for_another_kind_is_refused() -> None:
    with pytest.raises(ClaimError, match="only pods"):
        reserved_pods(claim(reservedFor=[{"resource": "jobs", "apiGroup": "batch", "name": "j", "uid": "j"}]))


def test_devices_of_this_driver_keep_the_order_of_the_allocation() -> None:
    results = [
        {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0", "request": "gpu"},
        {"driver": "dra.net", "pool": "n", "device": "b", "request": "nic"},
        {"driver": "dra.net", "pool": "n", "device": "a", "request": "nic"},
    ]
    assert [item.device for item in allocated_devices(claim(allocation={"devices": {"results": results}}))] == [
        "b",
        "a",
    ]


def test_claim_without_allocation_is_refused() -> None:
    with pytest.raises(ClaimError, match="not allocated"):
        allocated_devices(claim())


def test_config_of_other_drivers_and_requests_is_ignored() -> None:
    found = config(
        entry({"interface": {"mtu": 1000}}, driver="other"),
        entry({"interface": {"mtu": 2000}}, requests=["else"]),
        entry({"interface": {"mtu": 3000}}, requests=["nic"]),
    )
    assert network_config(found, "nic", {}) == parse({"interface": {"mtu": 3000}})


def test_config_of_a_request_applies_to_its_subrequests() -> None:
    found = config(entry({"interface": {"mtu": 3000}}, requests=["nic"]))
    assert network_config(found, "nic/fast", {}) == parse({"interface": {"mtu": 3000}})


def test_first_config_entry_wins_field_by_field() -> None:
    found = config(entry({"interface": {"mtu": 1}}) | {}, entry({"interface": {"mtu": 3000}}))
    with pytest.raises(InvalidInput, match=r"config\[0\] \(FromClaim\) interface\.mtu"):
        network_config(found, "nic", {})
    found = config(entry({"interface": {"mtu": 1500}}), entry({"interface": {"mtu": 3000, "arpIgnore": 1}}))
    assert network_config(found, "nic", {}) == parse({"interface": {"mtu": 1500, "arpIgnore": 1}})


@pytest.mark.parametrize("named", [True, False])
def test_containers_that_name_the_claim_are_found(named: bool) -> None:
    uses = [{"name": "nics"}] if named else []
    pod = {
        "spec": {
            "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": "t"}],
            "containers": [{"name": "main", "resources": {"claims": uses}}],
        },
        "status": {"resourceClaimStatuses": [{"name": "nics", "resourceClaimName": "pod-nics-abc"}]},
    }
    assert named_by_containers(pod, "pod-nics-abc") is named
    assert named_by_containers(pod, "another") is False


BORDER_FIELDS = [
    ("vf", {"vf": {"vlan": 666}}),
    ("interface.disableEbpfPrograms", {"interface": {"disableEbpfPrograms": True}}),
]


@pytest.mark.parametrize(("path", "parameters"), BORDER_FIELDS)
def test_parameters_of_administrators_come_from_the_class_only(path: str, parameters: dict[str, Any]) -> None:
    by_claim = config(entry(parameters), entry({"vf": {"vlan": 100, "trust": False}}, source="FromClass"))
    with pytest.raises(InvalidInput, match=rf"config\[0\] \(FromClaim\) {path}: only a DeviceClass or a profile"):
        network_config(by_claim, "nic", {})
    assert network_config(config(entry(parameters, source="FromClass")), "nic", {}) == parse(parameters)
    assert network_config(config(entry(parameters)), "nic", {}, trust_author=True) == parse(parameters)


def test_entry_of_an_unknown_source_is_not_trusted() -> None:
    with pytest.raises(InvalidInput, match="vf: only a DeviceClass"):
        network_config(config(entry({"vf": {"trust": True}}, source="FromElsewhere")), "nic", {})


def test_parameters_of_administrators_are_refused_by_device_too() -> None:
    by_device = {"perDevice": [{"match": 'device.driver == "dra.net"', "vf": {"trust": True}}]}
    with pytest.raises(InvalidInput, match=r"config\[0\] \(FromClaim\) vf: only a DeviceClass"):
        network_config(config(entry(by_device)), "nic", {})


def test_parameters_by_device_of_the_claim_override_those_of_the_class() -> None:
    of_class = {"perDevice": [{"interface": {"name": "rail{rail}", "mtu": 9000}}]}
    of_claim = {"perDevice": [{"interface": {"name": "net{ordinal}"}}]}
    found = network_config(config(entry(of_class, source="FromClass"), entry(of_claim)), "nic", {"dra.net/rail": 3}, 1)
    assert found == parse({"interface": {"name": "net1", "mtu": 9000}})
