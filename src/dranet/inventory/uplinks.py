"""The links a node lives by: taking one of them away takes the node away.

An uplink carries a default route of the node (the standby ones too), its address, or its way to the API server. With it
go the links it stands on: ports of an uplink bridge, members of an uplink bond, the VF under a Hyper-V link, the link
below an uplink VLAN. Links that merely stand on an uplink (a macvlan, another VLAN) can be given away. All of this
changes while a node runs, so it is worked out anew at every look.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_interface

import msgspec

from dranet.kernel.addresses import Address
from dranet.kernel.links import Link
from dranet.kernel.routes import PROTOCOL_RA, TABLE_DEFAULT, TABLE_MAIN, TYPE_UNICAST, Route
from dranet.kernel.rules import ACTION_TO_TABLE, FLAG_INVERT, Rule


class Lifelines(msgspec.Struct, frozen=True):
    """What the node must be able to reach, and be reached by; what is not known is empty."""

    node_addresses: tuple[str, ...] = ()
    """The InternalIPs of the Node object."""
    api_servers: tuple[str, ...] = ()
    """Addresses of the API server, as the driver itself reaches it."""


class Tables(msgspec.Struct, frozen=True):
    """The kernel's tables that tell where packets go."""

    links: Sequence[Link]
    routes: Sequence[Route]
    """Those of `list_wide_routes`."""
    rules: Sequence[Rule] = ()
    addresses: Sequence[Address] = ()


def uplinks(links: Sequence[Link], roots: Mapping[int, str]) -> dict[int, str]:
    """Index of every link to leave alone, with the reason in words: the roots, and what they stand on."""
    by_index = {link.index: link for link in links}
    members: dict[int, list[int]] = {}
    for link in links:
        if link.master:
            members.setdefault(link.master, []).append(link.index)
    found: dict[int, str] = {}
    for index in sorted(roots.keys() & by_index.keys()):
        found[index] = roots[index]
        _add_below(found, by_index, members, index)
    for index in list(found):
        master = by_index[index].master
        if master in by_index:
            found.setdefault(master, f"the uplink {by_index[index].name} is part of it")
    return found


def roots(
    tables: Tables,
    lifelines: Lifelines,
    way_to: Callable[[str], int | None],
    *,
    named: Sequence[str] = (),
    rdma: Container[int] = (),
) -> dict[int, str]:
    """The links that packets of the node leave by. Where the operator has `named` uplinks, default routes say nothing.

    A fabric's routers advertise themselves on RDMA cards, and nobody wants to live by those defaults: they count only
    where nothing else leads out of the node. On other cards they count unless a better default is there: they came
    unasked, so nobody meant them as a standby.
    """
    known = lifeline_links(tables.addresses, lifelines, way_to)
    if named:
        chosen = [link.index for link in tables.links if any(fnmatchcase(link.name, p) for p in named)]
        return dict.fromkeys(chosen, "it is an uplink: --uplink-interfaces names it") | known
    best = _best_metrics(tables.routes)
    meant = [r for r in tables.routes if r.protocol != PROTOCOL_RA or not (_worse(r, best) or _on(rdma, r))]
    return default_route_links(tables, meant) | known or default_route_links(tables, tables.routes)


def _best_metrics(routes: Iterable[Route]) -> dict[tuple[int, int], int]:
    """The lowest metric of the default routes of each family and table."""
    best: dict[tuple[int, int], int] = {}
    for route in routes:
        where = (route.family, route.table)
        best[where] = min(route.metric, best.get(where, route.metric))
    return best


def _worse(route: Route, best: Mapping[tuple[int, int], int]) -> bool:
    return route.metric > best[route.family, route.table]


def _on(cards: Container[int], route: Route) -> bool:
    return any(index in cards for index in _legs(route))


def lifeline_links(
    addresses: Iterable[Address], lifelines: Lifelines, way_to: Callable[[str], int | None]
) -> dict[int, str]:
    """The links of the node's own address and of the way to the API server."""
    found: dict[int, str] = {}
    owners = {address.local: address.index for address in addresses}
    for address in lifelines.api_servers:
        index = owners.get(address) or way_to(address)
        if index:
            found[index] = f"it is an uplink: the way to the API server ({address}) leaves by it"
    for address in lifelines.node_addresses:
        if address in owners:
            found[owners[address]] = f"it is an uplink: the node's address {address} is on it"
    return found


def default_route_links(tables: Tables, routes: Sequence[Route]) -> dict[int, str]:
    """Links of default routes of any metric and their halves, in the main table and those that rules lead others to."""
    by_index = {link.index: link for link in tables.links}
    found: dict[int, str] = {}
    for route in routes:
        if route.type != TYPE_UNICAST:
            continue
        for index in _legs(route):
            link = by_index.get(index)
            if link is not None and _is_asked(route.table, link, tables):
                found.setdefault(index, _reason(route))
    return found


def _reason(route: Route) -> str:
    what = "a default route of the node" if route.is_default else f"the node's route to {route.destination}"
    where = "" if route.table == TABLE_MAIN else f" (table {route.table})"
    return f"it is an uplink: {what}{where} leaves by it"


def _legs(route: Route) -> Iterator[int]:
    yield from (hop.index for hop in route.next_hops)
    if route.index:
        yield route.index


def _is_asked(table: int, link: Link, tables: Tables) -> bool:
    """Whether packets that are not the link's own business are sent by this table."""
    if table in (TABLE_MAIN, TABLE_DEFAULT):
        return True
    leading = [rule for rule in tables.rules if rule.table == table and rule.action == ACTION_TO_TABLE]
    return any(not _is_own(rule, link, tables.addresses) for rule in leading)


def _is_own(rule: Rule, link: Link, addresses: Iterable[Address]) -> bool:
    """A rule for what comes from the link's own address, or through it: cards with a table of their own have such."""
    if rule.flags & FLAG_INVERT:
        return False
    if link.name in (rule.incoming, rule.outgoing):
        return True
    mine = (ip_interface(address.cidr) for address in addresses if address.index == link.index)
    if rule.source is None or rule.source.endswith("/0"):
        return False
    source = ip_interface(rule.source).network
    return any(source == own.network or (source.num_addresses == 1 and source[0] == own.ip) for own in mine)


def _add_below(
    found: dict[int, str], by_index: Mapping[int, Link], members: Mapping[int, Sequence[int]], top: int
) -> None:
    """Everything that ``top`` stands on, however deep."""
    waiting = [top]
    while waiting:
        index = waiting.pop()
        for lower in (*members.get(index, ()), *_standing_on(by_index[index])):
            if lower in by_index and lower not in found:
                found[lower] = f"the uplink {by_index[top].name} stands on it"
                waiting.append(lower)


def _standing_on(link: Link) -> tuple[int, ...]:
    """The link below, or a veth's other end where that is here too."""
    peer = link.parent_index if link.kind == "veth" and link.parent_netnsid is None else None
    lower = link.lower_index or peer
    return (lower,) if lower else ()


def parsed_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """IP addresses in the kernel's spelling; what is none (a host name) is left out."""
    found = []
    for text in texts:
        try:
            found.append(str(ip_address(text)))
        except ValueError:
            continue
    return tuple(found)
