"""One run of a benchmark, as read from a log."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import msgspec

GBYTE = 1e9

_ALGORITHMS = {
    "ring": "Ring",
    "tree": "Tree",
    "nvls": "NVLS",
    "nvlstree": "NVLSTree",
    "pat": "PAT",
    "collnet": "CollNet",
}


class Rate(msgspec.Struct, frozen=True):
    """GB/s as in nccl-tests: algorithm bandwidth and bus bandwidth."""

    algbw: float
    busbw: float


class Row(msgspec.Struct, frozen=True):
    """One message size. Programs without in-place operations have only the other rate."""

    size: int
    out_of_place: Rate
    in_place: Rate | None = None

    @property
    def rates(self) -> tuple[Rate, ...]:
        return (self.out_of_place,) if self.in_place is None else (self.out_of_place, self.in_place)


class Rank(msgspec.Struct, frozen=True):
    """Host and GPU of a rank; a rank without a GPU has no address."""

    number: int
    host: str
    address: str = ""
    """As nccl-tests prints it, without the function: ``0000:8f:00``."""
    product: str = ""


class Evidence(msgspec.Struct, frozen=True):
    """Facts in a log about the data path. Empty means unknown, not healthy."""

    nics: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """NICs by host; the host is empty if the log does not name it."""
    gpus: tuple[str, ...] = ()
    """GPUs by name, if the log has no rank lines."""
    used: frozenset[int] = frozenset()
    """Numbers of the NICs that NCCL channels used."""
    networks: tuple[str, ...] = ()
    """Networks of NCCL: IB, gIB, Socket."""
    direct: tuple[str, ...] = ()
    """Lines that show that GPUDirect RDMA is used."""
    staged: tuple[str, ...] = ()
    """Lines that show that GPUDirect RDMA is off."""
    distance: str = ""
    """PIX to SYS, if the log contains it."""
    interfaces: tuple[str, ...] = ()
    """Interfaces of the socket network."""
    pod_links: tuple[str, ...] = ()
    """Links in the output of ``ip addr`` in the pod."""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    traffic: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    """By host and link, bytes during the run from the counters of the kernel."""
    warnings: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    """Messages of mpirun about lost ranks and hosts."""
    tuned: str = ""
    """The algorithm that NCCL chose for its largest message."""

    @property
    def algorithm(self) -> str:
        """The algorithm in the log: chosen by NCCL, or forced by NCCL_ALGO."""
        forced = self.environment.get("NCCL_ALGO", "").lower()
        return self.tuned or _ALGORITHMS.get(forced, "")


class Run(msgspec.Struct, frozen=True):
    """One run, which may be incomplete."""

    collective: str
    """Such as ``all_reduce`` or ``ib_write_bw``; empty if unknown."""
    ranks: tuple[Rank, ...] = ()
    world: int | None = None
    """Number of ranks; None if unknown. It may be more than the log has rank lines for."""
    rows: tuple[Row, ...] = ()
    sizes: tuple[int, ...] = ()
    """The requested sizes, if the log has them."""
    printed_average: float | None = None
    title: str = ""
    wrong: int = 0
    """Number of wrong results."""
    bidirectional: bool = False
    """Whether the figures of perftest are the sum of both directions."""
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The configuration that nixlbench prints."""
    large_messages: bool = False
    """Whether the average is for large messages only, as in a hand-written table."""
    evidence: Evidence = Evidence()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts in order of their first rank; empty if the log has not all rank lines."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks)) if self.has_all_ranks else ()

    @property
    def has_all_ranks(self) -> bool:
        """Whether there is a line for every rank, as far as the log shows."""
        return self.world is None or len(self.ranks) == self.world

    @property
    def ran_alone(self) -> bool:
        """Whether every process was a job of its own, which moves no data."""
        return self.world == 1 and bool(self.ranks)

    @property
    def moved_nothing(self) -> bool:
        """Whether the bus bandwidth is 0 where the algorithm bandwidth is not."""
        rates = [row.out_of_place for row in self.rows]
        return any(rate.algbw >= 1 for rate in rates) and not any(rate.busbw for rate in rates)

    @property
    def stopped_early(self) -> bool:
        """Whether the run ended before its largest size."""
        return self.printed_average is None and bool(self.rows and self.sizes) and self.rows[-1].size < self.sizes[-1]

    @property
    def average(self) -> float | None:
        """The printed average, which includes rows that a log leaves out; else that of the rows."""
        return self.printed_average if self.printed_average is not None else self.row_average

    @property
    def row_average(self) -> float | None:
        """The mean over all rows, both in place and out of place: nccl-tests' "Avg bus bandwidth"."""
        rates = [rate.busbw for row in self.rows for rate in row.rates]
        return statistics.fmean(rates) if rates else None

    @property
    def peak(self) -> tuple[float, int] | None:
        """The best bus bandwidth and its size."""
        return max(((rate.busbw, row.size) for row in self.rows for rate in row.rates), default=None)
