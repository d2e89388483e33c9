"""One run of a benchmark as its log tells it, whichever program wrote the log."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

import msgspec

GBYTE = 1e9

_ALGORITHMS = {"ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvlstree": "NVLSTree"}


class Rate(msgspec.Struct, frozen=True):
    """GB/s as nccl-tests counts: what the caller saw, and what crossed the busiest wire."""

    algbw: float
    busbw: float


class Row(msgspec.Struct, frozen=True):
    """One message size. Programs that do not tell in place from out of place have only the latter."""

    size: int
    out_of_place: Rate
    in_place: Rate | None = None

    @property
    def rates(self) -> tuple[Rate, ...]:
        """All that was measured at this size."""
        return (self.out_of_place,) if self.in_place is None else (self.out_of_place, self.in_place)


class Rank(msgspec.Struct, frozen=True):
    """Where one rank ran, and on which GPU; a rank without a GPU has no address."""

    number: int
    host: str
    address: str = ""
    """As nccl-tests prints it, without the function: ``0000:8f:00``."""
    product: str = ""


class Evidence(msgspec.Struct, frozen=True):
    """What a log says of the way the data took. Empty means that it says nothing, never that all is well."""

    cards: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """Cards each host had in reach; the host is empty where the log does not name one."""
    gpus: tuple[str, ...] = ()
    """GPUs by name, where the log has no rank lines."""
    used: frozenset[int] = frozenset()
    """Cards that channels went through, by NCCL's number."""
    networks: tuple[str, ...] = ()
    """NCCL's networks: IB, gIB, Socket."""
    direct: tuple[str, ...] = ()
    """Lines that show GPUDirect RDMA at work."""
    staged: tuple[str, ...] = ()
    """Lines that show GPUDirect RDMA off."""
    distance: str = ""
    """PIX to SYS, where the log gives the class itself."""
    interfaces: tuple[str, ...] = ()
    """Interfaces of the socket network."""
    pod_links: tuple[str, ...] = ()
    """Links that ``ip addr`` showed in the pod."""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    traffic: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    """By host, bytes each link carried during the run, as the kernel counted."""
    warnings: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    """What mpirun said of ranks and hosts it lost."""
    tuned: str = ""
    """The algorithm NCCL said it chose for its largest message."""

    @property
    def algorithm(self) -> str:
        """The algorithm that ran, where the log names it: chosen by NCCL, or the only one its settings leave."""
        forced = self.environment.get("NCCL_ALGO", "").lower()
        return self.tuned or _ALGORITHMS.get(forced, "")


class Run(msgspec.Struct, frozen=True):
    """One run, complete or not."""

    collective: str
    """``all_reduce``, ``ib_write_bw``; empty where nothing tells."""
    ranks: tuple[Rank, ...] = ()
    world: int | None = None
    """How many ranks; None where nothing tells."""
    rows: tuple[Row, ...] = ()
    sizes: tuple[int, ...] = ()
    """The sizes that were asked for, where the log says so."""
    printed_average: float | None = None
    title: str = ""
    wrong: int = 0
    """Results that were not what they should have been."""
    large_messages: bool = False
    """Whether the average stands for large messages alone, as in a hand-made summary."""
    evidence: Evidence = Evidence()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts in order of their first rank."""
        return tuple(dict.fromkeys(rank.host for rank in self.ranks))

    @property
    def stopped_early(self) -> bool:
        """Whether larger sizes were asked for than the last one, and no average was printed."""
        return self.printed_average is None and bool(self.rows and self.sizes) and self.rows[-1].size < self.sizes[-1]

    @property
    def average(self) -> float | None:
        """As printed, which knows of rows that a log leaves out; else over the rows there are."""
        return self.printed_average if self.printed_average is not None else self.row_average

    @property
    def row_average(self) -> float | None:
        """The mean over all rows, in place and out of place alike: nccl-tests' "Avg bus bandwidth"."""
        rates = [rate.busbw for row in self.rows for rate in row.rates]
        return statistics.fmean(rates) if rates else None

    @property
    def peak(self) -> tuple[float, int] | None:
        """The best bus bandwidth and the size it was reached at."""
        return max(((rate.busbw, row.size) for row in self.rows for rate in row.rates), default=None)
