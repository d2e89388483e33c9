"""GIDs: the addresses of an RDMA port, and which of them is a card's own.

On RoCE every IP address of the port's interface, and of any interface stacked on it in any namespace, takes two slots
of one table, in the order in which they came. So there is no right index in general ("3" is folklore), and a pod may
see slots that belong to others, which fail when used. The right slot is the one that names the pod's interface, is
RoCE v2 and holds the card's own address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

import msgspec

ROCE_V2 = "RoCE v2"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Gid(msgspec.Struct, frozen=True):
    """One used slot of a port's table."""

    index: int
    value: ipaddress.IPv6Address
    kind: str
    """As the kernel says it: `IB/RoCE v1` or `RoCE v2`."""
    interface: str = ""

    @property
    def text(self) -> str:
        """In the kernel's form: eight groups, all digits. Versions of Python differ in how they shorten it."""
        digits = f"{int(self.value):032x}"
        return ":".join(digits[at : at + 4] for at in range(0, 32, 4))

    @property
    def address(self) -> IpAddress:
        """The IP address it stands for."""
        return self.value.ipv4_mapped or self.value


def own_gid(table: Iterable[Gid], interface: str, addresses: Sequence[IpAddress]) -> Gid | None:
    """The RoCE v2 slot of this interface with one of its addresses, IPv4 first, as NCCL and UCX prefer it.

    Reads the table only as far as the slot of the first address.
    """
    wanted = sorted((a for a in addresses if not a.is_link_local), key=lambda a: a.version)
    found: dict[IpAddress, Gid] = {}
    for gid in table:
        if gid.kind == ROCE_V2 and gid.interface == interface and gid.address in wanted:
            found.setdefault(gid.address, gid)
            if gid.address == wanted[0]:
                break
    return next((found[address] for address in wanted if address in found), None)
