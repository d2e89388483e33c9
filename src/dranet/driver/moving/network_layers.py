"""Addresses, routes, rules and neighbours as messages for one link: shared by attach and restore.

Records come from another moment or another namespace; here they get the link's index of now, and an order the kernel
accepts: routes on the link before routes through a gateway.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from socket import AF_INET6

import msgspec

from dranet.kernel import addresses, neighbours, routes
from dranet.kernel.addresses import IFA_F_NODAD, IFA_F_TENTATIVE, Address
from dranet.kernel.codec import Message
from dranet.kernel.neighbours import Neighbour
from dranet.kernel.netlink import NetlinkError
from dranet.kernel.routes import Route


def address_messages(wanted: Iterable[Address], index: int) -> list[Message]:
    """Add addresses; there is no waiting for duplicate detection, the container must be able to use them at once."""
    return [addresses.add(_settled(address, index), replace=True) for address in wanted]


def _settled(address: Address, index: int) -> Address:
    flags = address.flags & ~IFA_F_TENTATIVE
    if address.family == AF_INET6:
        flags |= IFA_F_NODAD
    return msgspec.structs.replace(address, index=index, flags=flags)


def route_messages(wanted: Iterable[Route], old_index: int, index: int) -> list[Message]:
    """Add routes, those on the link first (the wider scope number is the nearer one)."""
    ordered = sorted(wanted, key=lambda route: (-route.scope, route.gateway is not None))
    return [routes.add(_through(route, old_index, index), replace=bool(route.next_hops)) for route in ordered]


def _through(route: Route, old_index: int, index: int) -> Route:
    hops = tuple(msgspec.structs.replace(h, index=index) if h.index == old_index else h for h in route.next_hops)
    out = index if route.index is not None else None
    return msgspec.structs.replace(route, index=out, next_hops=hops)


def neighbour_messages(wanted: Iterable[Neighbour], index: int) -> list[Message]:
    return [neighbours.add(msgspec.structs.replace(entry, index=index), replace=True) for entry in wanted]


def is_failure(error: NetlinkError | None) -> bool:
    """Whether the kernel refused something that was not there already."""
    return error is not None and error.errno != errno.EEXIST


def failures(outcome: Sequence[NetlinkError | None]) -> list[NetlinkError]:
    """What the kernel refused, except what was there already."""
    return [error for error in outcome if error is not None and is_failure(error)]


def raise_first(outcome: Sequence[NetlinkError | None]) -> None:
    """Raise the first refusal of a batch whose steps build on each other."""
    for error in outcome:
        if error is not None:
            raise error
