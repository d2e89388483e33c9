"""`make campaign N=10000 SEED=1`: that many sequences, and a table of what was tried.

Sequence number K has the seed SEED + K, so one that went wrong plays alone with `make campaign N=1 SEED=<its seed>`.
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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from tests.adversary.acts import ACTS
from tests.adversary.driver import warm
from tests.adversary.node import VirtualNode, folder_for
from tests.adversary.objects import Report
from tests.adversary.played import CONFIGS
from tests.adversary.sequence import Sequence

IN_MEMORY = Path("/dev/shm")
"""Where the store is during a sequence: processes are killed, the machine is not, so a disk would add nothing."""
WORKERS = 4
STOPPING = (signal.SIGINT, signal.SIGTERM)


def play(seeds: Iterable[int]) -> Iterator[Report]:
    """One report a seed. The node is made anew after a sequence that went wrong, or whose cards have lost settings with
    the store: a seed must play among others what it plays alone."""
    node = VirtualNode()
    warm(CONFIGS)
    gc.collect()
    gc.freeze()  # processes are forks of this one, and collecting there would copy all of its pages
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="adversary-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as name:
            report = Sequence(seed, node, folder_for(Path(name))).run()
        yield report
        if report.wrong or report.forgotten:
            node.close()
            node = VirtualNode()
    node.close()


def play_beside(first: int, count: int, workers: int) -> Iterator[Report]:
    """The same by several processes, each with a node of its own: most of a sequence is waiting for the kernel.

    Reports come as they are ready. All nodes share one kernel, so a driver that looks for a lost card finds those of
    the others, too, and must leave them alone.
    """
    readers: dict[Any, list[int]] = {}
    for number in range(workers):
        seeds = list(range(first + number, first + count, workers))
        readers[_begin(seeds)] = seeds
    while readers:
        for reader in multiprocessing.connection.wait(list(readers)):
            seeds = readers[reader]
            try:
                report = reader.recv()  # type: ignore[union-attr]
            except EOFError:
                del readers[reader]
                if seeds:  # the campaign goes on without it
                    report = Report(seeds.pop(0), wrong=["the process that played it died"])
                    readers[_begin(seeds)] = seeds
                    yield report
            else:
                seeds.remove(report.seed)
                yield report
        _reap()


def _begin(seeds: list[int]) -> multiprocessing.connection.Connection:
    """A process that plays these; its reports can be read."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    if os.fork() == 0:
        reader.close()
        _work(writer, seeds)
    writer.close()
    return reader


def _reap() -> None:
    """Workers that have ended; and orphans of pods, where this is the first process of a process namespace."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _work(writer: multiprocessing.connection.Connection, seeds: Iterable[int]) -> NoReturn:
    for number in STOPPING:  # who stops a campaign wants its table from the first process alone
        signal.signal(number, signal.SIG_DFL)
    try:
        for report in play(seeds):
            writer.send(report)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


class Totals:
    """What a campaign has tried."""

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
        lines = [f"{'act':32}{'done':>9}{'refused':>9}{'not here':>9}"]
        for name in ACTS:
            counts = [self.acts[name, outcome] for outcome in ("done", "refused", "impossible")]
            lines.append(f"{name:32}" + "".join(f"{count:9}" for count in counts))
        lines += ["", f"{'fault or end':32}{'times':>9}"]
        lines += [f"{name:32}{count:9}" for name, count in sorted(self.faults.items())]
        lines += ["", f"{'sequences with a shared card':32}{'times':>9}"]
        lines += [f"{kind:32}{count:9}" for kind, count in sorted(self.shared.items()) if kind]
        return "\n".join(lines)


def told(report: Report) -> str:
    return f"seed {report.seed}: " + " | ".join(report.wrong) + f"\n    story: {' '.join(report.story)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary.campaign", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--show", type=int, default=10, help="how many wrong sequences are told in full")
    parser.add_argument("--workers", type=int, default=WORKERS, help="processes that play at the same time")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"campaign: {options.count} sequences from seed {first}", flush=True)
    totals, began = Totals(), time.monotonic()
    for number in STOPPING:  # also of one in the background, where a shell has made SIGINT mean nothing
        signal.signal(number, signal.default_int_handler)
    try:
        for report in play_beside(first, options.count, min(options.workers, options.count)):
            totals.add(report)
            if report.wrong and len(totals.wrong) <= options.show:
                print(told(report), flush=True)
            if totals.sequences % 100 == 0:
                rate = totals.sequences / (time.monotonic() - began)
                print(f"... {totals.sequences} sequences, {len(totals.wrong)} wrong, {rate:.1f} a second", flush=True)
    except KeyboardInterrupt:
        print(f"stopped after {totals.sequences} of {options.count}")
    seconds = time.monotonic() - began
    print(totals.table())
    tried = sum(count for (_, outcome), count in totals.acts.items() if outcome != "impossible")
    print(
        f"\n{totals.sequences} sequences, {tried} acts, {sum(totals.faults.values())} faults and ends, "
        f"{totals.deaths} deaths of the driver in the middle of work, {seconds:.0f} s, "
        f"{totals.sequences / seconds:.2f} a second; {totals.destroyed} virtual cards destroyed by their pods; "
        f"{len(totals.wrong)} sequences wrong"
    )
    return 1 if totals.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
