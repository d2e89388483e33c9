"""How far apart two devices of one machine are, in the terms of ``nvidia-smi topo -m``.

    PIX   at most one PCIe switch between them
    PXB   several PCIe switches, but not the CPU's host bridge
    PHB   through the host bridge of one PCIe root
    NODE  through two host bridges of one NUMA node
    SYS   through the link between NUMA nodes

A path below ``/sys/devices`` determines all of them. ResourceSlices have only the PCIe root and the NUMA node: then two
devices on one root count as PHB, the farthest possible, and the rest is UNKNOWN, never guessed. A recorded matrix may
contradict paths and NUMA nodes (a GB200 tray prints NODE over two sockets): recorded distances take precedence.
"""

from __future__ import annotations

import enum
from functools import lru_cache

import msgspec

from dranet.core.pci import PciAddress


class Distance(enum.IntEnum):
    """From near to far; UNKNOWN is the farthest, so that a worst case never hides it."""

    PIX = 1
    PXB = 2
    PHB = 3
    NODE = 4
    SYS = 5
    UNKNOWN = 6

    def __str__(self) -> str:
        return self.name


class Position(msgspec.Struct, frozen=True):
    """The position of a device; each value may be unknown."""

    path: str | None = None
    """Below ``/sys/devices``, ending in the PCI address."""
    root: str | None = None
    """The PCIe root, such as ``pci0000:8c``; None where hidden."""
    numa: int | None = None
    recorded: tuple[tuple[str, Distance], ...] = ()
    """Recorded distances that do not follow from the above, by the PCI address of the other device."""


@lru_cache(maxsize=1 << 16)
def distance(a: Position, b: Position) -> Distance:
    """The distance between two positions in one machine."""
    if a.recorded and b.path is not None and (recorded := dict(a.recorded).get(b.path.rpartition("/")[2])):
        return recorded
    if a.root is not None and a.root == b.root:
        return _below_one_root(a.path, b.path)
    if a.numa is None or b.numa is None:
        return Distance.UNKNOWN
    return Distance.NODE if a.numa == b.numa else Distance.SYS


def _below_one_root(a: str | None, b: str | None) -> Distance:
    if a is None or b is None:
        return Distance.PHB
    if a[:-1] == b[:-1]:
        return Distance.PIX  # two functions of one PCI device
    first, second = _steps(a), _steps(b)
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    if shared == 0:
        return Distance.PHB
    # Each device is below its own port of the last shared switch: two steps of its path are its own.
    own = max(len(first), len(second)) - shared
    return Distance.PIX if own <= 2 else Distance.PXB


def _steps(path: str) -> list[str]:
    return [step for step in path.split("/") if PciAddress.find(step) is not None]
