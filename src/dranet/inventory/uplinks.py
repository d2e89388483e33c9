"""The links a node lives by: taking one of them away takes the node away.

An uplink carries a default route. With it go the links it stands on: ports of an uplink bridge, members of an uplink
bond, the VF under a Hyper-V link, the link below an uplink VLAN. Links that merely stand on an uplink (a macvlan,
another VLAN) can be given away. Routes change while a node runs, so this is worked out anew at every look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from socket import AF_INET, AF_INET6

from dranet.kernel.links import Link
from dranet.kernel.routes import TABLE_MAIN, TYPE_UNICAST, Route


def uplinks(links: Sequence[Link], routes: Iterable[Route]) -> dict[int, str]:
    """Index of every link to leave alone, with the reason in words."""
    by_index = {link.index: link for link in links}
    members: dict[int, list[int]] = {}
    for link in links:
        if link.master:
            members.setdefault(link.master, []).append(link.index)
    found: dict[int, str] = {}
    for index in sorted(default_route_links(routes)):
        if index in by_index:
            found.setdefault(index, "it is an uplink: a default route of the node leaves by it")
            _add_below(found, by_index, members, index)
    for index in list(found):
        master = by_index[index].master
        if master in by_index:
            found.setdefault(master, f"the uplink {by_index[index].name} is part of it")
    return found


def default_route_links(routes: Iterable[Route]) -> set[int]:
    """Links of the main table's default routes with the lowest metric of their family, all legs of multipath ones."""
    defaults = [r for r in routes if r.is_default and r.table == TABLE_MAIN and r.type == TYPE_UNICAST]
    found: set[int] = set()
    for family in (AF_INET, AF_INET6):
        mine = [route for route in defaults if route.family == family]
        best = min((route.metric for route in mine), default=0)
        for route in mine:
            if route.metric == best:
                found |= {hop.index for hop in route.next_hops} or ({route.index} if route.index else set())
    return found


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
    """The link below (or a veth's other end), unless it counts in another namespace."""
    if link.parent_index is None or link.parent_index == link.index or link.parent_netnsid is not None:
        return ()
    return (link.parent_index,)
