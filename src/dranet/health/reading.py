"""What one look at a card shows: values only, each None where the kernel does not say.

Many machines say little: virtual functions and virtual machines hide PCIe links, a link that is down has no speed. A
check that needs a value that is not there has no opinion.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dranet.model.faults import FaultKind


class PcieLink(msgspec.Struct, frozen=True):
    """Speed in GT/s and lanes."""

    speed: float
    width: int

    def is_below(self, other: PcieLink) -> bool:
        return self.speed < other.speed or self.width < other.width

    def __str__(self) -> str:
        return f"{self.speed:g} GT/s x{self.width}"


class CardReading(msgspec.Struct, frozen=True):
    """One card at one moment."""

    device: str
    at: float
    """Monotonic seconds: differences of counters need a time that is never set back."""
    model: str = ""
    """Vendor and device id: siblings are cards of one model."""
    holder: str = ""
    """The claim that has it; empty on the node. A card that changes hands has another's MTU."""
    moves: int = 0
    """How many moves the driver had begun and ended: odd for a card on its way, which takes its link down and up."""
    certain: tuple[tuple[FaultKind, str], ...] = ()
    """What whoever looked is certain of: no carrier, no active port, no driver, in words."""
    interface: str = ""
    is_up: bool = False
    speed_mbps: int | None = None
    mtu: int | None = None
    carrier_changes: int | None = None
    pcie: PcieLink | None = None
    pcie_best: PcieLink | None = None
    """The most that card and slot can do together."""
    rdma_device: str = ""
    firmware: str = ""
    has_address: bool = False
    has_gid: bool | None = None
    """None for what has no GIDs by address: InfiniBand, and devices whose table cannot be read."""
    counters: Mapping[str, int] = msgspec.field(default_factory=dict)
    traffic: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Bytes, drops and congestion of a card that a claim has: told as metrics, never judged."""
    no_gpudirect: str = ""
    """Why it cannot reach the memory of the machine's GPUs by itself."""

    def is_where(self, other: CardReading) -> bool:
        """Whether the card has neither moved nor changed hands between the two readings."""
        return (self.holder, self.moves) == (other.holder, other.moves)
