"""`make campaign N=10000 SEED=1`: runs that many sequences and prints a table of what was tried.

Sequence number K has the seed SEED + K. To repeat one that failed: `make campaign N=1 SEED=<its seed>`.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import multiprocessing
import multiprocessing.connection
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from tests.campaign.attacks import ACTS
from tests.campaign.cluster_objects import Report
from tests.campaign.driver import warm_up
from tests.campaign.fake_cluster import CONFIGS
from tests.campaign.node import VirtualNode, folder_for
from tests.campaign.sequence import Sequence

IN_MEMORY = Path("/dev/shm")
"""The folder of the store: only processes are killed, not the machine, so a disk would add nothing."""
WORKERS = 4
STOPPING = (signal.SIGINT, signal.SIGTERM)


Run = Callable[[Iterable[int]], Iterator[Report]]


def run_sequences(seeds: Iterable[int]) -> Iterator[Report]:
    """One report for each seed.

    The node is created again after a failure, and after a lost store, which loses settings: a seed must do among others
    what it does alone.
    """
    node = VirtualNode()
    warm_up(CONFIGS)
    gc.collect()
    gc.freeze()  # the processes are forks, and a collection there would copy all pages
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="campaign-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as name:
            report = Sequence(seed, node, folder_for(Path(name))).run()
        yield report
        if report.wrong or report.store_lost:
            node.close()
            node = VirtualNode()
    node.close()


def run_in_parallel(first: int, count: int, workers: int, run: Run = run_sequences) -> Iterator[Report]:
    """The same in several processes with a node each, because a sequence mostly waits for the kernel.

    All nodes share one kernel, so a driver that searches a lost link finds those of the others and must not take them.
    """
    readers: dict[Any, list[int]] = {}
    for number in range(workers):
        seeds = list(range(first + number, first + count, workers))
        readers[_begin(seeds, run)] = seeds
    while readers:
        ready: Iterable[Any] = multiprocessing.connection.wait(list(readers))
        for reader in ready:
            seeds = readers[reader]
            try:
                report: Report = reader.recv()
            except EOFError:
                del readers[reader]
                if seeds:  # the campaign continues without it
                    report = Report(seeds.pop(0), wrong=["its process died"])
                    readers[_begin(seeds, run)] = seeds
                    yield report
            else:
                seeds.remove(report.seed)
                yield report
        _reap()


def _begin(seeds: list[int], run: Run) -> multiprocessing.connection.Connection:
    """Start a process for these seeds; returns the pipe with its reports."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    if os.fork() == 0:
        reader.close()
        _work(writer, seeds, run)
    writer.close()
    return reader


def _reap() -> None:
    """Reap workers, and orphans of pods where this is PID 1 of a PID namespace."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _work(writer: multiprocessing.connection.Connection, seeds: Iterable[int], run: Run) -> NoReturn:
    for number in STOPPING:  # only the first process prints the table
        signal.signal(number, signal.SIG_DFL)
    try:
        for report in run(seeds):
            writer.send(report)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


class Totals:
    """The sums of all reports."""

    def __init__(self) -> None:
        self.sequences = self.destroyed = self.deaths = 0
        self.acts: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()
        self.shared: Counter[str] = Counter()
        self.wrong: list[Report] = []

    def add(self, report: Report) -> None:
        self.sequences += 1
        self.destroyed += report.destroyed
        self.deaths += report.deaths
        self.acts += report.acts
        self.faults += report.faults
        self.shared[report.shared] += bool(report.shared)
        if report.wrong:
            self.wrong.append(report)

    def table(self) -> str:
        lines = [f"{'attack':32}{'done':>9}{'refused':>9}{'not here':>9}"]
        for name in ACTS:
            counts = [self.acts[name, outcome] for outcome in ("done", "refused", "impossible")]
            lines.append(f"{name:32}" + "".join(f"{count:9}" for count in counts))
        lines += ["", f"{'fault or end':32}{'times':>9}"]
        lines += [f"{name:32}{count:9}" for name, count in sorted(self.faults.items())]
        lines += ["", f"{'sequences with a shared NIC':32}{'times':>9}"]
        lines += [f"{kind:32}{count:9}" for kind, count in sorted(self.shared.items()) if kind]
        return "\n".join(lines)


def describe(report: Report) -> str:
    return f"seed {report.seed}: " + " | ".join(report.wrong) + f"\n    steps: {' '.join(report.steps)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.campaign", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--show", type=int, default=10, help="how many failed sequences to print in full")
    parser.add_argument("--workers", type=int, default=WORKERS, help="number of processes")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"campaign: {options.count} sequences from seed {first}", flush=True)
    totals, began = Totals(), time.monotonic()
    for number in STOPPING:  # also in the background, where a shell ignores SIGINT
        signal.signal(number, signal.default_int_handler)
    try:
        for report in run_in_parallel(first, options.count, min(options.workers, options.count)):
            totals.add(report)
            if report.wrong and len(totals.wrong) <= options.show:
                print(describe(report), flush=True)
            if totals.sequences % 100 == 0:
                rate = totals.sequences / (time.monotonic() - began)
                print(f"... {totals.sequences} sequences, {len(totals.wrong)} failed, {rate:.1f} a second", flush=True)
    except KeyboardInterrupt:
        print(f"stopped after {totals.sequences} of {options.count}")
    seconds = time.monotonic() - began
    print(totals.table())
    tried = sum(count for (_, outcome), count in totals.acts.items() if outcome != "impossible")
    print(
        f"\n{totals.sequences} sequences, {tried} attacks, {sum(totals.faults.values())} faults and ends, "
        f"{totals.deaths} crashes of the driver during a call, {seconds:.0f} s, "
        f"{totals.sequences / seconds:.2f} a second; {totals.destroyed} virtual NICs destroyed by their pods; "
        f"{len(totals.wrong)} sequences failed"
    )
    return 1 if totals.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
