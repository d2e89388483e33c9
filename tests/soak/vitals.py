"""What a process has of the machine, over time, and whether it has ever more of it."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

MEASURES = ("memory_kb", "files", "threads")
WARM_UP = 0.2
"""The first share of a run in which caches fill and the allocator finds its size; judged is what comes after."""
GROWTH = {"memory_kb": 4096, "files": 4, "threads": 2}
"""What the last quarter may have more than the first after warming up, of medians: less than one pod in a hundred."""


@dataclass(frozen=True)
class Sample:
    at: float
    memory_kb: int
    files: int
    threads: int

    @staticmethod
    def of(pid: int) -> Sample:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return Sample(time.monotonic(), int(status["VmRSS"].split()[0]), files, int(status["Threads"]))


def trends(samples: list[Sample]) -> dict[str, dict[str, float]]:
    """Of each measure: first and last quarter after warming up, and the highest ever."""
    judged = samples[int(len(samples) * WARM_UP) :]
    quarter = max(1, len(judged) // 4)
    found = {}
    for name in MEASURES:
        values = [getattr(sample, name) for sample in judged]
        first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
        highest = max(getattr(sample, name) for sample in samples)
        found[name] = {"first_quarter": first, "last_quarter": last, "highest": highest}
    return found


def growing(found: dict[str, dict[str, float]]) -> list[str]:
    """What is not flat, in words."""
    return [
        f"{name} grew from {one['first_quarter']:g} to {one['last_quarter']:g}, allowed are {GROWTH[name]} more"
        for name, one in found.items()
        if one["last_quarter"] > one["first_quarter"] + GROWTH[name]
    ]
