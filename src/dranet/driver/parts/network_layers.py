"""Addresses, routes, rules and neighbours as messages for one link: for every part that configures an interface.

Rows come from another moment or another namespace; here they get the link's index of now, and an order the kernel
accepts: routes on the link before routes through a gateway.
"""

from __future__ import annotations

from collections.abc import Iterable
from socket import AF_INET6

import msgspec

from dranet.driver.records.kernel_rows import AddressRow, NeighbourRow, RouteRow
from dranet.kernel import addresses, neighbours, routes
from dranet.kernel.addresses import IFA_F_NODAD, IFA_F_TENTATIVE
from dranet.kernel.codec import Message
from dranet.kernel.routes import Route


def address_messages(wanted: Iterable[AddressRow], index: int) -> list[Message]:
    """Add addresses; there is no waiting for duplicate detection, the container must be able to use them at once."""
    return [addresses.add(_settled(row, index), replace=True) for row in wanted]


def _settled(row: AddressRow, index: int) -> addresses.Address:
    flags = row.flags & ~IFA_F_TENTATIVE
    if row.family == AF_INET6:
        flags |= IFA_F_NODAD
    return msgspec.structs.replace(row.kernel(), index=index, flags=flags)


def route_messages(wanted: Iterable[RouteRow], old_index: int, index: int) -> list[Message]:
    """Add routes, those on the link first (the wider scope number is the nearer one)."""
    ordered = sorted(wanted, key=lambda route: (-route.scope, route.gateway is not None))
    return [routes.add(_through(row.kernel(), old_index, index), replace=bool(row.next_hops)) for row in ordered]


def _through(route: Route, old_index: int, index: int) -> Route:
    hops = tuple(msgspec.structs.replace(h, index=index) if h.index == old_index else h for h in route.next_hops)
    out = index if route.index is not None else None
    return msgspec.structs.replace(route, index=out, next_hops=hops)


def neighbour_messages(wanted: Iterable[NeighbourRow], index: int) -> list[Message]:
    return [neighbours.add(msgspec.structs.replace(row.kernel(), index=index), replace=True) for row in wanted]
