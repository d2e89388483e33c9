"""DefaultPreemption: whether the pod would fit on a node without its pods of lower priority.

Only nodes with a resolvable status are tried. All pods of lower priority are removed first; then each is added again,
highest priority first, if the pod still fits. Preemption never frees devices: a claim outlives its pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from dranet.scheduler.framework import (
    NOT_HELPFUL,
    Cycle,
    PreemptionCandidate,
    SchedulerError,
    Status,
    reasons_message,
)
from dranet.scheduler.nodes import EquivalenceClass, NodeInfo
from dranet.scheduler.pods import PodInfo

_NEVER = "not eligible due to preemptionPolicy=Never."
_NO_VICTIMS = Status(("No preemption victims found for incoming pod",))
_PRIORITY_OFFSET = 1 << 31
RunFilters = Callable[[Cycle, EquivalenceClass], Status | None]
"""All filters on one node."""


class PreemptionResult(msgspec.Struct, frozen=True):
    """The candidates, or why there is none."""

    message: str
    """Empty if there are candidates."""
    preemptions: tuple[PreemptionCandidate, ...] = ()
    failed: bool = False
    """The message is an error; kube-scheduler then reports nothing else."""


def preempt(
    cycle: Cycle, rejected: Iterable[tuple[EquivalenceClass, Status]], run_filters: RunFilters
) -> PreemptionResult:
    """Find the nodes and victims that kube-scheduler chooses from."""
    if not cycle.info.may_preempt:
        return PreemptionResult(_NEVER)
    total = len(cycle.cluster.nodes)
    counts: Counter[str] = Counter()
    found: list[PreemptionCandidate] = []
    errors: list[str] = []
    tried = 0
    for group, status in rejected:
        if not status.resolvable:
            continue
        try:
            victims = _select_victims(cycle, group, run_filters)
        except SchedulerError as error:
            errors.append(str(error))
            continue
        tried += len(group)
        if isinstance(victims, Status):
            counts.update(dict.fromkeys(victims.reasons, len(group)))
        else:
            found += [PreemptionCandidate(name, victims) for name in group.names]
    if found:
        return PreemptionResult("", tuple(_best_candidates(found)))
    if errors:
        distinct = list(dict.fromkeys(errors))
        return PreemptionResult(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]", failed=True)
    counts[NOT_HELPFUL] += total - tried
    return PreemptionResult(reasons_message(total, counts))


def _select_victims(cycle: Cycle, group: EquivalenceClass, run_filters: RunFilters) -> tuple[PodInfo, ...] | Status:
    """The pods to evict from such a node, or why that does not help."""
    lower = [info for info in _all_pods(group.sample) if info.priority < cycle.info.priority]
    if not lower:
        return _NO_VICTIMS
    node = group.sample.copy()
    for info in lower:
        node.update(info, -1)
    if status := run_filters(*_with_node(cycle, group, node)):
        return status
    victims = []
    for info in sorted(lower, key=lambda one: -one.priority):
        node.update(info, 1)
        if run_filters(*_with_node(cycle, group, node)):
            node.update(info, -1)
            victims.append(info)
    return tuple(victims)


def _all_pods(node: NodeInfo) -> list[PodInfo]:
    return [info for info, count in node.pods.items() for _ in range(count)]


def _with_node(cycle: Cycle, group: EquivalenceClass, node: NodeInfo) -> tuple[Cycle, EquivalenceClass]:
    """The cycle with one node of the group in another state."""
    changed = EquivalenceClass(node, {node.name: None})
    others = [one for one in cycle.groups if one is not group]
    if rest := {name: None for name in group.names if name != node.name}:
        others.append(EquivalenceClass(cycle.cluster.nodes[next(iter(rest))], rest))
    return cycle.with_groups([*others, changed]), changed


def _best_candidates(found: list[PreemptionCandidate]) -> list[PreemptionCandidate]:
    """Lowest highest priority of the victims, then the smallest sum of priorities, then the fewest victims."""
    costs = [
        (
            max(info.priority for info in one.victims),
            sum(info.priority + _PRIORITY_OFFSET for info in one.victims),
            len(one.victims),
        )
        for one in found
    ]
    return [one for one, cost in zip(found, costs, strict=True) if cost == min(costs)]
