"""Links, addresses, routes, rules and neighbours as they stand on disk.

The kernel room's own records grow with the kernel; these do not grow by themselves. A new field here has a default, so
that every row ever written can be read, and is written beside the old ones, so that the driver before this one can
read what this one writes (docs/decisions/0004-records.md). `of` takes a picture; `kernel` makes a record of the kernel
room out of it, for the link's index of now.
"""

from __future__ import annotations

from typing import Self

import msgspec

from dranet.kernel.addresses import FOREVER, Address
from dranet.kernel.links import IFF_UP, Link
from dranet.kernel.neighbours import NUD_PERMANENT, Neighbour
from dranet.kernel.routes import Attributes, Route
from dranet.kernel.rules import Rule


class XdpRow(msgspec.Struct, frozen=True, gc=False):
    """An XDP program that was on a link."""

    mode: str
    id: int


class LinkRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A link as it was found. Every field is always written: the first version of this format requires them all.

    New fields are optional and come last: None means that the driver that wrote the row did not look.
    """

    index: int
    name: str
    kind: str = "device"
    flags: int = 0
    mtu: int = 0
    mac: str = ""
    permanent_mac: str = ""
    alias: str = ""
    operstate: str = "unknown"
    encapsulation: str = "ether"
    master: int = 0
    parent_index: int | None = None
    parent_netnsid: int | None = None
    parent_device: str = ""
    parent_bus: str = ""
    gso_max_size: int | None = None
    gro_max_size: int | None = None
    gso_ipv4_max_size: int | None = None
    gro_ipv4_max_size: int | None = None
    num_vf: int | None = None
    altnames: tuple[str, ...] = ()
    promiscuity: int = 0
    txqlen: int = 0
    group: int = 0
    xdp_programs: tuple[XdpRow, ...] = ()
    info: bytes = b""
    counters: None = None
    ipv4_settings: tuple[int, ...] = ()
    ipv6_settings: tuple[int, ...] = ()
    broadcast: str | None = None
    link_mode: int | None = None
    gso_max_segs: int | None = None

    @classmethod
    def of(cls, link: Link) -> Self:
        """The picture of a link; what passed through it does not belong to it."""
        return msgspec.convert(link, cls, from_attributes=True)

    @property
    def is_up(self) -> bool:
        return bool(self.flags & IFF_UP)


class _Row(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Compact: what has its usual value is not written. The usual values are those of the first version, for ever."""


class AddressRow(_Row, frozen=True, gc=False):
    """An address of a link."""

    family: int
    index: int
    local: str
    prefix: int
    peer: str | None = None
    broadcast: str | None = None
    scope: int = 0
    flags: int = 0
    label: str = ""
    preferred: int = FOREVER
    valid: int = FOREVER
    metric: int = 0
    protocol: int = 0

    @classmethod
    def of(cls, address: Address) -> Self:
        return msgspec.convert(address, cls, from_attributes=True)

    def kernel(self) -> Address:
        return msgspec.convert(self, Address, from_attributes=True)

    @property
    def cidr(self) -> str:
        return f"{self.local}/{self.prefix}"


class NextHopRow(_Row, frozen=True, gc=False):
    """One leg of a multipath route."""

    index: int
    gateway: str | None = None
    weight: int = 1
    flags: int = 0
    others: Attributes = ()


class RouteRow(_Row, frozen=True, gc=False):
    """A route through a link."""

    family: int
    destination: str
    index: int | None = None
    gateway: str | None = None
    preferred_source: str | None = None
    source: str | None = None
    table: int = 254
    metric: int = 0
    scope: int = 0
    protocol: int = 3
    type: int = 1
    tos: int = 0
    flags: int = 0
    metrics: Attributes = ()
    next_hops: tuple[NextHopRow, ...] = ()
    expires: int = 0
    others: Attributes = ()

    @classmethod
    def of(cls, route: Route) -> Self:
        return msgspec.convert(route, cls, from_attributes=True)

    def kernel(self) -> Route:
        return msgspec.convert(self, Route, from_attributes=True)

    @property
    def is_default(self) -> bool:
        return self.destination in ("0.0.0.0/0", "::/0")


class RuleRow(_Row, frozen=True, gc=False):
    """A rule that leads to a table with routes through the link."""

    family: int
    priority: int | None = None
    table: int = 254
    source: str | None = None
    destination: str | None = None
    incoming: str = ""
    outgoing: str = ""
    mark: int = 0
    mark_mask: int | None = None
    action: int = 1
    flags: int = 0
    tos: int = 0
    protocol: int = 0
    suppress_prefix_length: int | None = None
    others: Attributes = ()

    @classmethod
    def of(cls, rule: Rule) -> Self:
        return msgspec.convert(rule, cls, from_attributes=True)

    def kernel(self) -> Rule:
        return msgspec.convert(self, Rule, from_attributes=True)


class NeighbourRow(_Row, frozen=True, gc=False):
    """A permanent neighbour of a link."""

    family: int
    index: int
    destination: str
    mac: str = ""
    state: int = NUD_PERMANENT
    flags: int = 0
    type: int = 0
    protocol: int = 0
    extended_flags: int = 0

    @classmethod
    def of(cls, neighbour: Neighbour) -> Self:
        return msgspec.convert(neighbour, cls, from_attributes=True)

    def kernel(self) -> Neighbour:
        return msgspec.convert(self, Neighbour, from_attributes=True)
