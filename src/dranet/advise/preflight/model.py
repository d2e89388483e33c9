"""Values that the pods of a check exchange as JSON, and that its `-o json` output contains."""

from __future__ import annotations

import msgspec


class Nic(msgspec.Struct, frozen=True):
    """A network interface inside a pod."""

    name: str
    address: str
    mtu: int
    rail: str = ""
    """NICs of the same rail measure with each other. The coordinator sets it if the driver publishes none."""
    gbits: float | None = None
    """Link speed; None if the kernel does not report it."""
    rdma: str = ""
    rdma_port: int = 1
    gid: int | None = None


class Member(msgspec.Struct, frozen=True):
    """One pod of the check."""

    rank: int
    node: str
    nics: tuple[Nic, ...]
    perftest: bool = False
    """Whether its image contains `ib_write_bw`."""


class NicPair(msgspec.Struct, frozen=True):
    """A NIC of the measuring pod and the NIC of another pod that it sends to."""

    local: Nic
    remote: Nic


class Result(msgspec.Struct, frozen=True):
    """What was measured between a pair of NICs; None is what was not measured."""

    reached: bool
    error: str = ""
    """Why the remote NIC was not reached; or, if it was, what could not be measured."""
    path_mtu: int | None = None
    sent: int = 0
    lost: int = 0
    rtt_us: float | None = None
    gbits: float | None = None
    retransmitted: int | None = None
    rdma_gbits: float | None = None


class Task(msgspec.Struct, frozen=True):
    """What a member does next: reach, probe, send, send-all, rdma-serve, rdma-send or done."""

    action: str
    pairs: tuple[NicPair, ...] = ()
    seconds: float = 0.4
    streams: int = 4


class TaskResults(msgspec.Struct, frozen=True):
    """One result for each pair of a task, in the same order."""

    results: tuple[Result, ...] = ()


class Endpoint(msgspec.Struct, frozen=True, order=True):
    """A NIC and its node."""

    node: str
    nic: str

    def __str__(self) -> str:
        return f"NIC {self.nic} on {self.node}"


class Path(msgspec.Struct, frozen=True):
    """A measured pair of NICs."""

    source: Endpoint
    target: Endpoint
    rail: str
    mtu: int
    """Of the sending NIC."""
    result: Result
    round: int = 0
    expected: float | None = None
    """Gbit/s that `dranet plan` expects of the slower of the two NICs."""
    cross_rail: bool = False
    """Whether the target is on another rail. Isolated rails do not reach each other, so silence is not a fault."""


class Total(msgspec.Struct, frozen=True):
    """Throughput of all NICs of a pod at the same time, to one other pod."""

    source: str
    target: str
    gbits: float


class Measurements(msgspec.Struct, frozen=True):
    """Everything that was measured."""

    members: tuple[Member, ...]
    paths: tuple[Path, ...] = ()
    totals: tuple[Total, ...] = ()
    missing: tuple[str, ...] = ()
    """Pods that did not connect, or whose connection was lost, as sentences."""
    notes: tuple[str, ...] = ()
    """What was not measured, and why."""
