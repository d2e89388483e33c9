"""Routes: reading and writing agree with pyroute2, and any route can be put back as it was found."""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dranet.linux import addresses, links, routes
from dranet.linux.events import Change, Monitor
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.routes import NextHop, Route
from tests.linux.conftest import ask_pyroute2

V4, V6 = socket.AF_INET, socket.AF_INET6


def wanted(first: int, second: int) -> list[Route]:
    """One route of every sort, gateways reachable through what comes before."""
    hops = (NextHop(index=first, gateway="10.1.0.8"), NextHop(index=second, gateway="10.2.0.8", weight=5))
    hops6 = (NextHop(index=first, gateway="fd01::8"), NextHop(index=second, gateway="fd02::8", weight=3))
    return [
        routes.to("10.50.0.0/16", index=first, scope=routes.SCOPE_LINK, protocol=routes.PROTOCOL_STATIC),
        routes.to("10.51.0.0/16", index=first, gateway="10.1.0.9", metric=100, mtu=1300, preferred_source="10.1.0.1"),
        routes.to("10.51.0.0/16", index=first, gateway="10.1.0.9", metric=200),
        routes.to("10.52.0.0/16", index=first, gateway="192.0.2.1", flags=routes.FLAG_ONLINK),
        routes.to("10.53.0.0/16", next_hops=hops),
        routes.to("10.54.0.0/16", index=first, gateway="10.1.0.9", table=100),
        routes.to("10.54.0.0/16", index=first, gateway="10.1.0.9", table=70000, protocol=routes.PROTOCOL_DHCP),
        routes.to("10.55.0.0/16", index=first, gateway="fd01::9"),
        routes.to("10.56.0.0/16", index=first, gateway="10.1.0.9", tos=0x10),
        routes.to("0.0.0.0/0", index=first, gateway="10.1.0.9"),
        routes.to("10.57.0.0/16", type=7),  # unreachable
        routes.to("10.58.0.0/16", type=6, table=100),  # blackhole
        routes.to("fd50::/32", index=first, metric=300, protocol=routes.PROTOCOL_STATIC),
        routes.to("fd51::/32", index=first, gateway="fd01::9", mtu=1400, preferred_source="fd01::1", metric=1024),
        routes.to("fd52::/32", next_hops=hops6, metric=1024),
        routes.to("fd53::/32", index=first, gateway="fd01::9", table=70000, metric=1024),
        routes.to("fd54::/32", index=first, gateway="fd01::9", metric=1024, expires=900),
        routes.to("fd55::/32", index=first, gateway="fd01::9", metric=1024, others=((20, b"\1"),)),  # preferred high
        routes.to("::/0", index=first, gateway="fd01::9", metric=1024),
    ]


@pytest.fixture
def second(route: NetlinkSocket, veth: Link) -> Link:
    found = links.get_link(route, "v1")
    assert found is not None
    return found


@pytest.fixture
def routed(netns: Namespace, route: NetlinkSocket, veth: Link, second: Link) -> NetlinkSocket:
    nodad = addresses.IFA_F_NODAD
    given = [
        addresses.from_cidr("10.1.0.1/24", veth.index),
        addresses.from_cidr("10.2.0.1/24", second.index),
        addresses.from_cidr("fd01::1/64", veth.index, flags=nodad),
        addresses.from_cidr("fd02::1/64", second.index, flags=nodad),
    ]
    with Monitor(frozenset({Change.ROUTE}), netns.fd) as monitor:
        assert not any(route.batch([addresses.add(address) for address in given]))
        while (
            len([r for r in routes.list_routes(route, table=routes.TABLE_LOCAL) if r.family == V6 and r.type == 2]) < 3
        ):
            assert select.select([monitor], [], [], 10)[0], "the kernel did not add its local routes"
            monitor.drain()
    outcome = route.batch([routes.add(entry) for entry in wanted(veth.index, second.index)])
    assert [error for error in outcome if error] == []
    return route


def ours_by_key(route: NetlinkSocket) -> dict[tuple[int, str, int, int, int], Route]:
    return {(r.family, r.destination, r.table, r.metric, r.tos): r for r in routes.list_routes(route)}


def key_of(found: Any) -> tuple[int, str, int, int, int]:
    unset = "::" if found["family"] == V6 else "0.0.0.0"
    destination = f"{found.get_attr('RTA_DST') or unset}/{found['dst_len']}"
    metric = found.get_attr("RTA_PRIORITY") or 0
    return found["family"], destination, found.get_attr("RTA_TABLE"), metric, found["tos"]


@pytest.mark.parametrize("family", [V4, V6])
def test_reading_agrees_with_pyroute2(netns: Namespace, routed: NetlinkSocket, family: int) -> None:
    ours = {key: found for key, found in ours_by_key(routed).items() if key[0] == family}
    theirs = {key_of(found): found for found in ask_pyroute2(netns, lambda handle: handle.get_routes(family=family))}
    assert ours.keys() == theirs.keys()
    for key, found in theirs.items():
        route = ours[key]
        assert (route.scope, route.protocol, route.type) == (found["scope"], found["proto"], found["type"])
        assert route.index == found.get_attr("RTA_OIF")
        assert route.preferred_source == found.get_attr("RTA_PREFSRC")
        if found.get_attr("RTA_VIA") is None:
            assert route.gateway == found.get_attr("RTA_GATEWAY")
        legs = [
            (hop["oif"], hop.get_attr("RTA_GATEWAY"), hop["hops"] + 1) for hop in found.get_attr("RTA_MULTIPATH") or ()
        ]
        assert [(hop.index, hop.gateway, hop.weight) for hop in route.next_hops] == legs
        metrics = found.get_attr("RTA_METRICS")
        assert route.mtu == (metrics.get_attr("RTAX_MTU") if metrics else None)


def test_every_field_is_read_back_as_it_was_written(routed: NetlinkSocket, veth: Link, second: Link) -> None:
    found = ours_by_key(routed)
    for entry in wanted(veth.index, second.index):
        read = found[(entry.family, entry.destination, entry.table, entry.metric, entry.tos)]
        compared = [f for f in Route.__struct_fields__ if f not in ("flags", "expires", "index", "next_hops", "metric")]
        assert {f: getattr(read, f) for f in compared} == {f: getattr(entry, f) for f in compared}
        assert read.leaves_by(veth.index) == entry.leaves_by(veth.index)
        assert [(h.index, h.gateway, h.weight) for h in read.next_hops] == [
            (h.index, h.gateway, h.weight) for h in entry.next_hops
        ]
        assert read.flags & routes.FLAG_ONLINK == entry.flags & routes.FLAG_ONLINK
        assert (read.expires > 0) == (entry.expires > 0)


def test_all_routes_are_put_back_exactly_as_they_were_found(routed: NetlinkSocket) -> None:
    def mine() -> list[Route]:
        skipped = {routes.TABLE_LOCAL}
        found = [
            r for r in routes.list_routes(routed) if r.table not in skipped and r.protocol != routes.PROTOCOL_KERNEL
        ]
        return [msgspec.structs.replace(r, expires=min(r.expires, 1)) for r in found]

    before = mine()
    originals = [msgspec.structs.replace(r, expires=900 if r.expires else 0) for r in before]
    assert len(originals) == 19
    assert [e for e in routed.batch([routes.delete(r) for r in originals]) if e] == []
    assert mine() == []
    originals.sort(key=lambda r: -r.scope)
    assert [e for e in routed.batch([routes.add(r) for r in originals]) if e] == []
    assert sorted(map(repr, mine())) == sorted(map(repr, before))


def test_a_route_that_is_there_is_refused_and_can_be_replaced(routed: NetlinkSocket, veth: Link) -> None:
    entry = routes.to("0.0.0.0/0", index=veth.index, gateway="10.1.0.10")
    with pytest.raises(NetlinkError) as caught:
        routed.request(routes.add(entry))
    assert caught.value.errno == errno.EEXIST
    routed.request(routes.add(entry, replace=True))
    assert defaults(routed) == ["10.1.0.10"]


def test_a_second_route_of_the_same_kind_can_be_appended(routed: NetlinkSocket, veth: Link) -> None:
    routed.request(routes.add(routes.to("0.0.0.0/0", index=veth.index, gateway="10.1.0.10"), append=True))
    assert defaults(routed) == ["10.1.0.9", "10.1.0.10"]


def defaults(socket: NetlinkSocket) -> list[str | None]:
    return [r.gateway for r in routes.list_routes(socket, family=V4, table=routes.TABLE_MAIN) if r.is_default]


def test_wide_routes_are_defaults_and_their_halves_of_all_tables(routed: NetlinkSocket, veth: Link) -> None:
    before = routes.list_default_like_routes(routed)
    made = ["0.0.0.0/1", "128.0.0.0/1", "2000::/3"]
    wanted = [routes.to(destination, index=veth.index) for destination in made]
    wanted.append(routes.to("0.0.0.0/0", index=veth.index, table=100))
    wanted.append(routes.to("0.0.0.0/0", index=veth.index, metric=5))
    others = [routes.to("0.0.0.0/8", index=veth.index), routes.to("3000::/4", index=veth.index)]
    assert not any(routed.batch([routes.add(route) for route in wanted + others]))
    found = [r for r in routes.list_default_like_routes(routed) if r not in before]
    assert sorted((r.destination, r.table) for r in found) == sorted((r.destination, r.table) for r in wanted)


def test_the_way_to_an_address_is_the_link_a_packet_would_leave_by(routed: NetlinkSocket, veth: Link) -> None:
    way = routes.lookup_route(routed, "192.0.2.77")
    assert way is not None and (way.index, way.gateway) == (veth.index, "10.1.0.9")


@pytest.mark.parametrize("kind", [None, "unreachable", "prohibit", "blackhole"])
def test_there_may_be_no_way(route: NetlinkSocket, kind: str | None) -> None:
    if kind is not None:
        number = {"blackhole": 6, "unreachable": 7, "prohibit": 8}[kind]
        route.request(routes.add(routes.to("192.0.2.0/24", type=number)))
    assert routes.lookup_route(route, "192.0.2.77") is None


def test_one_table_is_singled_out(routed: NetlinkSocket) -> None:
    assert {r.destination for r in routes.list_routes(routed, table=70000)} == {"10.54.0.0/16", "fd53::/32"}
    assert routes.list_routes(routed, table=4711) == []


def test_made_routes_are_all_but_the_kernels_own(routed: NetlinkSocket) -> None:
    kernels = (routes.PROTOCOL_KERNEL, routes.PROTOCOL_RA)
    everything = [msgspec.structs.replace(r, expires=0) for r in routes.list_routes(routed)]
    made = [r for r in everything if r.protocol not in kernels]
    assert [msgspec.structs.replace(r, expires=0) for r in routes.list_configured_routes(routed)] == made
    assert 0 < len(made) < len(everything)


def test_one_family_is_singled_out(routed: NetlinkSocket) -> None:
    assert {r.family for r in routes.list_routes(routed, family=V6)} == {V6}


def test_listing_all_tables_of_both_families_is_one_request(routed: NetlinkSocket) -> None:
    before = routed.requests_sent
    found = routes.list_routes(routed)
    assert routed.requests_sent - before == 1
    assert {r.family for r in found} == {V4, V6}
    assert {100, 254, 255, 70000} <= {r.table for r in found}


def test_pyroute2_writes_what_we_read(netns: Namespace, routed: NetlinkSocket, veth: Link) -> None:
    new = {"dst": "10.90.0.0/16", "gateway": "10.1.0.7", "oif": veth.index, "table": 300, "priority": 9}
    ask_pyroute2(netns, lambda handle: handle.route("add", **new, metrics={"mtu": 1280}))
    (found,) = routes.list_routes(routed, table=300)
    assert (found.destination, found.gateway, found.index) == (new["dst"], new["gateway"], veth.index)
    assert (found.metric, found.mtu) == (9, 1280)


def test_a_route_through_a_nexthop_object_is_put_back(
    routed: NetlinkSocket, veth: Link, ip: Callable[..., str]
) -> None:
    ip("nexthop", "add", "id", "7", "via", "10.1.0.9", "dev", "v0")
    ip("route", "add", "10.60.0.0/16", "nhid", "7")
    (found,) = [r for r in routes.list_routes(routed) if r.destination == "10.60.0.0/16"]
    assert routed.batch([routes.delete(found), routes.add(found)]) == [None, None]
    assert [r for r in routes.list_routes(routed) if r.destination == "10.60.0.0/16"] == [found]


def test_a_route_is_described_in_a_few_words() -> None:
    entry = routes.to("10.0.0.0/8", gateway="10.1.0.1", index=4, table=100)
    assert routes.describe(entry) == "10.0.0.0/8 via 10.1.0.1 on link 4 in table 100"
