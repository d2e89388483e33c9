"""Children of a card that stays on the node, on the real kernel: macvlan here; ipvlan where the kernel has it (VM)."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import time
from typing import Any

import msgspec
import pytest

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.planner import Wish
from dranet.driver.parts.base import AttachError
from dranet.driver.records import plan as plans
from dranet.driver.records.plan import ClaimPlan, PodRef, Use
from dranet.kernel import links, virtual_links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkError
from dranet.model.errors import InvalidInput
from dranet.model.netconfig_parse import parse
from tests import pictures

from .conftest import TestNode

KINDS = ("Macvlan", "IPVLAN")


def asked(kind: str, address: str = "10.1.0.50/24", **interface: Any) -> dict[str, Any]:
    return {"interface": {"type": kind, "addresses": [address], **interface}}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, node: TestNode) -> str:
    """Each kind of child that this kernel has."""
    make = {"Macvlan": virtual_links.create_macvlan, "IPVLAN": virtual_links.create_ipvlan}[request.param]
    card = links.get_link(node.host.route, "card1")
    assert card is not None
    try:
        node.host.route.request(make("probe", card.index, {"Macvlan": "bridge", "IPVLAN": "l2"}[request.param]))
    except NetlinkError as error:
        pytest.skip(f"this kernel has no such kind of link: {error}")
    probe = links.get_link(node.host.route, "probe")
    assert probe is not None
    node.host.route.request(links.delete(probe.index))
    return str(request.param)


def share(node: TestNode, number: int, config: dict[str, Any], others: list[ClaimPlan] | None = None) -> ClaimPlan:
    """A stored plan that gives a share of card0 to pod `pod-N`."""
    wish = Wish(Allotted("r", "node", "card0", f"share-{number}", False), node.device("card0"), parse(config))
    beside = [device for plan in others or [] for device in plan.devices]
    devices = tuple(node.planner.plan([wish], others=beside))
    user = PodRef(uid=f"pod-{number}", name=f"pod-{number}", namespace="default")
    plan = ClaimPlan(uid=f"uid-{number}", namespace="default", name=f"claim-{number}", pod=user, devices=devices)
    node.store.put(plan)
    return plan


def child_of(node: TestNode, pod: Any, name: str = "card0") -> dict[str, Any]:
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


def test_the_pod_gets_a_child_and_the_card_stays_as_it_was(node: TestNode, kind: str) -> None:
    before = node.picture("card0")
    plan = share(node, 1, asked(kind, mtu=1400, name="net1"))
    assert plan.devices[0].use is Use.SHARED
    node.cards.ready(plan)
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    link = child_of(node, pod, "net1")
    assert (link["linkinfo"]["info_kind"], link["mtu"]) == (kind.lower(), 1400)
    assert [a["local"] for a in link["addr_info"] if a["scope"] == "global"] == ["10.1.0.50"]
    assert "UP" in link["flags"]
    # A veth has no filter for a second address: while a macvlan is on it, it listens to everything.
    assert {**node.picture("card0"), "promiscuity": before["promiscuity"]} == before
    node.cards.bring_home(plan.uid)
    assert node.picture("card0") == before


def test_a_child_may_have_its_card_s_name(node: TestNode, kind: str) -> None:
    share(node, 1, asked(kind))
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert node.names(pod) == {"card0"}
    assert "card0" in node.names()


def test_nothing_of_the_card_s_addresses_and_routes_comes_along(node: TestNode, kind: str) -> None:
    node.run("ip", "route", "add", "10.99.0.0/16", "via", "10.1.0.7", "dev", "card0")
    share(node, 1, asked(kind))
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert {route["dst"] for route in node.ip("route", where=pod)} == {"10.1.0.0/24"}


def test_routes_rules_and_settings_of_the_claim_hold_in_the_pod(node: TestNode, kind: str) -> None:
    config = asked(kind, arpIgnore=1, acceptRA=0)
    config["routes"] = [{"destination": "10.50.0.0/16", "gateway": "10.1.0.7", "table": 150}]
    config["rules"] = [{"priority": 500, "source": "10.1.0.50/32", "table": 150}]
    share(node, 1, config)
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert [route["dst"] for route in node.ip("route", "show", "table", "150", where=pod)] == ["10.50.0.0/16"]
    assert any(rule["priority"] == 500 for rule in node.ip("rule", where=pod))
    assert node.run("cat", "/proc/sys/net/ipv4/conf/card0/arp_ignore", where=pod).strip() == "1"
    assert node.run("cat", "/proc/sys/net/ipv6/conf/card0/accept_ra", where=pod).strip() == "0"


def test_children_of_one_card_serve_two_pods_and_reach_each_other(node: TestNode, kind: str) -> None:
    first = share(node, 1, asked(kind, "10.1.0.51/24"))
    share(node, 2, asked(kind, "10.1.0.52/24"), [first])
    pods = [node.pod(), node.pod()]
    for number, pod in enumerate(pods, 1):
        node.cards.attach(f"pod-{number}", pod.path)
    assert datagram(pods[0], pods[1], "10.1.0.52") == "10.1.0.51"


def test_attach_repeated_makes_no_second_child(node: TestNode, kind: str) -> None:
    share(node, 1, asked(kind))
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    index = child_of(node, pod)["ifindex"]
    node.cards.attach("pod-1", pod.path)
    assert (child_of(node, pod)["ifindex"], len(node.names(pod))) == (index, 1)


def test_the_child_is_gone_after_the_pod_while_its_namespace_lives_on(node: TestNode, kind: str) -> None:
    before = node.picture("card0")
    plan = share(node, 1, asked(kind))
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert node.cards.bring_home(plan.uid, stopping=pod.path) == []
    assert node.names(pod) == set()
    assert node.picture("card0") == before
    assert not node.cards.receipts.exists(plan.uid)


def test_a_child_the_pod_has_renamed_is_found_and_removed(node: TestNode, kind: str) -> None:
    plan = share(node, 1, asked(kind))
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    node.run("ip", "link", "set", "card0", "down", where=pod)
    node.run("ip", "link", "set", "card0", "name", "mine", where=pod)
    node.cards.bring_home(plan.uid, stopping=pod.path)
    assert node.names(pod) == set()


def test_a_link_of_the_pod_s_own_is_left_alone(node: TestNode, kind: str) -> None:
    plan = share(node, 1, asked(kind))
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    node.run("ip", "link", "add", "own0", "type", "veth", "peer", "name", "own1", where=pod)
    node.cards.bring_home(plan.uid, stopping=pod.path)
    assert node.names(pod) == {"own0", "own1"}


def test_a_card_that_was_down_is_raised_and_is_as_it_was_after_the_last_child(node: TestNode, kind: str) -> None:
    node.run("ip", "link", "set", "card0", "down")
    node.run("ip", "address", "add", "fd00:9::1/64", "dev", "card0")
    for neighbour in ("10.1.0.9", "fd00:9::9"):
        node.run("ip", "neighbour", "add", neighbour, "lladdr", "02:00:00:00:00:09", "nud", "permanent", "dev", "card0")
    before = node.picture("card0")
    first = share(node, 1, asked(kind, "10.1.0.51/24"))
    node.cards.ready(first)
    second = share(node, 2, asked(kind, "10.1.0.52/24"), [first])
    for plan in (first, second):
        node.cards.attach(plan.pod.uid, node.pod().path)
    assert node.picture("card0")["up"]
    node.cards.bring_home(first.uid, stopping="")
    node.cards.forget(first)
    assert node.picture("card0")["up"]
    node.cards.bring_home(second.uid, stopping="")
    assert not before["up"]
    assert pictures.differences(before, node.picture("card0")) == []


def test_a_card_that_leaves_the_node_meanwhile_costs_nobody_else_anything(node: TestNode, kind: str) -> None:
    plan = share(node, 1, asked(kind))
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    node.run("ip", "link", "del", "card0")
    assert node.cards.bring_home(plan.uid, stopping=pod.path) == []


def test_a_macvlan_keeps_the_address_it_was_given(node: TestNode) -> None:
    config = asked("Macvlan", hardwareAddr="02:00:00:00:00:99", macvlan={"mode": "Private"})
    share(node, 1, config)
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    link = child_of(node, pod)
    assert (link["address"], link["linkinfo"]["info_data"]["mode"]) == ("02:00:00:00:00:99", "private")


def test_a_name_the_pod_has_already_is_refused_and_nothing_is_left(node: TestNode, kind: str) -> None:
    plan = share(node, 1, asked(kind, name="eth0"))
    pod = node.pod()
    node.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0-peer", where=pod)
    with pytest.raises(AttachError, match="already has an interface named eth0"):
        node.cards.attach("pod-1", pod.path)
    assert node.names(pod) == {"eth0", "eth0-peer"}
    assert not node.cards.receipts.exists(plan.uid)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"interface": {"type": "Macvlan"}}, "inherits no address of its card"),
        (asked("Macvlan", mtu=9000), "9000 is more than the 1500 of card0 below it"),
        ({**asked("Macvlan"), "ethtool": {"features": {"tso": False}}}, "offloads belong to card0"),
        (asked("Macvlan", disableEbpfPrograms=True), "serve all who share it"),
    ],
)
def test_what_cannot_be_is_said_at_prepare(node: TestNode, config: dict[str, Any], problem: str) -> None:
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


def test_with_slaac_a_child_makes_its_address_from_what_a_router_says(node: TestNode, kind: str) -> None:
    share(node, 1, {"interface": {"type": kind, "addressing": "SLAAC"}})
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)

    def own() -> list[str]:
        return [a["local"] for a in child_of(node, pod)["addr_info"] if a["scope"] == "global"]

    deadline = time.monotonic() + 30
    while not own():  # advertised again and again, as routers do: the child listens once its own address is found free
        assert time.monotonic() < deadline, "no address within 30 s"
        with contextlib.suppress(OSError):  # the router's own address may not be ready yet
            advertise(node.fabric, "card0", "fd00:20::")
        time.sleep(0.2)
    (address,) = own()
    assert ipaddress.ip_address(address) in ipaddress.ip_network("fd00:20::/64")


@pytest.mark.parametrize("addressing", ["Unnumbered", "SLAAC"])
def test_a_child_without_an_address_is_made_where_the_claim_says_so(node: TestNode, addressing: str) -> None:
    share(node, 1, {"interface": {"type": "Macvlan", "addressing": addressing}})
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert [a for a in child_of(node, pod)["addr_info"] if a["scope"] == "global"] == []


@pytest.mark.parametrize(
    ("theirs", "ours", "problem"),
    [
        (asked("IPVLAN"), asked("Macvlan"), "one card cannot have both kinds"),
        (asked("IPVLAN"), asked("IPVLAN", ipvlan={"mode": "L3"}), "mode L2 and flag bridge; all must agree"),
        (asked("IPVLAN"), asked("IPVLAN", ipvlan={"flag": "Private"}), "all must agree"),
        (asked("Macvlan"), asked("Macvlan", macvlan={"mode": "Passthru"}), "for one child alone"),
        (
            asked("Macvlan", hardwareAddr="02:00:00:00:00:01"),
            asked("Macvlan", hardwareAddr="02:00:00:00:00:01"),
            "has 02:00:00:00:00:01 already",
        ),
    ],
)
def test_children_of_other_claims_must_fit(node: TestNode, theirs: Any, ours: Any, problem: str) -> None:
    first = share(node, 1, theirs)
    with pytest.raises(InvalidInput, match=problem):
        share(node, 2, ours, [first])


def test_a_port_of_a_bridge_is_not_shared(node: TestNode) -> None:
    node.run("ip", "link", "add", "br0", "type", "bridge")
    node.run("ip", "link", "set", "card0", "master", "br0")
    with pytest.raises(InvalidInput, match="share that one instead"):
        share(node, 1, asked("Macvlan"))


def test_a_bridge_itself_can_be_shared(node: TestNode) -> None:
    """As a bond can: what cannot be moved still has children."""
    node.run("ip", "link", "add", "card2", "type", "bridge")
    wish = Wish(Allotted("r", "node", "card2", None, False), node.device("card2"), parse(asked("Macvlan")))
    devices = tuple(node.planner.plan([wish]))
    user = PodRef(uid="pod-1", name="pod-1", namespace="default")
    node.store.put(ClaimPlan(uid="uid-1", namespace="default", name="c", pod=user, devices=devices))
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert node.names(pod) == {"card2"}


def test_a_stored_child_reads_back_as_it_was(node: TestNode) -> None:
    row = plans.encode(share(node, 1, asked("Macvlan")))
    assert plans.encode(plans.decode(row)) == row
    assert msgspec.json.decode(row)["devices"][0]["parts"]["child"]["version"] == 1
