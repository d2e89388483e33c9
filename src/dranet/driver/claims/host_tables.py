"""One look at the host's network tables for all cards of a prepare call.

Each table is dumped at most once, when first needed: preparing eight cards costs as many requests as preparing one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from socket import AF_INET6

import msgspec

from dranet.driver.claims.plan import DevicePlan, HostSide
from dranet.driver.moving.host import Host, find_at_home
from dranet.kernel import addresses, links, neighbours, routes, rules
from dranet.kernel.addresses import Address
from dranet.kernel.links import Link
from dranet.kernel.neighbours import Neighbour
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.routes import TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, TABLE_UNSPECIFIED, Route
from dranet.kernel.rules import Rule

_KERNELS_OWN_TABLES = {TABLE_UNSPECIFIED, TABLE_DEFAULT, TABLE_MAIN, TABLE_LOCAL}


class HostView:
    """The host's tables as they are while a claim is being prepared."""

    def __init__(self, route: NetlinkSocket, expected: Sequence[int] = ()) -> None:
        """`expected` are the indexes of links that will be asked for: they are read in one conversation."""
        self._route = route
        told = links.get_links(route, expected, settings=True)
        self._expected = {link.index: link for link in told if link is not None}

    def link(self, name: str, index: int = 0) -> Link | None:
        """One link by its name; the index it had last is only a hint."""
        found = self._expected.get(index)
        if found is not None and found.name == name:
            return found
        return links.get_links(self._route, [name], settings=True)[0]

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
        return [entry for entry in neighbours.list_neighbours(self._route) if entry.is_permanent]

    def side(self, link: Link, pci: str | None) -> HostSide:
        """The whole picture of one card, from which it can be restored."""
        found = tuple(route for route in self._routes if route.leaves_by(link.index))
        tables = {route.table for route in found} - _KERNELS_OWN_TABLES
        return HostSide(
            link=link,
            pci=pci,
            addresses=tuple(a for a in self._addresses if a.index == link.index and not _made_by_kernel(a)),
            routes=found,
            rules=tuple(rule for rule in self._rules if rule.table in tables) if tables else (),
            neighbours=tuple(n for n in self._neighbours if n.index == link.index and n.mac),
        )


def seen_again(host: Host, devices: Sequence[DevicePlan]) -> tuple[DevicePlan, ...]:
    """Plans from before a reboot with their cards as the machine has set them up now."""
    view = HostView(host.route)
    return tuple(_seen_again(host, view, device) for device in devices)


def _seen_again(host: Host, view: HostView, device: DevicePlan) -> DevicePlan:
    if device.host is None:
        return device
    (found,) = find_at_home(host, [device])
    card = view.link(found.name) if found else None
    if card is None:
        return device
    kept = {"features": device.host.features, "private_flags": device.host.private_flags}
    return msgspec.structs.replace(device, host=msgspec.structs.replace(view.side(card, device.host.pci), **kept))


def _made_by_kernel(address: Address) -> bool:
    """Link-local and temporary IPv6 addresses, which come back with the link."""
    if address.family != AF_INET6:
        return False
    return address.scope == addresses.SCOPE_LINK or bool(address.flags & addresses.IFA_F_SECONDARY)
