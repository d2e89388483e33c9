"""Whose fault it is, from who was well with whom.

A bad path has two ends. The one that is well with somebody else is cleared; what is left is to blame. Where both are
left, as always with two pods and rails that do not meet, both are named: more pods would tell.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence

from dranet.pairing.values import End, Path

Culprits = dict[tuple[End, ...], list[Path]]
"""One end, or both that may be to blame, with the paths that say so."""


def blame(paths: Sequence[Path], bad: Callable[[Path], bool]) -> Culprits:
    """Every bad path belongs to one entry, but for those that a card to blame alone explains."""
    suspects = [path for path in paths if bad(path) and not path.crossing]
    good = [path for path in paths if not bad(path) and _counts(path)]
    sends_well, receives_well = {path.source for path in good}, {path.target for path in good}
    alone: Culprits = {}
    open_ones = []
    for path in suspects:
        left = _left(path, sends_well, receives_well)
        if len(left) == 1:
            alone.setdefault(left, []).append(path)
        else:
            open_ones.append(path)
    blamed = {end for (end,) in alone}
    found = dict(alone)
    for path in open_ones:
        known = [end for end in (path.source, path.target) if end in blamed]
        key = (known[0],) if known else tuple(sorted((path.source, path.target)))
        found.setdefault(key, []).append(path)
    return found


def _counts(path: Path) -> bool:
    """That a card reaches a rail that is not its own says nothing for it; what it sends there does."""
    return path.seen.reached and (not path.crossing or path.seen.gbits is not None)


def _left(path: Path, sends_well: set[End], receives_well: set[End]) -> tuple[End, ...]:
    source_is_well, target_is_well = path.source in sends_well, path.target in receives_well
    if source_is_well == target_is_well:
        return (path.source, path.target)
    return (path.target,) if source_is_well else (path.source,)


def usual(paths: Iterable[Path], rate: Callable[[Path], float | None]) -> dict[float | None, float]:
    """The median rate of cards that should be equally fast, by what is expected of them."""
    found: dict[float | None, list[float]] = {}
    for path in paths:
        if not path.crossing and (value := rate(path)) is not None:
            found.setdefault(path.expected, []).append(value)
    return {expected: statistics.median(values) for expected, values in found.items()}


def share(path: Path, rate: Callable[[Path], float | None], medians: dict[float | None, float]) -> float | None:
    """What it gives of what its siblings give, 1.0 for as much."""
    value, median = rate(path), medians.get(path.expected)
    return value / median if value is not None and median else None


def tcp(path: Path) -> float | None:
    return path.seen.gbits


def rdma(path: Path) -> float | None:
    return path.seen.rdma_gbits


def slow(paths: Sequence[Path], rate: Callable[[Path], float | None], below: float) -> list[Path]:
    """Paths that give less than this share of their siblings."""
    medians = usual(paths, rate)
    return [p for p in paths if (given := share(p, rate, medians)) is not None and given < below]
