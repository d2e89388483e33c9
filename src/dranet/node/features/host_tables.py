"""The host's network tables, read once for all devices of a call.

Each table is dumped at most once, at first use: preparing eight devices costs as many requests as preparing one.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from socket import AF_INET6

from dranet.linux import addresses, links, neighbours, nexthops, routes, rules
from dranet.linux.addresses import Address
from dranet.linux.ethtool import EVERYTHING, LinkSettings
from dranet.linux.links import Link
from dranet.linux.namespaces import run_in_place
from dranet.linux.neighbours import Neighbour
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.nexthops import Nexthop
from dranet.linux.routes import TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, TABLE_UNSPECIFIED, Route
from dranet.linux.rules import Rule
from dranet.linux.traffic import bpf, configuration, tc
from dranet.linux.traffic.tc import Qdisc
from dranet.node.namespaces import Host
from dranet.node.records.kernel_rows import AddressRow, LinkRow, NeighbourRow, NexthopRow, RouteRow, RuleRow
from dranet.node.records.plan import DevicePlan, HostState

_KERNEL_TABLES = {TABLE_UNSPECIFIED, TABLE_DEFAULT, TABLE_MAIN, TABLE_LOCAL}


class HostTables:
    """The host's tables, each as of its first use."""

    def __init__(self, route: NetlinkSocket, expected: Sequence[int] = (), others: Sequence[DevicePlan] = ()) -> None:
        """`expected` are the indexes of the links that will be read: one batch reads them all.

        `others` are the devices of other claims on this node, some of which may share a parent.
        """
        self._route = route
        self.others = tuple(others)
        self._ethtool_settings: dict[Sequence[str], dict[int, LinkSettings]] = {}
        self._programs: list[bpf.Attachment] | None = None
        self._indexes = tuple(expected)

    @cached_property
    def _expected(self) -> dict[int, Link]:
        found = links.get_links(self._route, self._indexes, settings=True) if self._indexes else []
        return {link.index: link for link in found if link is not None}

    def ethtool_settings(self, host: Host, index: int, what: tuple[str, ...] = EVERYTHING) -> LinkSettings:
        """The ethtool settings of a link; the first call reads those of all expected links in one batch."""
        if what not in self._ethtool_settings:
            self._ethtool_settings[what] = host.ethtool.read_settings(self._indexes, what)
        return self._ethtool_settings[what][index]

    def programs(self, host: Host, index: int) -> list[bpf.Attachment]:
        """The TCX programs of a link, read in the same way."""
        if self._programs is None:
            self._programs = run_in_place(host.namespace.fd, lambda: bpf.attachments(self._indexes))
        return [one for one in self._programs if one.index == index]

    def link(self, name: str, index: int = 0) -> Link | None:
        """One link by its name; the index it had last is only a hint."""
        found = self._expected.get(index)
        if found is not None and found.name == name:
            return found
        return links.get_links(self._route, [name], settings=True)[0]

    def link_at(self, index: int) -> Link | None:
        """One link by its index."""
        return links.get_link(self._route, index)

    @cached_property
    def _addresses(self) -> list[Address]:
        return addresses.list_addresses(self._route)

    @cached_property
    def _routes(self) -> list[Route]:
        known = {one.id: one for one in self._nexthops}
        return [nexthops.resolve(route, known) for route in routes.list_configured_routes(self._route)]

    @cached_property
    def _nexthops(self) -> list[Nexthop]:
        return nexthops.list_nexthops(self._route)

    @cached_property
    def _rules(self) -> list[Rule]:
        return rules.list_rules(self._route)

    @cached_property
    def _neighbours(self) -> list[Neighbour]:
        """Those that were configured: permanent ones, those without ARP, and proxy entries."""
        fixed = neighbours.NUD_PERMANENT | neighbours.NUD_NOARP
        found = [one for one in neighbours.list_neighbours(self._route, states=fixed) if one.mac]
        return found + neighbours.list_neighbours(self._route, proxies=True)

    def addresses_except(self, index: int) -> set[str]:
        """The IP addresses of all links but one."""
        return {address.local for address in self._addresses if address.index != index}

    @property
    def gateways(self) -> set[str]:
        """The next hops of the host's routes."""
        hops = (hop.gateway for route in self._routes for hop in route.next_hops)
        return {gateway for gateway in (*(route.gateway for route in self._routes), *hops) if gateway}

    def macs_near(self, index: int, *, except_link: int) -> dict[str, str]:
        """The hardware addresses of all links but one, and of the neighbours of a link, each with its user."""
        near = [n for n in neighbours.list_neighbours(self._route) if n.index == index and n.mac]
        found = {neighbour.mac: f"neighbour {neighbour.destination}" for neighbour in near}
        return found | {link.mac: link.name for link in links.list_links(self._route) if link.index != except_link}

    @cached_property
    def disciplines(self) -> list[Qdisc]:
        """The queueing disciplines that were configured, without the kernel's defaults."""
        return [one for one in tc.list_qdiscs(self._route) if one.is_configured]

    def unrestorable_traffic_control(self, index: int) -> str:
        """What of a link's traffic control a move would destroy for good; a link without any costs no request."""
        if not any(one.index == index for one in self.disciplines):
            return ""
        return configuration.unrestorable(self._route, index)

    @cached_property
    def cidrs(self) -> Mapping[int, set[str]]:
        """The addresses of every link, in `address/prefix` form, by its index."""
        found: defaultdict[int, set[str]] = defaultdict(set)
        for address in self._addresses:
            found[address.index].add(address.cidr)
        return found

    @cached_property
    def rules(self) -> set[Rule]:
        return set(self._rules)

    def host_state(self, link: Link, pci: str | None) -> HostState:
        """The state of one link, from which it can be restored."""
        leaving = [route for route in self._routes if route.leaves_by(link.index)]
        tables = {route.table for route in leaving} - _KERNEL_TABLES
        own = [a for a in self._addresses if a.index == link.index and not _is_added_by_kernel(a)]
        return HostState(
            link=LinkRow.of(link),
            pci=pci,
            addresses=tuple(map(AddressRow.of, own)),
            routes=tuple(map(RouteRow.of, leaving)),
            rules=tuple(RuleRow.of(rule) for rule in self._rules if rule.table in tables) if tables else (),
            neighbours=tuple(NeighbourRow.of(n) for n in self._neighbours if _is_configured_on(link, n)),
            nexthops=tuple(map(NexthopRow.of, nexthops.of_link(link.index, self._nexthops))),
        )


def _is_configured_on(link: Link, entry: Neighbour) -> bool:
    """The kernel adds entries without ARP for multicast and broadcast addresses, and for all on a link without ARP."""
    if entry.index != link.index:
        return False
    made_by_kernel = link.flags & links.IFF_NOARP or _is_multicast(entry) or entry.mac == link.broadcast
    return entry.is_permanent or entry.is_proxy or not made_by_kernel


def _is_multicast(entry: Neighbour) -> bool:
    return ipaddress.ip_address(entry.destination).is_multicast


def _is_added_by_kernel(address: Address) -> bool:
    """Link-local and temporary IPv6 addresses, which the kernel adds again when the link comes up."""
    if address.family != AF_INET6:
        return False
    return address.scope == addresses.SCOPE_LINK or bool(address.flags & addresses.IFA_F_SECONDARY)
