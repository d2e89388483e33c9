"""The links that the node itself depends on: taking one away takes the node away.

An uplink carries a default route of the node (also a standby one), its address, or its route to the API server. The
links below it belong to it: ports of an uplink bridge, members of an uplink bond, the VF under a Hyper-V link, the link
below an uplink VLAN. Links that are only stacked on an uplink (a macvlan, another VLAN) can be offered. All of this
changes at run time, so every scan computes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_interface

import msgspec

from dranet.linux.addresses import Address
from dranet.linux.links import Link
from dranet.linux.routes import PROTOCOL_RA, TABLE_DEFAULT, TABLE_MAIN, TYPE_UNICAST, Route
from dranet.linux.rules import ACTION_TO_TABLE, FLAG_INVERT, Rule


class UplinkTargets(msgspec.Struct, frozen=True):
    """Addresses that the node's uplinks must keep reachable; empty where unknown."""

    node_addresses: tuple[str, ...] = ()
    """The InternalIPs of the Node object."""
    api_servers: tuple[str, ...] = ()
    """Addresses of the API server, as the driver reaches it."""


class Tables(msgspec.Struct, frozen=True):
    """The kernel's tables that decide where packets go."""

    links: Sequence[Link]
    routes: Sequence[Route]
    """Those of `list_wide_routes`."""
    rules: Sequence[Rule] = ()
    addresses: Sequence[Address] = ()


def uplink_links(links: Sequence[Link], roots: Mapping[int, str]) -> dict[int, str]:
    """By index, why each uplink stays on the host: the roots, the links below them, and their masters."""
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


def uplink_roots(
    tables: Tables,
    targets: UplinkTargets,
    egress_link: Callable[[str], int | None],
    *,
    named: Sequence[str] = (),
    rdma: Container[int] = (),
) -> dict[int, str]:
    """The links that the node sends its packets through. If the operator `named` uplinks, default routes do not count.

    Routers of a fabric advertise themselves on RDMA NICs: such a default route counts only if the node has no other
    way out. On other NICs an advertised route counts unless a better default route exists: it is not a
    configured standby.
    """
    known = _target_links(tables.addresses, targets, egress_link)
    if named:
        chosen = [link.index for link in tables.links if any(fnmatchcase(link.name, p) for p in named)]
        return dict.fromkeys(chosen, "it is an uplink: --uplink-interfaces names it") | known
    best = _best_metrics(tables.routes)
    configured = [r for r in tables.routes if r.protocol != PROTOCOL_RA or not (_worse(r, best) or _uses_any(rdma, r))]
    return _default_route_links(tables, configured) | known or _default_route_links(tables, tables.routes)


def _best_metrics(routes: Iterable[Route]) -> dict[tuple[int, int], int]:
    """The lowest metric of the default routes of each family and table."""
    best: dict[tuple[int, int], int] = {}
    for route in routes:
        where = (route.family, route.table)
        best[where] = min(route.metric, best.get(where, route.metric))
    return best


def _worse(route: Route, best: Mapping[tuple[int, int], int]) -> bool:
    return route.metric > best[route.family, route.table]


def _uses_any(indexes: Container[int], route: Route) -> bool:
    return any(index in indexes for index in _link_indexes(route))


def _target_links(
    addresses: Iterable[Address], targets: UplinkTargets, egress_link: Callable[[str], int | None]
) -> dict[int, str]:
    """The links of the node's own address and of the route to the API server."""
    found: dict[int, str] = {}
    owners = {address.local: address.index for address in addresses}
    for address in targets.api_servers:
        index = owners.get(address) or egress_link(address)
        if index:
            found[index] = f"it is an uplink: the route to the API server ({address}) uses it"
    for address in targets.node_addresses:
        if address in owners:
            found[owners[address]] = f"it is an uplink: the node's address {address} is on it"
    return found


def _default_route_links(tables: Tables, routes: Sequence[Route]) -> dict[int, str]:
    """Links of default routes of any metric, in the main table and in tables that rules select for foreign packets."""
    by_index = {link.index: link for link in tables.links}
    found: dict[int, str] = {}
    for route in routes:
        if route.type != TYPE_UNICAST:
            continue
        for index in _link_indexes(route):
            link = by_index.get(index)
            if link is not None and _serves_others(route.table, link, tables):
                found.setdefault(index, _reason(route))
    return found


def _reason(route: Route) -> str:
    what = "a default route of the node" if route.is_default else f"the node's route to {route.destination}"
    where = "" if route.table == TABLE_MAIN else f" (table {route.table})"
    return f"it is an uplink: {what}{where} uses it"


def _link_indexes(route: Route) -> Iterator[int]:
    yield from (hop.index for hop in route.next_hops)
    if route.index:
        yield route.index


def _serves_others(table: int, link: Link, tables: Tables) -> bool:
    """Whether packets other than the link's own are routed by this table."""
    if table in (TABLE_MAIN, TABLE_DEFAULT):
        return True
    selecting = [rule for rule in tables.rules if rule.table == table and rule.action == ACTION_TO_TABLE]
    return any(not _is_own(rule, link, tables.addresses) for rule in selecting)


def _is_own(rule: Rule, link: Link, addresses: Iterable[Address]) -> bool:
    """Whether a rule selects only packets of the link's own address or interface: NICs with own tables have one."""
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
    """Adds all links below ``top``."""
    waiting = [top]
    while waiting:
        index = waiting.pop()
        for lower in (*members.get(index, ()), *_links_below(by_index[index])):
            if lower in by_index and lower not in found:
                found[lower] = f"the uplink {by_index[top].name} is stacked on it"
                waiting.append(lower)


def _links_below(link: Link) -> tuple[int, ...]:
    """The link below, or the other end of a veth if it is in this namespace too."""
    peer = link.parent_index if link.kind == "veth" and link.parent_netnsid is None else None
    lower = link.lower_index or peer
    return (lower,) if lower else ()


def parsed_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """IP addresses in the kernel's spelling; other texts (host names) are ignored."""
    found = []
    for text in texts:
        try:
            found.append(str(ip_address(text)))
        except ValueError:
            continue
    return tuple(found)
