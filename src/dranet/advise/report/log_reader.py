"""Reads the runs of a log. A log may contain several runs and any other lines.

Prefixes of kubectl, stern, mpirun, MPICH, srun, pdsh, torchrun, Ray, SkyPilot, container runtimes and time stamps are
removed, also several before one line. Lines outside of tables are read only as evidence. A line that looks like a
result but cannot be read is a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from dranet.advise.report import nccl_tests, nixl, perftest, summary
from dranet.advise.report.nccl_info import EvidenceReader
from dranet.advise.report.runs import Rank, Row, Run

_NOISE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RESULT = r"(?=\s*#| {2,}\d+ +\d+ )"
_PREFIX = re.compile(
    r"(?:\[pod/\S+\] "  # kubectl logs --prefix
    r"|(?:\w{3} \w{3} +\d+ [\d:]+ \d{4})?\[[\w.@-]+,\d+\]<std(?:out|err)> ?: ?"  # mpirun --tag-output
    r"|\w{3} \w{3} +\d+ [\d:]+ \d{4}<std(?:out|err)>: ?"  # mpirun --timestamp-output
    r"|\[\d+,\d+\]: ?|\[(?:default|rank)\d+\]: ?"  # mpirun, torchrun
    r"|\([\w.-]+,?(?: rank=\d+,)? pid=\d+[^)]*\) ?"  # Ray, SkyPilot
    rf"| *\d+: {_RESULT}"  # srun --label; `ip addr` has such numbers before names
    rf"|[\w.-]+: {_RESULT}|[a-z][\w.-]+ [a-z][\w.-]* {_RESULT}|[\w.-]+ +\| ?"  # pdsh, stern, docker compose
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,Z:+-]*\]? (?:std(?:out|err) [FP] )?"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\] |\w{3} [ \d]\d \d\d:\d\d:\d\d \S+ \S+: "  # klog, journald
    r"|(?:> ?)+)"  # quoted in a mail or an issue
)
_LABEL = re.compile(r"\[\d+\](?= |#)")
"""MPICH's `mpiexec -l` labels every write, so also the middle of lines."""


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
    columns: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    average: float | None = None
    wrong: int = 0
    unit: float | None = None
    """Set inside a table of perftest or nixlbench, with the number of its column."""
    column: int = 0
    in_table: bool = False
    bidirectional: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    gathered: EvidenceReader = field(default_factory=EvidenceReader)

    @property
    def is_nccl(self) -> bool:
        return self.collective != nixl.PROGRAM and self.collective not in perftest.PROGRAMS

    @property
    def is_empty(self) -> bool:
        return not (self.ranks or self.rows or self.average is not None)

    def world(self) -> int | None:
        """The number of ranks. Rank lines may be cut off at both ends, but a table comes after the last one."""
        if not self.is_nccl:
            return 2
        numbers = [rank.number for rank in self.ranks]
        if len(set(numbers)) < len(numbers):
            return 1 if set(numbers) == {0} else None
        return max(numbers) + 1 if numbers and (self.in_table or self.rows or self.average is not None) else None

    def finish(self) -> Run:
        rows, world = tuple(self.rows), self.world()
        return Run(
            self.collective or nccl_tests.guess_collective(rows, self.a_row, world),
            tuple(sorted(self.ranks, key=lambda rank: rank.number)),
            world,
            rows,
            self.sizes,
            self.average,
            wrong=self.wrong,
            bidirectional=self.bidirectional,
            settings=self.settings,
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
        """Keep the run. One that only began is dropped: without MPI every process prints its own first lines."""
        if self.draft is not None:
            if not self.draft.is_empty or self.draft.gathered.has_any():
                self.runs.append(self.draft.finish())
            self.draft = None

    def _begin(self, text: str) -> None:
        """Start a run at its first line, or at a table without the usual lines before it."""
        if program := perftest.read_title(text):
            self._open(_Draft(program, bidirectional=perftest.is_bidirectional(text)))
        elif nixl.TITLE.match(text) or (nixl.HEADER.match(text) and not self._is_at(nixl.PROGRAM)):
            self._open(_Draft(nixl.PROGRAM))
        elif perftest.HEADER.match(text) and (self.draft is None or self.draft.is_nccl or self.draft.unit):
            self._open(_Draft(perftest.UNNAMED))
        elif nccl_tests.SETTINGS.match(text) or (self._is_complete() and self._starts_table(text)):
            self._open(_Draft(self.named, sizes=nccl_tests.read_sweep(text) or ()))
            self.named = ""
        elif self.draft is not None and self.named and not self.draft.collective and not self.draft.rows:
            self.draft.collective = self.named

    def _is_at(self, program: str) -> bool:
        """Whether this program's table is the next one."""
        return self.draft is not None and self.draft.collective == program and not self.draft.unit

    def _starts_table(self, text: str) -> bool:
        """A header, a rank line, or a row where the lines before it are cut off."""
        found = nccl_tests.HEADER.match(text) or nccl_tests.read_rank(text) or nccl_tests.read_row(text)
        return found is not None

    def _open(self, draft: _Draft) -> None:
        if self.draft is not None and self.draft.is_empty and self.draft.is_nccl and draft.is_nccl:
            draft.collective = draft.collective or self.draft.collective
        self.close()
        draft.gathered, self.before = self.before, EvidenceReader()
        self.draft = draft

    def _is_complete(self) -> bool:
        return self.draft is None or self.draft.average is not None or not self.draft.is_nccl

    def _figures(self, number: int, text: str, draft: _Draft) -> bool:
        """Read the output of the benchmark itself; False for other lines."""
        if not draft.is_nccl:
            return self._nixl(text, draft) if draft.collective == nixl.PROGRAM else self._perftest(number, text, draft)
        if rank := nccl_tests.read_rank(text):
            draft.ranks.append(rank)
        elif nccl_tests.HEADER.match(text):
            draft.in_table, draft.columns = True, nccl_tests.read_columns(text)
        elif average := nccl_tests.AVERAGE.match(text):
            draft.average, draft.in_table = float(average[1]), False
        elif outside := nccl_tests.OUT_OF_BOUNDS.match(text):
            draft.wrong = max(draft.wrong, int(outside[1]))
        elif (draft.in_table or not draft.columns) and (row := nccl_tests.read_row(text, draft.columns)):
            draft.rows.append(row[0])
            draft.wrong += row[1]
            draft.a_row = draft.a_row if draft.a_row and "N/A" not in draft.a_row else text
        elif draft.in_table and nccl_tests.LIKE_A_ROW.match(text):
            self._unreadable(number, text)
        else:
            return False
        return True

    def _unreadable(self, number: int, text: str) -> None:
        self.warnings.append(f"line {number}: cannot read this result: {text.strip()}")

    def _perftest(self, number: int, text: str, draft: _Draft) -> bool:
        if device := perftest.DEVICE.search(text):
            draft.gathered.nics.setdefault("", {})[device[1]] = None
        elif unit := perftest.read_unit(text):
            draft.unit, draft.column = unit, perftest.average_column(text)
        elif draft.unit and (row := perftest.read_row(text, draft.unit, draft.column)):
            draft.rows.append(row)
        elif draft.unit and perftest.ROW.match(text):
            self._unreadable(number, text)
        else:
            return False
        return True

    def _nixl(self, text: str, draft: _Draft) -> bool:
        if setting := nixl.read_setting(text):
            draft.settings[setting[0]] = setting[1]
        elif rate := nixl.rate_column(text):
            draft.column, draft.unit = rate
        elif draft.unit and (row := nixl.read_row(text, draft.column, draft.unit)):
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
    text = _NOISE.sub("", line).rstrip("\r")
    while found := _PREFIX.match(text):
        text = text[found.end() :]
    if label := _LABEL.match(text):
        text = text.replace(label[0], " ").removeprefix(" ")
    return text


def _searchable(lines: Iterable[str]) -> str:
    return "\n".join(re.sub(r"[^a-z0-9]+", "-", line.lower()) for line in lines)
