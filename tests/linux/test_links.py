"""Links: what we read agrees with pyroute2 and `ip`, and what we change is what the kernel then shows."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable

import pytest

from dranet.linux import codec, links, virtual_links
from dranet.linux.codec import Message
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from tests.linux.conftest import MakeNamespace, MakeRoute, ask_pyroute2


def by_name(route: NetlinkSocket, name: str) -> Link:
    found = links.get_link(route, name)
    assert found is not None, f"no link {name}"
    return found


@pytest.fixture
def populated(route: NetlinkSocket, veth: Link) -> NetlinkSocket:
    """A namespace with several kinds of links and settings."""
    wanted = [
        virtual_links.create_bridge("br0"),
        links.create("vx0", "vxlan", codec.u32(1, 77)),
        links.create("mv0", "macvlan", codec.u32(1, 4), parent=veth.index),
        links.change(
            veth.index, mtu=1400, alias="a NIC", txqlen=50, group=7, gso_max_size=40000, gro_ipv4_max_size=9000
        ),
    ]
    assert not any(route.batch(wanted))
    route.request(links.change(by_name(route, "vx0").index, master=by_name(route, "br0").index))
    return route


def test_reading_agrees_with_pyroute2(netns: Namespace, populated: NetlinkSocket) -> None:
    ours = {link.index: link for link in links.list_links(populated)}
    theirs = {found["index"]: found for found in ask_pyroute2(netns, lambda handle: handle.get_links())}
    assert ours.keys() == theirs.keys()
    for index, found in theirs.items():
        link = ours[index]
        info = found.get_attr("IFLA_LINKINFO")
        assert (link.name, link.mtu, link.flags) == (
            found.get_attr("IFLA_IFNAME"),
            found.get_attr("IFLA_MTU"),
            found["flags"],
        )
        assert link.mac == found.get_attr("IFLA_ADDRESS")
        assert link.kind == (info.get_attr("IFLA_INFO_KIND") if info else "device")
        assert link.master == (found.get_attr("IFLA_MASTER") or 0)
        assert link.parent_index == found.get_attr("IFLA_LINK")
        assert link.alias == (found.get_attr("IFLA_IFALIAS") or "")
        assert link.operstate.replace("lower-layer-", "lowerlayer") == found.get_attr("IFLA_OPERSTATE").lower()
        assert (link.txqlen, link.group) == (found.get_attr("IFLA_TXQLEN"), found.get_attr("IFLA_GROUP"))
        assert (link.gso_max_size, link.gro_max_size) == (
            found.get_attr("IFLA_GSO_MAX_SIZE"),
            found.get_attr("IFLA_GRO_MAX_SIZE"),
        )
        assert link.promiscuity == found.get_attr("IFLA_PROMISCUITY")


def test_reading_agrees_with_ip(populated: NetlinkSocket, ip: Callable[..., str]) -> None:
    ours = {link.name: link for link in links.list_links(populated)}
    theirs = {found["ifname"]: found for found in json.loads(ip("-j", "-d", "link"))}
    assert ours.keys() == theirs.keys()
    for name, found in theirs.items():
        link = ours[name]
        assert (link.index, link.mtu, link.mac) == (found["ifindex"], found["mtu"], found["address"])
        assert link.encapsulation == found["link_type"]
        assert (link.gso_max_size, link.gro_max_size) == (found["gso_max_size"], found["gro_max_size"])


def test_links_come_in_order_of_their_index(populated: NetlinkSocket) -> None:
    indexes = [link.index for link in links.list_links(populated)]
    assert indexes == sorted(indexes)


def test_one_link_is_found_by_name_and_by_index(route: NetlinkSocket, veth: Link) -> None:
    assert links.get_link(route, "v0") == links.get_link(route, veth.index)


def test_a_link_is_found_by_its_alternative_name(route: NetlinkSocket, veth: Link, ip: Callable[..., str]) -> None:
    long_name = "a-name-far-longer-than-fifteen"
    ip("link", "property", "add", "dev", "v0", "altname", long_name, "altname", "second")
    found = by_name(route, long_name)
    assert (found.index, found.altnames) == (veth.index, (long_name, "second"))


def test_a_link_that_is_not_there_is_none(route: NetlinkSocket) -> None:
    assert links.get_link(route, "nothere") is None
    assert links.get_link(route, 4711) is None
    assert links.get_link(route, "x" * 500) is None


def test_counters_are_read_only_when_asked_for(route: NetlinkSocket, veth: Link) -> None:
    assert by_name(route, "v0").counters is None
    counted = links.get_link(route, "v0", counters=True)
    assert counted is not None
    assert counted.counters is not None
    assert {link.counters is None for link in links.list_links(route, counters=True)} == {False}


def test_every_change_asked_in_one_message_is_made(route: NetlinkSocket, veth: Link) -> None:
    route.request(links.change(veth.index, up=False))
    route.request(
        links.change(
            veth.index,
            name="card0",
            mtu=1234,
            mac="02:00:00:00:00:2a",
            alias="first",
            gso_max_size=31000,
            gro_max_size=32000,
            gso_ipv4_max_size=33000,
            gro_ipv4_max_size=34000,
            up=True,
        )
    )
    found = by_name(route, "card0")
    assert (found.index, found.mtu, found.mac, found.alias, found.is_up) == (
        veth.index,
        1234,
        "02:00:00:00:00:2a",
        "first",
        True,
    )
    assert (found.gso_max_size, found.gro_max_size) == (31000, 32000)
    if found.gso_ipv4_max_size is not None:  # Linux 6.3 and newer
        assert (found.gso_ipv4_max_size, found.gro_ipv4_max_size) == (33000, 34000)


def test_a_link_moves_with_a_new_name_mtu_and_mac_in_one_request(
    route: NetlinkSocket, veth: Link, make_namespace: MakeNamespace, make_route: MakeRoute
) -> None:
    pod = make_namespace()
    route.request(links.change(veth.index, namespace_fd=pod.fd, name="eth1", mtu=1300, mac="02:00:00:00:00:01"))
    found = by_name(make_route(pod), "eth1")
    assert (found.mtu, found.mac) == (1300, "02:00:00:00:00:01")
    assert links.get_link(route, "v0") is None


def test_a_name_taken_in_the_other_namespace_is_refused_after_the_move(
    route: NetlinkSocket, veth: Link, make_namespace: MakeNamespace, make_route: MakeRoute
) -> None:
    pod = make_namespace()
    inside = make_route(pod)
    inside.request(virtual_links.create_bridge("eth1"))
    with pytest.raises(NetlinkError) as caught:
        route.request(links.change(veth.index, namespace_fd=pod.fd, name="eth1"))
    assert caught.value.errno == errno.EEXIST
    assert links.get_link(route, "v0") is None
    assert by_name(inside, "v0").mac == veth.mac


def test_alternative_names_are_added_and_deleted(route: NetlinkSocket, veth: Link) -> None:
    for name in ("eth0", "a-name-of-more-than-fifteen-letters"):
        route.request(links.add_altname(veth.index, name))
    assert by_name(route, "v0").altnames == ("eth0", "a-name-of-more-than-fifteen-letters")
    route.request(links.delete_altname(veth.index, "eth0"))
    assert by_name(route, "v0").altnames == ("a-name-of-more-than-fifteen-letters",)


def test_broadcast_link_mode_and_segments_are_changed(route: NetlinkSocket, veth: Link) -> None:
    assert (veth.broadcast, veth.link_mode) == ("ff:ff:ff:ff:ff:ff", 0)
    route.request(links.change(veth.index, broadcast="33:33:00:00:00:01", link_mode=1, gso_max_segs=7))
    found = by_name(route, "v0")
    assert (found.broadcast, found.link_mode, found.gso_max_segs) == ("33:33:00:00:00:01", 1, 7)


def test_an_alias_can_be_cleared(route: NetlinkSocket, veth: Link) -> None:
    route.batch([links.change(veth.index, alias="x"), links.change(veth.index, alias="")])
    assert by_name(route, "v0").alias == ""


def test_a_master_is_given_and_taken_away(
    route: NetlinkSocket, veth: Link, create_link: Callable[[Message], Link]
) -> None:
    bridge = create_link(virtual_links.create_bridge("br0"))
    route.request(links.change(veth.index, master=bridge.index))
    assert by_name(route, "v0").master == bridge.index
    route.request(links.change(veth.index, master=0))
    assert by_name(route, "v0").master == 0


def test_deleting_one_end_of_a_pair_deletes_both(route: NetlinkSocket, veth: Link) -> None:
    route.request(links.delete(veth.index))
    assert [link.name for link in links.list_links(route)] == ["lo"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (virtual_links.create_bridge("x0"), "bridge"),
        (links.create("x0", "vxlan", codec.u32(1, 5)), "vxlan"),
        (links.create("x0", "dummy"), "dummy"),
        (virtual_links.create_vrf("x0", 1890), "vrf"),
        (links.create("x0", "bond", codec.u8(1, 1)), "bond"),
        (virtual_links.create_veth("x0", "x1"), "veth"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_virtual_links_of_every_kind_are_made(
    create_link: Callable[[Message], Link], message: Message, kind: str
) -> None:
    assert create_link(message).kind == kind


@pytest.mark.parametrize("kind", ["vlan", "ipvlan", "macvlan"])
def test_children_know_the_link_below_them(create_link: Callable[[Message], Link], veth: Link, kind: str) -> None:
    makers = {
        "vlan": links.create("c0", "vlan", codec.u16(1, 12), parent=veth.index),
        "ipvlan": links.create("c0", "ipvlan", codec.u16(1, 0), parent=veth.index),
        "macvlan": links.create("c0", "macvlan", codec.u32(1, 1), parent=veth.index),
    }
    child = create_link(makers[kind])
    assert (child.kind, child.parent_index) == (kind, veth.index)


def test_the_table_of_a_vrf_is_read(create_link: Callable[[Message], Link]) -> None:
    vrf = create_link(virtual_links.create_vrf("blue", 1890))
    assert virtual_links.vrf_table(vrf.info) == 1890


def test_pyroute2_reads_what_we_write(netns: Namespace, route: NetlinkSocket, veth: Link) -> None:
    route.request(links.change(veth.index, mtu=1300, mac="02:00:00:00:00:33", alias="ours"))
    found = next(iter(ask_pyroute2(netns, lambda handle: handle.get_links(veth.index))))
    assert (found.get_attr("IFLA_MTU"), found.get_attr("IFLA_ADDRESS")) == (1300, "02:00:00:00:00:33")
    assert found.get_attr("IFLA_IFALIAS") == "ours"


def test_a_thousand_links_with_odd_names_are_read(route: NetlinkSocket) -> None:
    names = [f"\u00e9{n}@!\U0001f600" if n % 2 else f"a{n}.b;c-d_e"[:15] for n in range(500)]
    assert not any(route.batch([virtual_links.create_veth(name, f"peer{n}") for n, name in enumerate(names)]))
    found = {link.name for link in links.list_links(route)}
    assert found == {"lo", *names, *(f"peer{n}" for n in range(500))}
