"""One look at the host's network tables for all cards of a call.

Each table is dumped at most once, when first needed: preparing eight cards costs as many requests as preparing one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from socket import AF_INET6

from dranet.driver.namespaces import Host
from dranet.driver.records.kernel_rows import AddressRow, LinkRow, NeighbourRow, RouteRow, RuleRow
from dranet.driver.records.plan import DevicePlan, Found
from dranet.kernel import addresses, links, neighbours, routes, rules
from dranet.kernel.addresses import Address
from dranet.kernel.ethtool import EVERYTHING, Look
from dranet.kernel.links import Link
from dranet.kernel.namespaces import visit
from dranet.kernel.neighbours import Neighbour
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.routes import TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, TABLE_UNSPECIFIED, Route
from dranet.kernel.rules import Rule
from dranet.kernel.traffic import bpf, tc
from dranet.kernel.traffic.tc import Discipline

_KERNELS_OWN_TABLES = {TABLE_UNSPECIFIED, TABLE_DEFAULT, TABLE_MAIN, TABLE_LOCAL}


class HostTables:
    """The host's tables as they are at the first question about each."""

    def __init__(self, route: NetlinkSocket, expected: Sequence[int] = (), others: Sequence[DevicePlan] = ()) -> None:
        """`expected` are the indexes of links that will be asked for: they are read in one conversation.

        `others` are the devices of other claims on this node, for who shares a card with them.
        """
        self._route = route
        self.others = tuple(others)
        self._looks: dict[Sequence[str], dict[int, Look]] = {}
        self._programs: list[bpf.Attachment] | None = None
        self._indexes = tuple(expected)

    @cached_property
    def _expected(self) -> dict[int, Link]:
        told = links.get_links(self._route, self._indexes, settings=True) if self._indexes else []
        return {link.index: link for link in told if link is not None}

    def looks(self, host: Host, index: int, what: tuple[str, ...] = EVERYTHING) -> Look:
        """What ethtool knows of a link: of all that are expected, in one conversation at the first question."""
        if what not in self._looks:
            self._looks[what] = host.ethtool.looks(self._indexes, what)
        return self._looks[what][index]

    def programs(self, host: Host, index: int) -> list[bpf.Attachment]:
        """TCX programs of a link, asked in the same way."""
        if self._programs is None:
            self._programs = visit(host.namespace.fd, lambda: bpf.attachments(self._indexes))
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
        return routes.list_made_routes(self._route)

    @cached_property
    def _rules(self) -> list[Rule]:
        return rules.list_rules(self._route)

    @cached_property
    def _neighbours(self) -> list[Neighbour]:
        return neighbours.list_neighbours(self._route, states=neighbours.NUD_PERMANENT)

    @cached_property
    def disciplines(self) -> list[Discipline]:
        """The queueing disciplines that somebody has put on links."""
        return [one for one in tc.list_disciplines(self._route) if one.is_made]

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

    def found(self, link: Link, pci: str | None) -> Found:
        """The whole picture of one card, from which it can be restored."""
        leaving = [route for route in self._routes if route.leaves_by(link.index)]
        tables = {route.table for route in leaving} - _KERNELS_OWN_TABLES
        own = [a for a in self._addresses if a.index == link.index and not _made_by_kernel(a)]
        return Found(
            link=LinkRow.of(link),
            pci=pci,
            addresses=tuple(map(AddressRow.of, own)),
            routes=tuple(map(RouteRow.of, leaving)),
            rules=tuple(RuleRow.of(rule) for rule in self._rules if rule.table in tables) if tables else (),
            neighbours=tuple(NeighbourRow.of(n) for n in self._neighbours if n.index == link.index and n.mac),
        )


def _made_by_kernel(address: Address) -> bool:
    """Link-local and temporary IPv6 addresses, which come back with the link."""
    if address.family != AF_INET6:
        return False
    return address.scope == addresses.SCOPE_LINK or bool(address.flags & addresses.IFA_F_SECONDARY)
