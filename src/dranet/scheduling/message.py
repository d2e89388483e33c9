"""The scheduler's sentence about a pod that fits nowhere.

Reasons are counted over nodes and sorted as texts, numbers included: "10 ..." stands before "9 ...". After them stands
what was tried to make room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dranet.scheduling.cycle import Rejection
from dranet.scheduling.nodes import Alike

NO_NODES = "no nodes available to schedule pods"
NOT_HELPFUL = "Preemption is not helpful for scheduling"


def unavailable(total: int, rejected: Iterable[tuple[Alike, Rejection]]) -> str:
    """With the number of nodes under every reason."""
    counts: Counter[str] = Counter()
    for alike, rejection in rejected:
        for reason in rejection.reasons:
            counts[reason] += len(alike)
    return of_counts(total, counts)


def of_counts(total: int, counts: Counter[str]) -> str:
    """From counts by reason."""
    shown = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items() if count))
    return f"0/{total} nodes are available: {shown}."


def refused(total: int, reason: str) -> str:
    """One reason for all nodes."""
    return f"0/{total} nodes are available: {reason}."
