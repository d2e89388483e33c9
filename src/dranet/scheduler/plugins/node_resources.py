"""NodeResourcesFit and NodeResourcesBalancedAllocation: CPU, memory, storage, pods, huge pages, extended resources.

The filter leaves an extended resource to DynamicResources if a DeviceClass backs it and no device plugin of the node
provides it. The scores prefer nodes with more free CPU and memory, and with an even use of both.
"""

from __future__ import annotations

from collections.abc import Iterator

from dranet.scheduler.framework import MAX_NODE_SCORE, Cycle, Filter, NodeScore, Status
from dranet.scheduler.nodes import EquivalenceClass, NodeInfo
from dranet.scheduler.pods import PodInfo
from dranet.scheduler.resources import CPU, MEMORY, PODS, STORAGE

_FIRST = (CPU, MEMORY, STORAGE)


def pre_filter(cycle: Cycle) -> Filter:
    # Applies to every pod: the number of pods of a node is limited.
    requested = {name: amount for name, amount in cycle.info.requests.resources.items() if amount > 0}
    names = [name for name in (*_FIRST, *sorted(requested.keys() - set(_FIRST))) if name in requested]
    backed = cycle.claims.extended_classes

    def insufficient(node: NodeInfo) -> Iterator[tuple[str, bool]]:
        """The reasons, each with whether the request exceeds the node's total."""
        allocatable = node.node.allocatable
        if _is_known(cycle, node, PODS) and node.pod_count + 1 > allocatable.get(PODS, 0):
            yield "Too many pods", False
        for name in names:
            if (name in backed and not allocatable.get(name)) or not _is_known(cycle, node, name):
                continue
            if requested[name] > node.free(name):
                yield f"Insufficient {name}", requested[name] > allocatable.get(name, 0)

    def check(group: EquivalenceClass) -> Status | None:
        found = list(insufficient(group.sample))
        return Status(tuple(text for text, _ in found), not any(never for _, never in found)) if found else None

    return check


def _is_known(cycle: Cycle, node: NodeInfo, name: str) -> bool:
    known = node.node
    if known.allocatable_partial and name not in known.allocatable and not name.startswith(known.complete_prefixes):
        cycle.notes.add(f"{name}: how much there is, is not known of all nodes")
        return False
    return True


def _least_allocated(cycle: Cycle, group: EquivalenceClass) -> int:
    """The free share in percent, averaged over CPU and memory."""
    totals, requested = _allocatable(group), cycle.info.requests.scoring
    shares = [
        (MAX_NODE_SCORE * (total - used - more) // total if used + more <= total else 0)
        for total, used, more in zip(totals, group.sample.non_zero_requested, requested, strict=True)
        if total
    ]
    return sum(shares) // len(shares) if shares else 0


def _balanced_allocation(cycle: Cycle, group: EquivalenceClass) -> int:
    """Whether the pod makes the used shares of CPU and memory more even."""
    requested = _requested(cycle.info)
    totals, used = _allocatable(group), group.sample.requested_cpu_memory
    after = (used[0] + requested[0], used[1] + requested[1])
    improvement = _evenness(after, totals) - _evenness(used, totals)
    # Go divides towards zero, // towards minus infinity; the sum is never negative, so both agree.
    return MAX_NODE_SCORE // 2 + (MAX_NODE_SCORE // 2 + improvement) // 2


def _evenness(used: tuple[int, int], totals: tuple[int, int]) -> int:
    shares = [min(one / total, 1.0) for one, total in zip(used, totals, strict=True) if total]
    deviation = abs((shares[0] - shares[1]) / 2) if len(shares) == 2 else 0.0
    return int((1 - deviation) * float(MAX_NODE_SCORE))


def _allocatable(group: EquivalenceClass) -> tuple[int, int]:
    allocatable = group.sample.node.allocatable
    return allocatable.get(CPU, 0), allocatable.get(MEMORY, 0)


def _requested(info: PodInfo) -> tuple[int, int]:
    return info.requests.resources.get(CPU, 0), info.requests.resources.get(MEMORY, 0)


LEAST_ALLOCATED = NodeScore(_least_allocated)
BALANCED_ALLOCATION = NodeScore(_balanced_allocation, applies=lambda info: any(_requested(info)))
