"""`make campaign N=10000 SEED=1`: that many sequences, and a table of what was tried.

Sequence number K has the seed SEED + K, so one that went wrong plays alone with `make campaign N=1 SEED=<its seed>`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.adversary.acts import ACTS
from tests.adversary.node import VirtualNode, folder_for
from tests.adversary.sequence import Report, Sequence


def play(seeds: Iterable[int]) -> Iterator[Report]:
    """One report a seed. The node is made anew after a sequence that went wrong: the next one must not suffer."""
    node = VirtualNode()
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="adversary-") as name:
            report = Sequence(seed, node, folder_for(Path(name))).run()
        yield report
        if report.wrong:
            node.close()
            node = VirtualNode()
    node.close()


class Totals:
    """What a campaign has tried."""

    def __init__(self) -> None:
        self.sequences = self.destroyed = self.deaths = 0
        self.acts: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()
        self.wrong: list[Report] = []

    def add(self, report: Report) -> None:
        self.sequences += 1
        self.destroyed += report.destroyed
        self.deaths += report.deaths
        self.acts += report.acts
        self.faults += report.faults
        if report.wrong:
            self.wrong.append(report)

    def table(self) -> str:
        lines = [f"{'act':32}{'done':>9}{'refused':>9}{'not here':>9}"]
        for name in ACTS:
            counts = [self.acts[name, outcome] for outcome in ("done", "refused", "impossible")]
            lines.append(f"{name:32}" + "".join(f"{count:9}" for count in counts))
        lines += ["", f"{'fault or end':32}{'times':>9}"]
        lines += [f"{name:32}{count:9}" for name, count in sorted(self.faults.items())]
        return "\n".join(lines)


def told(report: Report) -> str:
    return f"seed {report.seed}: " + " | ".join(report.wrong) + f"\n    story: {' '.join(report.story)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.adversary.campaign", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--show", type=int, default=10, help="how many wrong sequences are told in full")
    options = parser.parse_args()
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"campaign: {options.count} sequences from seed {first}", flush=True)
    totals, began = Totals(), time.monotonic()
    for report in play(range(first, first + options.count)):
        totals.add(report)
        if report.wrong and len(totals.wrong) <= options.show:
            print(told(report), flush=True)
        if totals.sequences % 500 == 0:
            rate = totals.sequences / (time.monotonic() - began)
            print(f"... {totals.sequences} sequences, {len(totals.wrong)} wrong, {rate:.1f} a second", flush=True)
    seconds = time.monotonic() - began
    print(totals.table())
    tried = sum(count for (_, outcome), count in totals.acts.items() if outcome != "impossible")
    print(
        f"\n{totals.sequences} sequences, {tried} acts, {sum(totals.faults.values())} faults and ends, "
        f"{totals.deaths} deaths of the driver in the middle of work, {seconds:.0f} s, "
        f"{totals.sequences / seconds:.1f} a second; {totals.destroyed} virtual cards destroyed by their pods; "
        f"{len(totals.wrong)} sequences wrong"
    )
    return 1 if totals.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
