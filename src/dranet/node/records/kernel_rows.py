"""Links, addresses, routes, rules and neighbours as the store keeps them.

The records of `dranet.linux` grow with the kernel; these rows do not. A new field here has a default, so that every row
ever written can be read, and comes in addition to the old ones, so that the previous driver can read what this one
writes (docs/contributing/decisions/0004-records.md). `of` makes a row from a kernel record, `kernel` the reverse.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from dranet.linux.addresses import FOREVER, Address
from dranet.linux.links import IFF_UP, Link
from dranet.linux.neighbours import NUD_PERMANENT, Neighbour
from dranet.linux.nexthops import Nexthop
from dranet.linux.routes import Attributes, NextHop, Route, without_nexthop_object
from dranet.linux.rules import Rule

K = TypeVar("K")


class XdpRow(msgspec.Struct, frozen=True, gc=False):
    """An XDP program that was on a link."""

    mode: str
    id: int


class LinkRow(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A link before it was attached. Every field is always written: format 1 requires them all.

    New fields are optional and come last: None means that the driver that wrote the row did not read them.
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
    ipv6_token: str | None = None

    @classmethod
    def of(cls, link: Link) -> Self:
        """The row of a link, without its counters."""
        return msgspec.convert(link, cls, from_attributes=True)

    @property
    def is_up(self) -> bool:
        return bool(self.flags & IFF_UP)


class _Row(msgspec.Struct, Generic[K], frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Compact: default values are not written. The defaults are those of format 1 and never change."""

    kernel_type: ClassVar[type[Any]]

    @classmethod
    def of(cls, record: K) -> Self:
        return msgspec.convert(record, cls, from_attributes=True)

    def kernel(self) -> K:
        record: K = msgspec.convert(self, self.kernel_type, from_attributes=True)
        return record


class AddressRow(_Row[Address], frozen=True, gc=False):
    """An address of a link."""

    kernel_type = Address
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

    @property
    def cidr(self) -> str:
        return f"{self.local}/{self.prefix}"


class NextHopRow(_Row[NextHop], frozen=True, gc=False):
    """One next hop of a multipath route."""

    kernel_type = NextHop
    index: int
    gateway: str | None = None
    weight: int = 1
    flags: int = 0
    others: Attributes = ()


class RouteRow(_Row[Route], frozen=True, gc=False):
    """A route through a link."""

    kernel_type = Route
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

    @property
    def is_default(self) -> bool:
        return self.destination in ("0.0.0.0/0", "::/0")

    def by_itself(self) -> RouteRow:
        """The same route with its own link and gateway instead of a nexthop object."""
        return msgspec.structs.replace(self, others=without_nexthop_object(self.others))


class MemberRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A nexthop object in a group."""

    id: int
    weight: int = 1


class NexthopRow(_Row[Nexthop], frozen=True, gc=False):
    """A nexthop object of a link, or a group with such a one."""

    kernel_type = Nexthop
    id: int
    family: int = 0
    index: int | None = None
    gateway: str | None = None
    protocol: int = 0
    flags: int = 0
    members: tuple[MemberRow, ...] = ()
    others: Attributes = ()


class RuleRow(_Row[Rule], frozen=True, gc=False):
    """A rule for a table with routes through the link."""

    kernel_type = Rule
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


class NeighbourRow(_Row[Neighbour], frozen=True, gc=False):
    """A configured neighbour of a link: permanent, without ARP, or a proxy entry."""

    kernel_type = Neighbour
    family: int
    index: int
    destination: str
    mac: str = ""
    state: int = NUD_PERMANENT
    flags: int = 0
    type: int = 0
    protocol: int = 0
    extended_flags: int = 0
