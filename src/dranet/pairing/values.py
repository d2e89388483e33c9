"""The words of a check between pods: cards, members, lanes between cards, and what was seen on a lane.

They travel between pods as JSON and stand so in the result.
"""

from __future__ import annotations

import msgspec


class Card(msgspec.Struct, frozen=True):
    """A card of a pod, as the pod has it."""

    name: str
    address: str
    mtu: int
    rail: str = ""
    """Cards of equal rail measure with each other; empty until all members are known, where nothing published says."""
    gbits: float | None = None
    """Speed of its link; None where the kernel tells none."""
    rdma: str = ""
    rdma_port: int = 1
    gid: int | None = None


class Member(msgspec.Struct, frozen=True):
    """One pod of the check."""

    rank: int
    node: str
    cards: tuple[Card, ...]
    perftest: bool = False
    """Whether its image has `ib_write_bw`."""


class Lane(msgspec.Struct, frozen=True):
    """From a card of the pod that is asked to a card of another one."""

    card: Card
    target: Card


class Seen(msgspec.Struct, frozen=True):
    """What was measured on a lane; None is what was not measured."""

    reached: bool
    trouble: str = ""
    """Why it was not reached; or, of a lane that was, what could not be measured."""
    path_mtu: int | None = None
    sent: int = 0
    lost: int = 0
    rtt_us: float | None = None
    gbits: float | None = None
    retransmitted: int | None = None
    rdma_gbits: float | None = None


class Order(msgspec.Struct, frozen=True):
    """What a member is asked to do: reach, look, send, send-together, rdma-serve, rdma-send or done."""

    do: str
    lanes: tuple[Lane, ...] = ()
    seconds: float = 0.4
    streams: int = 4


class Answer(msgspec.Struct, frozen=True):
    """What came of an order, in the order of its lanes."""

    seen: tuple[Seen, ...] = ()


class End(msgspec.Struct, frozen=True, order=True):
    """A card with the node it is on."""

    node: str
    card: str

    def __str__(self) -> str:
        return f"card {self.card} on {self.node}"


class Path(msgspec.Struct, frozen=True):
    """A lane with the names of its ends, and what was seen on it."""

    source: End
    target: End
    rail: str
    mtu: int
    """Of the sending card."""
    seen: Seen
    round: int = 0
    expected: float | None = None
    """Gbit/s that `plan` reckons with for the slower of the two cards."""
    crossing: bool = False
    """Whether it goes to another rail, which is no fault if it does not answer."""


class Total(msgspec.Struct, frozen=True):
    """All cards of a pod at once, to one other pod."""

    source: str
    target: str
    gbits: float


class Outcome(msgspec.Struct, frozen=True):
    """All that was measured, before anybody judges it."""

    members: tuple[Member, ...]
    paths: tuple[Path, ...] = ()
    totals: tuple[Total, ...] = ()
    absent: tuple[str, ...] = ()
    """Members that never came, or were lost on the way, in words."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why."""
