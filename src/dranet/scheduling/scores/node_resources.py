"""NodeResourcesFit and NodeResourcesBalancedAllocation: nodes with more CPU and memory left, and left in balance."""

from __future__ import annotations

from dranet.scheduling.amounts import CPU, MEMORY
from dranet.scheduling.cycle import Cycle, OwnScore
from dranet.scheduling.nodes import Alike
from dranet.scheduling.pods import Traits
from dranet.scheduling.scores.normal import MOST


def _least_used(cycle: Cycle, alike: Alike) -> int:
    """What would be free, in parts of a hundred, on average over CPU and memory."""
    offered, wanted = _offered(alike), cycle.traits.requests.scored
    parts = [
        (MOST * (whole - used - more) // whole if used + more <= whole else 0)
        for whole, used, more in zip(offered, alike.sample.counted, wanted, strict=True)
        if whole
    ]
    return sum(parts) // len(parts) if parts else 0


def _balanced(cycle: Cycle, alike: Alike) -> int:
    """Whether the pod brings the shares of CPU and memory in use nearer to each other."""
    wanted = _wanted(cycle.traits)
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


def _wanted(traits: Traits) -> tuple[int, int]:
    return traits.requests.needed.get(CPU, 0), traits.requests.needed.get(MEMORY, 0)


LEAST_USED = OwnScore(_least_used)
BALANCED = OwnScore(_balanced, asked=lambda traits: any(_wanted(traits)))
