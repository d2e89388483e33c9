"""NodeResourcesFit and NodeResourcesBalancedAllocation: nodes with more CPU and memory left, and left in balance."""

from __future__ import annotations

from dranet.scheduling.amounts import CPU, MEMORY
from dranet.scheduling.cycle import Cycle
from dranet.scheduling.nodes import Alike
from dranet.scheduling.scores.normal import MOST


def least_used(cycle: Cycle, nodes: list[Alike]) -> list[int]:
    """What would be free, in parts of a hundred, on average over CPU and memory."""
    wanted = cycle.traits.requests.scored
    return [_least_used(alike, wanted) for alike in nodes]


def _least_used(alike: Alike, wanted: tuple[int, int]) -> int:
    offered = _offered(alike)
    parts = [
        (MOST * (whole - used - more) // whole if used + more <= whole else 0)
        for whole, used, more in zip(offered, alike.sample.counted, wanted, strict=True)
        if whole
    ]
    return sum(parts) // len(parts) if parts else 0


def balanced(cycle: Cycle, nodes: list[Alike]) -> list[int] | None:
    """Whether the pod brings the shares of CPU and memory in use nearer to each other. Skipped if it asks for none."""
    needed = cycle.traits.requests.needed
    wanted = (needed.get(CPU, 0), needed.get(MEMORY, 0))
    return [_balanced(alike, wanted) for alike in nodes] if any(wanted) else None


def _balanced(alike: Alike, wanted: tuple[int, int]) -> int:
    offered, used = _offered(alike), alike.sample.usage
    after = (used[0] + wanted[0], used[1] + wanted[1])
    better = _evenness(after, offered) - _evenness(used, offered)
    # Halved towards nought, which // does not do below nought; the sum never is.
    return MOST // 2 + (MOST // 2 + better) // 2


def _evenness(used: tuple[int, int], offered: tuple[int, int]) -> int:
    shares = [min(one / whole, 1.0) for one, whole in zip(used, offered, strict=True) if whole]
    apart = abs((shares[0] - shares[1]) / 2) if len(shares) == 2 else 0.0
    return int((1 - apart) * float(MOST))


def _offered(alike: Alike) -> tuple[int, int]:
    allocatable = alike.sample.facts.allocatable
    return allocatable.get(CPU, 0), allocatable.get(MEMORY, 0)
