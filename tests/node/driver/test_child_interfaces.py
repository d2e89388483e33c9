"""Children of a NIC that stays on the node, on the real kernel: macvlan here; ipvlan where the kernel has it (VM)."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dranet.core.errors import InvalidInput
from dranet.core.netconfig_parse import parse
from dranet.linux import links, virtual_links
from dranet.linux.codec import Message
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest
from dranet.node.features.base import AttachError
from dranet.node.records import plan as plans
from dranet.node.records.plan import AttachMode, ClaimPlan
from tests import pictures

from .conftest import TestNode

KINDS = ("Macvlan", "IPVLAN")


def asked(kind: str, address: str = "10.1.0.50/24", **interface: Any) -> dict[str, Any]:
    return {"interface": {"type": kind, "addresses": [address], **interface}}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, node: TestNode) -> str:
    """Each kind of child that this kernel has."""
    creators: dict[str, Callable[..., Message]] = {
        "Macvlan": virtual_links.create_macvlan,
        "IPVLAN": virtual_links.create_ipvlan,
    }
    make = creators[request.param]
    nic = node.link("nic1")
    try:
        node.host.route.request(make("probe", nic.index, {"Macvlan": "bridge", "IPVLAN": "l2"}[request.param]))
    except NetlinkError as error:
        pytest.skip(f"this kernel has no such kind of link: {error}")
    probe = node.link("probe")
    node.host.route.request(links.delete(probe.index))
    return str(request.param)


def share(node: TestNode, number: int, config: dict[str, Any], others: list[ClaimPlan] | None = None) -> ClaimPlan:
    """A stored plan that gives a share of nic0 to pod `pod-N`."""
    request = DeviceRequest(
        AllocatedDevice("r", "node", "nic0", f"share-{number}", False), node.device("nic0"), parse(config)
    )
    return node.put_plan([request], uid=f"uid-{number}", pod=f"pod-{number}", others=others or [])


def child_of(node: TestNode, pod: Any, name: str = "nic0") -> dict[str, Any]:
    (link,) = node.ip("-d", "addr", "show", name, where=pod)
    return link


def datagram(source: Namespace, target: Namespace, address: str) -> str:
    """Send one to an address of the target; who it came from."""
    there, here = (
        namespace.run(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for namespace in (target, source)
    )
    with there, here:
        there.bind((address, 5000))
        there.settimeout(10)
        here.sendto(b"hello", (address, 5000))
        return str(there.recvfrom(16)[1][0])


def test_pod_gets_a_child_and_the_nic_is_unchanged(node: TestNode, kind: str) -> None:
    before = node.picture("nic0")
    plan = share(node, 1, asked(kind, mtu=1400, name="net1"))
    assert plan.devices[0].mode is AttachMode.SHARED
    node.lifecycle.set_up(plan)
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    link = child_of(node, pod, "net1")
    assert (link["linkinfo"]["info_kind"], link["mtu"]) == (kind.lower(), 1400)
    assert [a["local"] for a in link["addr_info"] if a["scope"] == "global"] == ["10.1.0.50"]
    assert "UP" in link["flags"]
    # A veth has no filter for a second address: while a macvlan is on it, it listens to everything.
    of_the_child = {key: before[key] for key in ("promiscuity", "additional addresses")}
    assert {**node.picture("nic0"), **of_the_child} == before
    node.lifecycle.detach(plan.uid)
    assert node.picture("nic0") == before


def test_child_may_have_the_name_of_its_nic(node: TestNode, kind: str) -> None:
    share(node, 1, asked(kind))
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    assert node.names(pod) == {"nic0"}
    assert "nic0" in node.names()


def test_child_inherits_no_addresses_or_routes(node: TestNode, kind: str) -> None:
    node.run("ip", "route", "add", "10.99.0.0/16", "via", "10.1.0.7", "dev", "nic0")
    share(node, 1, asked(kind))
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    assert {route["dst"] for route in node.ip("route", where=pod)} == {"10.1.0.0/24"}


def test_routes_rules_and_settings_apply_in_the_pod(node: TestNode, kind: str) -> None:
    config = asked(kind, arpIgnore=1, acceptRA=0)
    config["routes"] = [{"destination": "10.50.0.0/16", "gateway": "10.1.0.7", "table": 150}]
    config["rules"] = [{"priority": 500, "source": "10.1.0.50/32", "table": 150}]
    share(node, 1, config)
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    assert [route["dst"] for route in node.ip("route", "show", "table", "150", where=pod)] == ["10.50.0.0/16"]
    assert any(rule["priority"] == 500 for rule in node.ip("rule", where=pod))
    assert node.run("cat", "/proc/sys/net/ipv4/conf/nic0/arp_ignore", where=pod).strip() == "1"
    assert node.run("cat", "/proc/sys/net/ipv6/conf/nic0/accept_ra", where=pod).strip() == "0"


def test_children_of_one_nic_serve_two_pods(node: TestNode, kind: str) -> None:
    first = share(node, 1, asked(kind, "10.1.0.51/24"))
    share(node, 2, asked(kind, "10.1.0.52/24"), [first])
    pods = [node.pod(), node.pod()]
    for number, pod in enumerate(pods, 1):
        node.lifecycle.attach(f"pod-{number}", pod.path)
    assert datagram(pods[0], pods[1], "10.1.0.52") == "10.1.0.51"


def test_repeated_attach_creates_no_second_child(node: TestNode, kind: str) -> None:
    share(node, 1, asked(kind))
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    index = child_of(node, pod)["ifindex"]
    node.lifecycle.attach("pod-1", pod.path)
    assert (child_of(node, pod)["ifindex"], len(node.names(pod))) == (index, 1)


def test_detach_deletes_the_child_in_a_held_namespace(node: TestNode, kind: str) -> None:
    before = node.picture("nic0")
    plan = share(node, 1, asked(kind))
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    assert node.lifecycle.detach(plan.uid, stopping=pod.path) == []
    assert node.names(pod) == set()
    assert node.picture("nic0") == before
    assert not node.lifecycle.gates.exists(plan.uid)


def test_renamed_child_is_found_and_deleted(node: TestNode, kind: str) -> None:
    plan = share(node, 1, asked(kind))
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    node.run("ip", "link", "set", "nic0", "down", where=pod)
    node.run("ip", "link", "set", "nic0", "name", "mine", where=pod)
    node.lifecycle.detach(plan.uid, stopping=pod.path)
    assert node.names(pod) == set()


def test_own_link_of_the_pod_is_left_alone(node: TestNode, kind: str) -> None:
    plan = share(node, 1, asked(kind))
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    node.run("ip", "link", "add", "own0", "type", "veth", "peer", "name", "own1", where=pod)
    node.lifecycle.detach(plan.uid, stopping=pod.path)
    assert node.names(pod) == {"own0", "own1"}


def test_nic_is_up_while_it_has_children(node: TestNode, kind: str) -> None:
    node.run("ip", "link", "set", "nic0", "down")
    node.run("ip", "address", "add", "fd00:9::1/64", "dev", "nic0")
    for neighbour in ("10.1.0.9", "fd00:9::9"):
        node.run("ip", "neighbour", "add", neighbour, "lladdr", "02:00:00:00:00:09", "nud", "permanent", "dev", "nic0")
    before = node.picture("nic0")
    first = share(node, 1, asked(kind, "10.1.0.51/24"))
    node.lifecycle.set_up(first)
    second = share(node, 2, asked(kind, "10.1.0.52/24"), [first])
    for plan in (first, second):
        node.lifecycle.attach(plan.pod.uid, node.pod().path)
    assert node.picture("nic0")["up"]
    node.lifecycle.detach(first.uid, stopping="")
    node.lifecycle.release(first)
    assert node.picture("nic0")["up"]
    node.lifecycle.detach(second.uid, stopping="")
    assert not before["up"]
    assert pictures.differences(before, node.picture("nic0")) == []


def test_removed_nic_affects_no_other_claim(node: TestNode, kind: str) -> None:
    plan = share(node, 1, asked(kind))
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    node.run("ip", "link", "del", "nic0")
    assert node.lifecycle.detach(plan.uid, stopping=pod.path) == []


def test_macvlan_keeps_its_mac_address(node: TestNode) -> None:
    config = asked("Macvlan", hardwareAddr="02:00:00:00:00:99", macvlan={"mode": "Private"})
    share(node, 1, config)
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    link = child_of(node, pod)
    assert (link["address"], link["linkinfo"]["info_data"]["mode"]) == ("02:00:00:00:00:99", "private")


def test_child_name_taken_in_the_pod_is_refused(node: TestNode, kind: str) -> None:
    plan = share(node, 1, asked(kind, name="eth0"))
    pod = node.pod()
    node.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0-peer", where=pod)
    with pytest.raises(AttachError, match="already has an interface named eth0"):
        node.lifecycle.attach("pod-1", pod.path)
    assert node.names(pod) == {"eth0", "eth0-peer"}
    assert not node.lifecycle.gates.exists(plan.uid)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"interface": {"type": "Macvlan"}}, "does not inherit its parent's address"),
        (asked("Macvlan", mtu=9000), "9000 is more than the 1500 of its parent nic0"),
        ({**asked("Macvlan"), "ethtool": {"features": {"tso": False}}}, "offloads belong to nic0"),
        (asked("Macvlan", disableEbpfPrograms=True), "which other pods share; a child link has none"),
    ],
)
def test_invalid_child_settings_are_refused_at_prepare(node: TestNode, config: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        share(node, 1, config)


def advertise(router: Namespace, name: str, prefix: str) -> None:
    """One router advertisement on a link: this prefix is for addresses that hosts make themselves."""
    ours = ipaddress.ip_address(prefix).packed
    option = struct.pack("!BBBBIII16s", 3, 4, 64, 0xC0, 3600, 3600, 0, ours)
    message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + option
    with router.run(lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)) as sending:
        sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
        index = router.run(lambda: socket.if_nametoindex(name))
        sending.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        sending.sendto(message, ("ff02::1", 0, 0, index))


def test_child_uses_slaac(node: TestNode, kind: str) -> None:
    share(node, 1, {"interface": {"type": kind, "addressing": "SLAAC"}})
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)

    def own() -> list[str]:
        return [a["local"] for a in child_of(node, pod)["addr_info"] if a["scope"] == "global"]

    deadline = time.monotonic() + 30
    while not own():  # advertised again and again, as routers do: the child listens once its own address is found free
        assert time.monotonic() < deadline, "no address within 30 s"
        with contextlib.suppress(OSError):  # the router's own address may not be ready yet
            advertise(node.fabric, "nic0", "fd00:20::")
        time.sleep(0.2)
    (address,) = own()
    assert ipaddress.ip_address(address) in ipaddress.ip_network("fd00:20::/64")


@pytest.mark.parametrize("addressing", ["Unnumbered", "SLAAC"])
def test_unnumbered_child_is_created(node: TestNode, addressing: str) -> None:
    share(node, 1, {"interface": {"type": "Macvlan", "addressing": addressing}})
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    assert [a for a in child_of(node, pod)["addr_info"] if a["scope"] == "global"] == []


@pytest.mark.parametrize(
    ("theirs", "ours", "problem"),
    [
        (asked("IPVLAN"), asked("Macvlan"), "a parent cannot have both kinds"),
        (asked("IPVLAN"), asked("IPVLAN", ipvlan={"mode": "L3"}), "mode L2 and flag bridge; all must agree"),
        (asked("IPVLAN"), asked("IPVLAN", ipvlan={"flag": "Private"}), "all must agree"),
        (asked("Macvlan"), asked("Macvlan", macvlan={"mode": "Passthru"}), "Passthru allows one child"),
        (
            asked("Macvlan", hardwareAddr="02:00:00:00:00:01"),
            asked("Macvlan", hardwareAddr="02:00:00:00:00:01"),
            "already has 02:00:00:00:00:01",
        ),
    ],
)
def test_children_of_other_claims_must_be_compatible(node: TestNode, theirs: Any, ours: Any, problem: str) -> None:
    first = share(node, 1, theirs)
    with pytest.raises(InvalidInput, match=problem):
        share(node, 2, ours, [first])


def test_bridge_port_is_not_shared(node: TestNode) -> None:
    node.run("ip", "link", "add", "br0", "type", "bridge")
    node.run("ip", "link", "set", "nic0", "master", "br0")
    with pytest.raises(InvalidInput, match="share that one instead"):
        share(node, 1, asked("Macvlan"))


def test_bridge_can_be_shared(node: TestNode) -> None:
    """As a bond can: what cannot be moved still has children."""
    node.run("ip", "link", "add", "nic2", "type", "bridge")
    request = DeviceRequest(
        AllocatedDevice("r", "node", "nic2", None, False), node.device("nic2"), parse(asked("Macvlan"))
    )
    node.put_plan([request])
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    assert node.names(pod) == {"nic2"}


def test_stored_child_record_is_read_back(node: TestNode) -> None:
    row = plans.encode(share(node, 1, asked("Macvlan")))
    assert plans.encode(plans.decode(row)) == row
    assert msgspec.json.decode(row)["devices"][0]["parts"]["child"]["version"] == 1
