"""Reads the runs of a log. A log may contain several runs and any other lines.

Prefixes of ``kubectl logs --prefix``, ``mpirun --tag-output``, ``srun --label``, Ray, SkyPilot and timestamps are
removed. Lines outside of tables are read only as evidence. A line that looks like a result but cannot be read is a
warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from dranet.advise.report import nccl_tests, perftest, summary
from dranet.advise.report.nccl_info import EvidenceReader
from dranet.advise.report.runs import Rank, Row, Run

_NOISE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(
    r"(?:\[pod/\S+\] |\[[\w.@-]+,\d+\]<std(?:out|err)>: ?|\[\d+,\d+\]: ?|\([\w.-]+,?(?: rank=\d+,)? pid=\d+[^)]*\) ?"
    r"|\d+: (?=#| {2,}\d)"  # srun --label; `ip addr` has such numbers before names
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S* )"
)


class Log(msgspec.Struct, frozen=True):
    """The runs of a log, and warnings about unreadable results."""

    runs: tuple[Run, ...]
    warnings: tuple[str, ...] = ()
    words: str = ""
    """The text in lower case, with dashes instead of other characters, to find names of machine shapes."""


@dataclass
class _Draft:
    """A run that is being read."""

    collective: str = ""
    ranks: list[Rank] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    a_row: str = ""
    sizes: tuple[int, ...] = ()
    average: float | None = None
    wrong: int = 0
    unit: float | None = None
    """Set inside a table of perftest."""
    in_table: bool = False
    is_perftest: bool = False
    gathered: EvidenceReader = field(default_factory=EvidenceReader)

    def finish(self) -> Run:
        rows = tuple(self.rows)
        world = len(self.ranks) or (2 if self.is_perftest else None)
        return Run(
            self.collective or nccl_tests.guess_collective(rows, self.a_row, world),
            tuple(sorted(self.ranks, key=lambda rank: rank.number)),
            world,
            rows,
            self.sizes,
            self.average,
            wrong=self.wrong,
            evidence=self.gathered.evidence(),
        )


class _Reader:
    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.warnings: list[str] = []
        self.draft: _Draft | None = None
        self.named = ""
        """The collective in a command line, for the next run."""
        self.nodes: int | None = None
        self.table: list[str] | None = None
        self.before = EvidenceReader()
        """Evidence before the next run, which belongs to it."""

    def line(self, number: int, text: str) -> None:
        if self._summary(number, text):
            return
        if name := nccl_tests.NAME.search(text):
            self.named = next(filter(None, name.groups()))
        self.nodes = summary.nodes_named(text) or self.nodes
        self._begin(text)
        if self.draft is None:
            self.before.read(text)
            return
        if not self._figures(number, text, self.draft):
            self.draft.gathered.read(text)

    def close(self) -> None:
        if self.draft is not None:
            self.runs.append(self.draft.finish())
            self.draft = None

    def _begin(self, text: str) -> None:
        """Start a run at its first line, or at a table without the usual lines before it."""
        if program := perftest.read_title(text):
            self._open(_Draft(program, is_perftest=True))
        elif nccl_tests.SETTINGS.match(text) or (self._is_complete() and nccl_tests.HEADER.match(text)):
            self._open(_Draft(self.named, sizes=nccl_tests.read_sweep(text) or ()))
            self.named = ""
        elif self._is_complete() and perftest.HEADER.match(text):
            self._open(_Draft("ib_write_bw", is_perftest=True))
        elif self.draft is not None and self.named and not self.draft.collective and not self.draft.rows:
            self.draft.collective = self.named

    def _open(self, draft: _Draft) -> None:
        self.close()
        draft.gathered, self.before = self.before, EvidenceReader()
        self.draft = draft

    def _is_complete(self) -> bool:
        return self.draft is None or self.draft.average is not None

    def _figures(self, number: int, text: str, draft: _Draft) -> bool:
        """Read the output of the benchmark itself; False for other lines."""
        if draft.is_perftest:
            return self._perftest(text, draft)
        if rank := nccl_tests.read_rank(text):
            draft.ranks.append(rank)
        elif nccl_tests.HEADER.match(text):
            draft.in_table = True
        elif average := nccl_tests.AVERAGE.match(text):
            draft.average, draft.in_table = float(average[1]), False
        elif outside := nccl_tests.OUT_OF_BOUNDS.match(text):
            draft.wrong = max(draft.wrong, int(outside[1]))
        elif draft.in_table and (row := nccl_tests.read_row(text)):
            draft.rows.append(row[0])
            draft.wrong += row[1]
            draft.a_row = text
        elif draft.in_table and nccl_tests.LIKE_A_ROW.match(text):
            self.warnings.append(f"line {number}: cannot read this result: {text.strip()}")
        else:
            return False
        return True

    def _perftest(self, text: str, draft: _Draft) -> bool:
        if device := perftest.DEVICE.search(text):
            draft.gathered.nics.setdefault("", {})[device[1]] = None
        elif unit := perftest.read_unit(text):
            draft.unit = unit
        elif draft.unit and (row := perftest.read_row(text, draft.unit)):
            draft.rows.append(row)
        else:
            return False
        return True

    def _summary(self, number: int, text: str) -> bool:
        row = summary.cells(text)
        if row is None:
            self.table = None
        elif self.table is None:
            self.table = row if summary.is_header(row) else None
        elif not summary.is_rule(row):
            if run := summary.read_run(self.table, row, self.named, self.nodes):
                self.close()
                self.runs.append(run)
            else:
                self.warnings.append(f"line {number}: no bus bandwidth in this row: {text.strip()}")
        return self.table is not None


def read_log(text: str) -> Log:
    """All runs in order. A log of NCCL without a table is a run without figures."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        reader.line(number, clean(line))
    reader.close()
    if not reader.runs and reader.before.has_any():
        reader.runs.append(Run(reader.named, evidence=reader.before.evidence()))
    return Log(tuple(reader.runs), tuple(reader.warnings), _searchable(text.splitlines()))


def clean(line: str) -> str:
    """A line without colours and without prefixes of log collectors."""
    text = _NOISE.sub("", line)
    while found := _PREFIX.match(text):
        text = text[found.end() :]
    return text


def _searchable(lines: Iterable[str]) -> str:
    return "\n".join(re.sub(r"[^a-z0-9]+", "-", line.lower()) for line in lines)
