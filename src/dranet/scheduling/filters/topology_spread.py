"""PodTopologySpread, the part that rules out: no place may have many more of such pods than the emptiest one."""

from __future__ import annotations

import msgspec

from dranet.scheduling.cycle import Check, Cycle, Rejection
from dranet.scheduling.filters.node_affinity import wanted
from dranet.scheduling.filters.taint_toleration import goes_there
from dranet.scheduling.nodes import Alike
from dranet.scheduling.pods import SpreadConstraint, Traits

_REASON = "node(s) didn't match pod topology spread constraints"
UNEVEN = Rejection((_REASON,), preemptible=True)
NO_PLACE = Rejection((f"{_REASON} (missing required label)",))


class _Count(msgspec.Struct, frozen=True):
    """How such pods are spread now."""

    rule: SpreadConstraint
    by_place: dict[object, int]
    least: int
    own: int
    """1 where the pod counts itself."""


def prepare(cycle: Cycle) -> Check | None:
    """Skipped for pods without hard constraints."""
    rules = [rule for rule in cycle.traits.spread if rule.hard and cycle.knows(rule.key)]
    if not rules:
        return None
    counts = [_count(cycle, rule, rules) for rule in rules]

    def check(alike: Alike) -> Rejection | None:
        for one in counts:
            place = cycle.cluster.domain(alike, one.rule.key)
            if place is None:
                return NO_PLACE
            if one.by_place.get(place, 0) + one.own - one.least > one.rule.max_skew:
                return UNEVEN
        return None

    return check


def _count(cycle: Cycle, rule: SpreadConstraint, rules: list[SpreadConstraint]) -> _Count:
    by_place: dict[object, int] = {}
    places = 0
    for alike in cycle.alike:
        if not has_all_keys(cycle, alike, rules) or not counts_here(cycle.traits, rule, alike):
            continue
        place = cycle.cluster.domain(alike, rule.key)
        # Nodes that are places of their own are alike: each of them has as many.
        places += len(alike) if place is alike else place not in by_place
        by_place[place] = by_place.get(place, 0) + matching(alike, rule, cycle.traits) * _weight(alike, place)
    least = min(by_place.values(), default=0) if places >= rule.min_domains else 0
    return _Count(rule, by_place, least, int(rule.selector.matches(cycle.traits.labels)))


def _weight(alike: Alike, place: object) -> int:
    return 1 if place is alike else len(alike)


def has_all_keys(cycle: Cycle, alike: Alike, rules: list[SpreadConstraint]) -> bool:
    """Whether a node has every label the constraints are about."""
    return all(cycle.cluster.domain(alike, rule.key) is not None for rule in rules)


def counts_here(traits: Traits, rule: SpreadConstraint, alike: Alike) -> bool:
    """Whether pods on these nodes count, by the constraint's policies."""
    facts = alike.sample.facts
    if rule.honors_affinity and not wanted(traits, facts):
        return False
    return not rule.honors_taints or goes_there(facts, traits.tolerations)


def matching(alike: Alike, rule: SpreadConstraint, traits: Traits) -> int:
    """Pods the constraint is about on each of these nodes. A selector that asks nothing counts nobody."""
    if rule.selector.everything:
        return 0
    return sum(
        count
        for other, count in alike.sample.pods.items()
        if other.namespace == traits.namespace and rule.selector.matches(other.labels)
    )
