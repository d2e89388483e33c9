"""GID tables of RDMA ports, from sysfs, and which GID is an interface's own.

On RoCE, every IP address of the port's interface, and of any interface stacked on it in any namespace, takes two
entries of one table, in the order in which they were added. So no index is right in general ("3" is folklore), and a
pod may see entries of others, which fail when used. The right entry names the pod's interface, is RoCE v2 and has the
interface's own address.

A port has hundreds of entries, and each is a file. The kernel takes the first free one, so the used ones come first:
reading stops at the wanted entry, or after `EMPTY_IN_A_ROW` free ones. An empty entry reads as zeros, or its type and
netdev give EINVAL. The kernel adds entries from a work queue, some time after the netlink reply, so a caller that waits
for one has to poll. In RDMA's exclusive mode only a sysfs that was mounted inside the device's network namespace shows
it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from dranet.linux.sysfs import Sysfs

ROCE_V2 = "RoCE v2"

_IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
EMPTY_IN_A_ROW = 64
"""A longer gap between used entries would need as many addresses that were removed again."""


class Gid(msgspec.Struct, frozen=True):
    """One used entry of a port's GID table."""

    index: int
    value: ipaddress.IPv6Address
    kind: str
    """In the kernel's form: `IB/RoCE v1` or `RoCE v2`."""
    interface: str = ""

    @property
    def text(self) -> str:
        """In the kernel's form: eight groups with all digits. Python versions differ in how they shorten it."""
        digits = f"{int(self.value):032x}"
        return ":".join(digits[at : at + 4] for at in range(0, 32, 4))

    @property
    def address(self) -> _IpAddress:
        """The IP address of the entry."""
        return self.value.ipv4_mapped or self.value


def own_gid(table: Iterable[Gid], interface: str, addresses: Sequence[_IpAddress]) -> Gid | None:
    """The RoCE v2 entry of this interface with one of its addresses, IPv4 first, as NCCL and UCX prefer it.

    Reads the table only up to the entry of the first address.
    """
    wanted = sorted((a for a in addresses if not a.is_link_local), key=lambda a: a.version)
    found: dict[_IpAddress, Gid] = {}
    for gid in table:
        if gid.kind == ROCE_V2 and gid.interface == interface and gid.address in wanted:
            found.setdefault(gid.address, gid)
            if gid.address == wanted[0]:
                break
    return next((found[address] for address in wanted if address in found), None)


def read_gids(sysfs: Sysfs, device: str, port: int = 1) -> Iterator[Gid]:
    """The used entries of a port in order, read lazily; none if the port does not exist."""
    base = f"class/infiniband/{device}/ports/{port}"
    indexes = sorted(int(name) for name in sysfs.entries(base, "gids") if name.isdigit())
    free = 0
    for index in indexes:
        gid = _entry(sysfs, base, index)
        free = 0 if gid else free + 1
        if gid:
            yield gid
        elif free == EMPTY_IN_A_ROW:
            return


def gid_files(device: str, index: int, port: int = 1) -> tuple[str, str, str]:
    """The sysfs paths of an entry's address, type and netdev, for callers that keep the files open."""
    base = f"class/infiniband/{device}/ports/{port}"
    return f"{base}/gids/{index}", f"{base}/gid_attrs/types/{index}", f"{base}/gid_attrs/ndevs/{index}"


def _entry(sysfs: Sysfs, base: str, index: int) -> Gid | None:
    address = parse_gid(sysfs.read(base, "gids", str(index)) or "")
    if address is None:
        return None
    kind = sysfs.read(base, "gid_attrs/types", str(index)) or ""
    return Gid(index, address, kind, sysfs.read(base, "gid_attrs/ndevs", str(index)) or "")


def parse_gid(text: str) -> ipaddress.IPv6Address | None:
    """The content of an entry's address file; None if the entry is unused."""
    try:
        value = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    # Unused entries may contain the port's prefix alone; a GID has an interface part too.
    return value if int(value) & 0xFFFFFFFFFFFFFFFF else None
