"""A pod with CAP_NET_ADMIN is an adversary: whatever it does to its cards, the node and the next tenant do not notice.

Each test is one trick; the campaign of `tests/adversary` plays them in sequences.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from dranet.driver.moving.cards import Cards, CardsAway
from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import Problems
from dranet.driver.parts.netdev import NetdevPart
from dranet.driver.parts.netdev_fetch import CardAway, fetch
from dranet.driver.parts.netdev_identity import find_in_pod
from dranet.driver.parts.registry import PARTS
from dranet.driver.records.plan import DevicePlan
from dranet.kernel import codec, links, sysctl, virtual_links
from dranet.kernel.errors import KernelError
from dranet.kernel.ethtool import Ethtool
from dranet.kernel.links import Link
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.traffic import tc
from tests import pictures
from tests.adversary import changing, taking
from tests.adversary.attacker import Act, Prey

from .conftest import TestNode

Trick = Callable[[TestNode, Namespace], None]


def in_pod(node: TestNode, *names: str) -> Namespace:
    node.plan(*names)
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    return pod


def ip(node: TestNode, pod: Namespace, *words: str) -> None:
    node.run("ip", *words, where=pod)


# Names.


@pytest.mark.parametrize("name", ["card1", "eth0", "dranet2", "dranet3"])
def test_an_alternative_name_of_a_link_on_the_node_holds_no_card_back(node: TestNode, name: str) -> None:
    before = node.picture("card0")
    node.add_card("eth0")
    pod = in_pod(node, "card0")
    ip(node, pod, "link", "property", "add", "dev", "card0", "altname", name)
    assert node.cards.bring_home("uid-1") == []
    assert node.picture("card0") == before


class StubbornCard0(NetdevPart):
    """The kernel will not let go of one card."""

    def leave(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Problems:
        if device.name == "card0":
            raise KernelError("card0 stays where it is")
        return (yield from super().leave(host, pod, device, card))

    def fetch(self, host: Host, device: DevicePlan, *, last_resort: bool) -> None:
        """Nor is there another way to it."""


def test_one_stubborn_card_keeps_no_sibling_away_and_is_asked_for_again(node: TestNode) -> None:
    before = [node.picture(name) for name in ("card0", "card1")]
    pod = in_pod(node, "card0", "card1")
    stubborn = Cards(node.host, node.store, node.cards.receipts, parts=PARTS.with_part(StubbornCard0()))
    with pytest.raises(CardsAway, match="card0 stays where it is"):
        stubborn.bring_home("uid-1")
    assert node.picture("card1") == before[1]
    assert node.names(pod) == {"card0"}
    kept = node.store.get("uid-1")
    assert kept is not None and kept.netns == pod.path
    assert node.cards.bring_home("uid-1") == []
    assert [node.picture(name) for name in ("card0", "card1")] == before


def test_alternative_names_of_its_own_come_back(node: TestNode) -> None:
    node.run("ip", "link", "property", "add", "dev", "card0", "altname", "rail0", "altname", "a-long-name-of-a-rail")
    before = node.picture("card0")
    pod = in_pod(node, "card0")
    ip(node, pod, "link", "property", "del", "dev", "card0", "altname", "rail0")
    assert node.cards.bring_home("uid-1") == []
    assert node.picture("card0") == before


def test_cards_that_swapped_their_names_get_their_own_back(node: TestNode) -> None:
    before = [node.picture(name) for name in ("card0", "card1")]
    pod = in_pod(node, "card0", "card1")
    for old, new in (("card0", "x"), ("card1", "card0"), ("x", "card1")):
        ip(node, pod, "link", "set", old, "down")
        ip(node, pod, "link", "set", old, "name", new)
    assert node.cards.bring_home("uid-1") == []
    assert [node.picture(name) for name in ("card0", "card1")] == before


def test_cards_that_came_home_by_themselves_with_swapped_names_get_their_own_back(node: TestNode) -> None:
    """What hardware does when its namespace dies."""
    before = [node.picture(name) for name in ("card0", "card1")]
    node.plan("card0", "card1")
    for old, new in (("card0", "x"), ("card1", "card0"), ("x", "card1")):
        node.run("ip", "link", "set", old, "down")
        node.run("ip", "link", "set", old, "name", new)
    assert node.cards.bring_home("uid-1") == []
    assert [node.picture(name) for name in ("card0", "card1")] == before


def test_alternative_names_on_a_card_that_came_home_by_itself_are_removed(node: TestNode) -> None:
    """What hardware does when its namespace dies; here it never left."""
    before = node.picture("card0")
    node.plan("card0")
    node.run("ip", "link", "property", "add", "dev", "card0", "altname", "evil", "altname", "dranet3")
    assert node.cards.bring_home("uid-1") == []
    assert node.picture("card0") == before


# Settings that the next tenant would inherit.


def _features(node: TestNode, pod: Namespace) -> None:
    with Ethtool(pod.fd) as tool, NetlinkSocket(namespace_fd=pod.fd) as route:
        card = links.get_link(route, "card0")
        assert card is not None
        known = tool.features(card.index)
        tool.set_features(card.index, {n: not f.active for n, f in known.items() if f.changeable and "tso" not in n})


def _channels(node: TestNode, pod: Namespace) -> None:
    with Ethtool(pod.fd) as tool, NetlinkSocket(namespace_fd=pod.fd) as route:
        card = links.get_link(route, "card0")
        assert card is not None
        most = tool.tables(card.index)["channels"][2]
        tool.set_table(card.index, "channels", {6: most, 7: most})


def _ipv4_sizes(node: TestNode, pod: Namespace) -> None:
    """Many an `ip` does not know them."""
    with NetlinkSocket(namespace_fd=pod.fd) as route:
        card = links.get_link(route, "card0")
        assert card is not None
        route.request(links.change(card.index, gso_ipv4_max_size=9000, gro_ipv4_max_size=9000))


SETTINGS: dict[str, Trick | list[str]] = {
    "gso_max_segs": ["gso_max_segs", "7"],
    "gso_max_size": ["gso_max_size", "9000"],
    "gro_max_size": ["gro_max_size", "9000"],
    "gso_ipv4_max_size": _ipv4_sizes,
    "link mode": ["mode", "dormant"],
    "broadcast": ["broadcast", "33:33:00:00:00:01"],
    "mac": ["address", "02:00:00:00:00:77"],
    "promiscuity": ["promisc", "on"],
    "allmulti": ["allmulticast", "on"],
    "arp": ["arp", "off"],
    "group": ["group", "7"],
    "alias": ["alias", "mine"],
    "features": _features,
    "channels": _channels,
}


@pytest.mark.parametrize("what", SETTINGS)
def test_the_next_tenant_does_not_inherit(node: TestNode, what: str) -> None:
    before = node.picture("card0")
    pod = in_pod(node, "card0")
    trick = SETTINGS[what]
    inside = pictures.take(pod.fd, "card0")
    trick(node, pod) if callable(trick) else ip(node, pod, "link", "set", "card0", *trick)
    assert pictures.take(pod.fd, "card0") != inside, "the trick had no effect, so this test would prove nothing"
    assert node.cards.bring_home("uid-1") == []
    assert pictures.differences(before, node.picture("card0")) == []


def test_settings_of_ipv6_come_back_although_the_pod_has_taken_that_layer_off_the_card(node: TestNode) -> None:
    """Below 1280 bytes the kernel takes IPv6 off a link; with the old size it comes back, with settings by default."""
    paths = {f"net/ipv6/conf/card0/{name}": value for name, value in (("hop_limit", "33"), ("accept_dad", "-1"))}
    sysctl.write_all(node.host.namespace.fd, paths)
    node.run("ip", "address", "add", "fd00:7::1/64", "dev", "card0", "nodad")
    before = node.picture("card0")
    pod = in_pod(node, "card0")
    ip(node, pod, "link", "set", "card0", "mtu", "68")
    assert node.cards.bring_home("uid-1") == []
    assert pictures.differences(before, node.picture("card0")) == []


def test_an_administrators_discipline_is_there_again(node: TestNode) -> None:
    """The kernel forgets disciplines with every move."""
    node.run("tc", "qdisc", "replace", "dev", "card0", "root", "pfifo", "limit", "33")
    node.run("tc", "qdisc", "add", "dev", "card0", "clsact")
    before = node.picture("card0")
    pod = in_pod(node, "card0")
    node.run("tc", "qdisc", "replace", "dev", "card0", "root", "pfifo", "limit", "5", where=pod)
    assert node.cards.bring_home("uid-1") == []
    assert node.picture("card0") == before


def test_disciplines_put_on_a_card_that_never_left_are_removed(node: TestNode) -> None:
    before = node.picture("card0")
    node.cards.ready(node.plan("card0"))
    card = links.get_link(node.host.route, "card0")
    assert card is not None
    limit = codec.u32(0, 5)[4:]
    node.host.route.request(
        tc.put(tc.Discipline(index=card.index, parent=tc.ROOT, handle=0x10000, kind="pfifo", options=limit))
    )
    assert node.cards.bring_home("uid-1") == []
    assert node.picture("card0") == before


# Impostors and hiding places.

IMPOSTORS = [taking.impostor_by_mac, taking.impostor_by_name, taking.impostor_by_index, taking.impostor_of_the_way_home]


@pytest.mark.parametrize("impostor", IMPOSTORS, ids=lambda act: act.__name__)
def test_an_impostor_stays_in_the_pod_and_the_card_comes_home(node: TestNode, impostor: Act) -> None:
    before = node.picture("card0")
    pod = in_pod(node, "card0")
    made = play(pod, impostor)
    assert node.cards.bring_home("uid-1") == []
    assert node.picture("card0") == before
    assert node.names() == {"card0", "card1"}
    assert {name for name in made if not name.startswith("p")} <= node.names(pod)


def play(pod: Namespace, act: Act) -> set[str]:
    """Do it from inside; the names that the pod made for itself."""

    def work() -> set[str]:
        with NetlinkSocket() as route:
            prey = Prey(route, random.Random(1), ("card0", "card1"), Path("/nowhere"), own_root=False)
            act(prey)
            return prey.made

    return pod.run(work)


def test_a_card_with_other_name_mac_and_index_is_found(node: TestNode) -> None:
    before = node.picture("card0")
    pod = in_pod(node, "card0")
    play(pod, taking.impostor_by_index)
    play(pod, changing.mac)
    assert node.cards.bring_home("uid-1") == []
    assert node.picture("card0") == before


def test_a_card_that_a_process_outside_of_the_pod_keeps_is_fetched(node: TestNode) -> None:
    before = node.picture("card0")
    pod = in_pod(node, "card0")
    with kept_elsewhere(node, pod, "card0"):
        assert node.cards.bring_home("uid-1") == []
        assert node.picture("card0") == before


@contextmanager
def kept_elsewhere(node: TestNode, pod: Namespace, card: str) -> Iterator[None]:
    """Another process has a namespace that nobody else holds, and the pod has moved its card there."""
    keeper = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    try:
        while os.stat(f"/proc/{keeper.pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            pass
        ip(node, pod, "link", "set", card, "netns", str(keeper.pid))
        yield
    finally:
        keeper.send_signal(signal.SIGKILL)
        keeper.wait()


def test_a_link_that_only_looks_alike_is_not_fetched_from_another_namespace(node: TestNode) -> None:
    """Its peer has the same index, but is somewhere else."""
    card = links.get_link(node.host.route, "card0")
    assert card is not None and card.parent_index is not None
    plan = node.plan("card0")
    node.host.route.request(links.delete(card.index))
    with Namespace.create() as other, Namespace.create() as far, NetlinkSocket(namespace_fd=other.fd) as route:
        alike = {"index": card.index, "peer_index": card.parent_index, "mac": card.mac}
        route.request(taking._veth("card0", **alike, peer_fd=far.fd))
        problems = node.cards.bring_home(plan.uid)
        assert problems == ["card0 is not on this node any more: it was destroyed with the pod's namespace"]
        assert links.get_link(route, "card0") is not None


def test_a_virtual_card_that_the_pod_deletes_is_said_and_its_sibling_comes_home(node: TestNode) -> None:
    before = node.picture("card1")
    pod = in_pod(node, "card0", "card1")
    ip(node, pod, "link", "delete", "card0")
    assert node.cards.bring_home("uid-1") == [
        "card0 is not on this node any more: it was destroyed with the pod's namespace"
    ]
    assert node.picture("card1") == before


def test_hardware_that_nobody_finds_is_not_given_up(node: TestNode) -> None:
    """A card that says it is a PCI function: its netdev is somewhere as long as the function has a driver."""
    device = node.plan("card0").devices[0]
    assert device.found is not None
    address = "0000:01:00.0"
    row = msgspec.structs.replace(
        device.found.link, kind="device", parent_device=address, permanent_mac="02:00:00:00:00:01"
    )
    found = msgspec.structs.replace(device.found, link=row, pci=address)
    function = node.folder / "sys/devices/pci0000:00" / address
    function.mkdir(parents=True)
    (function / "class").write_text("0x020000\n")
    (node.folder / "sys/bus/pci/devices").mkdir(parents=True)
    (node.folder / "sys/bus/pci/devices" / address).symlink_to(f"../../../devices/pci0000:00/{address}")
    node.host.sysfs_root = str(node.folder / "sys")
    fetch(node.host, (found, device.wanted), last_resort=True)  # no driver: it has no netdev anywhere
    (node.folder / "sys/bus/pci/drivers/e1000e").mkdir(parents=True)
    (function / "driver").symlink_to("../../../bus/pci/drivers/e1000e")
    fetch(node.host, (found, device.wanted), last_resort=False)
    node.host.may_rebind = False
    with pytest.raises(CardAway, match=r"may not be rebound \(--rebind-lost-cards\)"):
        fetch(node.host, (found, device.wanted), last_resort=True)
    node.host.may_rebind = True
    with pytest.raises(CardAway, match="is sysfs mounted writable"):
        fetch(node.host, (found, device.wanted), last_resort=True)


def test_a_veth_is_known_by_its_peer_alone(node: TestNode) -> None:
    plan = node.plan("card0")
    found, wanted = plan.devices[0].found, plan.devices[0].wanted
    assert found is not None
    pod = node.pod()
    with PodNamespace.open(pod.path) as inside:
        inside.route.request(virtual_links.create_veth("card0", "other"))
        assert find_in_pod(inside, [(found, wanted)], node.host) == [None]
