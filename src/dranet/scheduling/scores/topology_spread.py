"""PodTopologySpread, the part that prefers: places with fewer of such pods.

Pods that say nothing are spread over hosts and zones by what their services and controller select. A node without a
zone still takes part in that; with constraints of the pod's own, a node must have all of their labels.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from dranet.scheduling.cycle import Cycle
from dranet.scheduling.filters.topology_spread import counts_here, has_all_keys, matching
from dranet.scheduling.nodes import Alike
from dranet.scheduling.pods import HOST, SpreadConstraint
from dranet.scheduling.scores.normal import MOST
from dranet.scheduling.selectors import NOTHING

ZONE = "topology.kubernetes.io/zone"
_DEFAULTS = (SpreadConstraint(HOST, 3, False, NOTHING), SpreadConstraint(ZONE, 5, False, NOTHING))


def score(cycle: Cycle, nodes: list[Alike]) -> list[int] | None:
    """Skipped for pods that nothing spreads."""
    rules = soft_rules(cycle)
    if not rules:
        return None
    strict = bool(cycle.traits.spread)
    left_out = [strict and not has_all_keys(cycle, alike, rules) for alike in nodes]
    rated = [alike for alike, out in zip(nodes, left_out, strict=True) if not out]
    weights = [_weight(cycle, rule, rated) for rule in rules]
    counts = [_counts(cycle, rule, rules, rated, strict) for rule in rules]
    points = [_points(cycle, alike, rules, weights, counts) for alike in nodes]
    taking_part = [one for one, out in zip(points, left_out, strict=True) if not out]
    least, highest = min(taking_part, default=0), max(taking_part, default=0)
    return [
        0 if out else MOST if not highest else MOST * (highest + least - one) // highest
        for one, out in zip(points, left_out, strict=True)
    ]


def soft_rules(cycle: Cycle) -> list[SpreadConstraint]:
    """The pod's own soft constraints, or the usual ones where it has none at all."""
    traits = cycle.traits
    if traits.spread:
        return [rule for rule in traits.spread if not rule.hard and cycle.knows(rule.key)]
    if traits.spread_by is None:
        return []
    return [replace(rule, selector=traits.spread_by) for rule in _DEFAULTS]


def _weight(cycle: Cycle, rule: SpreadConstraint, rated: list[Alike]) -> float:
    """Places weigh more the more there are of them."""
    places = {cycle.cluster.domain(alike, rule.key) for alike in rated}
    size = sum(map(len, rated)) if rule.key == HOST else len(places)
    return math.log(size + 2)


def _counts(
    cycle: Cycle, rule: SpreadConstraint, rules: list[SpreadConstraint], rated: list[Alike], strict: bool
) -> dict[object, int]:
    """Pods by place, for places of rated nodes, counted on all nodes. A host counts its own pods, later."""
    if rule.key == HOST:
        return {}
    places = {cycle.cluster.domain(alike, rule.key) for alike in rated}
    found: dict[object, int] = dict.fromkeys(places, 0)
    for alike in cycle.alike:
        place = cycle.cluster.domain(alike, rule.key)
        if place not in found or (strict and not has_all_keys(cycle, alike, rules)):
            continue
        if counts_here(cycle.traits, rule, alike):
            found[place] += matching(alike, rule, cycle.traits) * len(alike)
    return found


def _points(
    cycle: Cycle,
    alike: Alike,
    rules: list[SpreadConstraint],
    weights: list[float],
    counts: list[dict[object, int]],
) -> int:
    total = 0.0
    for rule, weight, by_place in zip(rules, weights, counts, strict=True):
        place = cycle.cluster.domain(alike, rule.key)
        if place is not None:
            count = matching(alike, rule, cycle.traits) if rule.key == HOST else by_place.get(place, 0)
            total += float(count) * weight + float(rule.max_skew - 1)
    # Halves go up, as in Go; Python's round() would take the even neighbour.
    return math.floor(total + 0.5)
