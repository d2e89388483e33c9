"""The GID table of an RDMA port, from sysfs: what verbs address a port by.

A port has hundreds of slots and each is a file. The kernel takes the first free one, so those in use come first: who
finds what he wants reads no further, and after `EMPTY_IN_A_ROW` free ones nobody does.
An empty slot reads as zeros, or its type and netdev answer EINVAL. Entries come by a work queue of the kernel, some
time after the netlink answer that caused them, so a reader who waits for one has to look again. In RDMA's exclusive
mode only a sysfs that was mounted inside the device's own network namespace shows it at all.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from dranet.kernel.sysfs import Sysfs
from dranet.model.gids import Gid

EMPTY_IN_A_ROW = 64
"""More free slots than this between two used ones would need as many addresses that were taken away again."""


def read_gids(sysfs: Sysfs, device: str, port: int = 1) -> Iterator[Gid]:
    """The used slots of a port in order, read as they are asked for; none for a port that is not there."""
    base = f"class/infiniband/{device}/ports/{port}"
    indexes = sorted(int(name) for name in sysfs.entries(base, "gids") if name.isdigit())
    free = 0
    for index in indexes:
        gid = _slot(sysfs, base, index)
        free = 0 if gid else free + 1
        if gid:
            yield gid
        elif free == EMPTY_IN_A_ROW:
            return


def slot_files(device: str, index: int, port: int = 1) -> tuple[str, str, str]:
    """Where a slot's address, type and netdev stand, for who keeps the files open."""
    base = f"class/infiniband/{device}/ports/{port}"
    return f"{base}/gids/{index}", f"{base}/gid_attrs/types/{index}", f"{base}/gid_attrs/ndevs/{index}"


def _slot(sysfs: Sysfs, base: str, index: int) -> Gid | None:
    address = address_in(sysfs.read(base, "gids", str(index)) or "")
    if address is None:
        return None
    kind = sysfs.read(base, "gid_attrs/types", str(index)) or ""
    return Gid(index, address, kind, sysfs.read(base, "gid_attrs/ndevs", str(index)) or "")


def address_in(text: str) -> ipaddress.IPv6Address | None:
    """What a slot's address file says; None where nobody uses the slot."""
    try:
        value = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    # A port's prefix alone stands in slots nobody uses; a GID has an interface part too.
    return value if int(value) & 0xFFFFFFFFFFFFFFFF else None
