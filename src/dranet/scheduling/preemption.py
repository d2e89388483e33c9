"""DefaultPreemption: whether the pod would fit on a node if less important pods left it.

Only nodes that were ruled out by something others hold are tried. All less important pods leave at first; then those
come back, the most important first, beside whom the pod still fits. Devices stay with their claims: a claim outlives
its pod, so nobody gets devices this way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from dranet.scheduling.cycle import Cycle, Rejection, SchedulerError
from dranet.scheduling.message import NOT_HELPFUL, of_counts
from dranet.scheduling.nodes import Alike, NodeState
from dranet.scheduling.pods import Traits
from dranet.scheduling.verdict import Preemption

NEVER = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS = Rejection(("No preemption victims found for incoming pod",))
_LOWEST = 1 << 31
Try = Callable[[Cycle, Alike], Rejection | None]
"""All filters on one node."""


class Tried(msgspec.Struct, frozen=True):
    """What came of it."""

    message: str
    """Empty where others would leave."""
    preemptions: tuple[Preemption, ...] = ()
    failed: bool = False
    """The message is an error, and nothing else is said beside it."""


def preempt(cycle: Cycle, rejected: Iterable[tuple[Alike, Rejection]], filters: Try) -> Tried:
    """Try every node that others stand in the way on."""
    if not cycle.traits.may_preempt:
        return Tried(NEVER)
    total = len(cycle.cluster.nodes)
    counts: Counter[str] = Counter()
    found: list[Preemption] = []
    errors: list[str] = []
    tried = 0
    for alike, rejection in rejected:
        if not rejection.preemptible:
            continue
        try:
            answer = _on(cycle, alike, filters)
        except SchedulerError as error:
            errors.append(str(error))
            continue
        tried += len(alike)
        if isinstance(answer, Rejection):
            counts.update(dict.fromkeys(answer.reasons, len(alike)))
        else:
            found += [Preemption(name, answer) for name in alike.names]
    if found:
        return Tried("", tuple(_cheapest(found)))
    if errors:
        distinct = list(dict.fromkeys(errors))
        return Tried(distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]", failed=True)
    counts[NOT_HELPFUL] += total - tried
    return Tried(of_counts(total, counts))


def _on(cycle: Cycle, alike: Alike, filters: Try) -> tuple[Traits, ...] | Rejection:
    """Who would have to leave such a node, or why that would not help."""
    lesser = [traits for traits in _each(alike.sample) if traits.priority < cycle.traits.priority]
    if not lesser:
        return NO_VICTIMS
    state = alike.sample.copy()
    for traits in lesser:
        state.change(traits, -1)
    if refusal := filters(*_supposed(cycle, alike, state)):
        return refusal
    victims = []
    for traits in sorted(lesser, key=lambda one: -one.priority):
        state.change(traits, 1)
        if filters(*_supposed(cycle, alike, state)):
            state.change(traits, -1)
            victims.append(traits)
    return tuple(victims)


def _each(state: NodeState) -> list[Traits]:
    return [traits for traits, count in state.pods.items() for _ in range(count)]


def _supposed(cycle: Cycle, alike: Alike, state: NodeState) -> tuple[Cycle, Alike]:
    """The question again, with one of these nodes in another state."""
    changed = Alike(state, {state.name: None})
    others = [one for one in cycle.alike if one is not alike]
    if rest := {name: None for name in alike.names if name != state.name}:
        others.append(Alike(cycle.cluster.nodes[next(iter(rest))], rest))
    return cycle.among([*others, changed]), changed


def _cheapest(found: list[Preemption]) -> list[Preemption]:
    """Those the scheduler chooses from: the least important victims, then the smallest sum, then the fewest."""
    costs = [
        (
            max(traits.priority for traits in one.victims),
            sum(traits.priority + _LOWEST for traits in one.victims),
            len(one.victims),
        )
        for one in found
    ]
    return [one for one, cost in zip(found, costs, strict=True) if cost == min(costs)]
