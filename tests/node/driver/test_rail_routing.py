"""Rails that route: two pods with a NIC on each of two rails, and a router between the rails. Judged by ip and ping."""

from __future__ import annotations

import socket
import subprocess
from typing import Any

import pytest
from msgspec.structs import replace

from dranet.cel.device_match import device_matches
from dranet.core.attributes import RAIL
from dranet.core.errors import DranetError
from dranet.core.netconfig_parse import parse
from dranet.core.per_device import resolve
from dranet.linux.namespaces import Namespace
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest

from .conftest import TestNode

CLASS = {
    "perDevice": [
        {
            "match": '"rail" in device.attributes["dra.net"]',
            "interface": {"name": "net{rail}", "arpIgnore": 1, "arpAnnounce": 2, "rpFilter": 2},
            "railRouting": {"gateway": "10.{rail}.0.254"},
        }
    ],
    "rails": {"0": ["10.0.0.0/24"], "1": ["10.1.0.0/24"]},
}
HOSTS = {"left": 1, "right": 2}
PORT = 7000


def run(where: Namespace, *command: str) -> subprocess.CompletedProcess[str]:
    whole = ["nsenter", f"--net=/proc/self/fd/{where.fd}", *command]
    return subprocess.run(whole, capture_output=True, text=True, pass_fds=[where.fd])


@pytest.fixture
def rails(node: TestNode) -> TestNode:
    """Two NICs for each of two pods; the fabric has one bridge for each rail and routes between them."""
    for rail in (0, 1):
        run(node.fabric, "ip", "link", "add", f"rail{rail}", "type", "bridge")
        run(node.fabric, "ip", "addr", "add", f"10.{rail}.0.254/24", "dev", f"rail{rail}")
        run(node.fabric, "ip", "link", "set", f"rail{rail}", "up")
        for pod, number in HOSTS.items():
            node.add_nic(f"{pod}{rail}", f"10.{rail}.0.{number}/24")
            assert run(node.fabric, "ip", "link", "set", f"{pod}{rail}", "master", f"rail{rail}").returncode == 0
    assert run(node.fabric, "sysctl", "-qw", "net.ipv4.ip_forward=1").returncode == 0
    return node


def attached(node: TestNode, pod: str, raw: dict[str, Any]) -> Namespace:
    requests = []
    for rail in (0, 1):
        device = node.device(f"{pod}{rail}")
        device = replace(device, device=replace(device.device, attributes={**device.device.attributes, RAIL: rail}))
        config = resolve(parse(raw), device.device.attributes, rail, device_matches)
        requests.append(DeviceRequest(AllocatedDevice("nics", "node", f"{pod}{rail}", None, False), device, config))
    plan = node.put_plan(requests, uid=f"claim-{pod}", pod=f"pod-{pod}")
    namespace = node.pod()
    node.lifecycle.attach(plan.pod.uid, namespace.path)
    return namespace


def received(pods: dict[str, Namespace], source: str, target: str) -> str:
    """The sender that the other pod sees after a packet and its answer went through."""
    with pods["right"].run(lambda: socket.create_server((target, PORT))) as server:
        client = pods["left"].run(
            lambda: socket.create_connection((target, PORT), timeout=60, source_address=(source, 0))
        )
        with client, server.accept()[0] as accepted:
            return str(accepted.getpeername()[0])


def test_every_pair_of_nics_is_reached_by_its_own_nic(rails: TestNode) -> None:
    pods = {pod: attached(rails, pod, CLASS) for pod in HOSTS}
    for own in (0, 1):
        for peer in (0, 1):
            source, target = f"10.{own}.0.1", f"10.{peer}.0.2"
            (route,) = rails.ip("route", "get", target, "from", source, "oif", f"net{own}", where=pods["left"])
            gateway = None if own == peer else f"10.{own}.0.254"
            assert (route["dev"], route.get("gateway")) == (f"net{own}", gateway)
            assert received(pods, source, target) == source


def test_without_it_the_kernel_asks_for_the_peer_on_the_wrong_rail(rails: TestNode) -> None:
    pod = attached(rails, "left", {"perDevice": [{"interface": {"name": "net{rail}"}}]})
    (route,) = rails.ip("route", "get", "10.1.0.2", "from", "10.0.0.1", "oif", "net0", where=pod)
    assert "gateway" not in route


def test_each_nic_has_a_table_and_a_rule_by_address_and_its_settings(rails: TestNode) -> None:
    pod = attached(rails, "left", CLASS)
    rules = {(rule["src"], rule["table"], rule["priority"]) for rule in rails.ip("rule", where=pod) if "src" in rule}
    assert {("10.0.0.1", "100", 32000), ("10.1.0.1", "101", 32000)} <= rules
    found = {(r["dst"], r.get("gateway")) for r in rails.ip("route", "show", "table", "101", where=pod)}
    assert found == {("10.1.0.0/24", None), ("10.0.0.0/24", "10.1.0.254"), ("default", "10.1.0.254")}
    settings = [f"net.ipv4.conf.net1.{name}" for name in ("arp_ignore", "arp_announce", "rp_filter")]
    assert run(pod, "sysctl", "-n", *settings).stdout.split() == ["1", "2", "2"]


def test_a_nic_comes_back_as_it_was(rails: TestNode) -> None:
    before = {name: rails.ip("-d", "addr", "show", name) for name in ("left0", "left1")}
    attached(rails, "left", CLASS)
    rails.lifecycle.detach("claim-left", stopping="")
    for name, was in before.items():
        (found,), (expected,) = rails.ip("-d", "addr", "show", name), was
        keys = ("ifname", "address", "mtu")
        assert {key: found[key] for key in keys} == {key: expected[key] for key in keys}
        assert [a["local"] for a in found["addr_info"] if a["family"] == "inet"] == [
            a["local"] for a in expected["addr_info"] if a["family"] == "inet"
        ]


def test_a_rule_that_bends_the_route_refuses_the_attach(rails: TestNode) -> None:
    """A rule before ours sends all packets to another table: the driver asks the kernel and reports it."""
    bent = {
        **CLASS,
        "rules": [{"priority": 100, "source": "10.0.0.0/8", "table": 77}],
        "routes": [{"destination": "10.1.0.0/24", "gateway": "10.0.0.77", "table": 77}],
    }
    message = r"railRouting: 10\.0\.0\.1 reaches 10\.1\.0\.1 via 10\.0\.0\.77 instead of via"
    with pytest.raises(DranetError, match=message):
        attached(rails, "left", bent)
