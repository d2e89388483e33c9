"""How far apart two devices of one machine are, in the words of ``nvidia-smi topo -m``.

    PIX   at most one PCIe switch between them
    PXB   several PCIe switches, but the CPU's host bridge is not crossed
    PHB   through the host bridge of one PCIe root
    NODE  through two host bridges of one NUMA node
    SYS   through the link between NUMA nodes

A path below ``/sys/devices`` settles all of them. ResourceSlices carry only the PCIe root and the NUMA node: then two
devices on one root are given as PHB, the farthest they can be, and what cannot be known is UNKNOWN, never guessed.
A recorded matrix may contradict what follows from paths and NUMA nodes (a GB200 tray prints NODE over two sockets): a
place can be told such distances, and they win.
"""

from __future__ import annotations

import enum
from functools import lru_cache

import msgspec

from dranet.model.pci import PciAddress


class Distance(enum.IntEnum):
    """From near to far; UNKNOWN is past them all, so that a worst case never hides it."""

    PIX = 1
    PXB = 2
    PHB = 3
    NODE = 4
    SYS = 5
    UNKNOWN = 6

    def __str__(self) -> str:
        return self.name


class Position(msgspec.Struct, frozen=True):
    """Where a device sits; each part may be unknown."""

    path: str | None = None
    """Below ``/sys/devices``, ending in the PCI address."""
    root: str | None = None
    """The PCIe root, such as ``pci0000:8c``; None where the machine hides it."""
    numa: int | None = None
    told: tuple[tuple[str, Distance], ...] = ()
    """Recorded distances that do not follow from the above, by the other's PCI address."""


@lru_cache(maxsize=1 << 16)
def distance(a: Position, b: Position) -> Distance:
    """The distance between two places of one machine."""
    if a.told and b.path is not None and (recorded := dict(a.told).get(b.path.rpartition("/")[2])):
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
        return Distance.PIX  # two functions of one card
    first, second = _steps(a), _steps(b)
    shared = 0
    while shared < min(len(first), len(second)) and first[shared] == second[shared]:
        shared += 1
    if shared == 0:
        return Distance.PHB
    # Each device hangs below its own port of the last switch they share: two steps of its path are its own.
    own = max(len(first), len(second)) - shared
    return Distance.PIX if own <= 2 else Distance.PXB


def _steps(path: str) -> list[str]:
    return [step for step in path.split("/") if PciAddress.find(step) is not None]
