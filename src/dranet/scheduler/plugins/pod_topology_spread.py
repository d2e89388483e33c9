"""PodTopologySpread: hard constraints filter domains with too many matching pods, soft ones prefer those with fewer.

A pod without constraints is spread over hosts and zones by the selectors of its services and controller (the default
constraints). For these a node without a zone label still takes part; with the pod's own constraints, a node must have
all of their labels.
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from dranet.scheduler.framework import MAX_NODE_SCORE, Cycle, Filter, Status
from dranet.scheduler.label_selectors import NOTHING
from dranet.scheduler.nodes import EquivalenceClass
from dranet.scheduler.plugins.node_affinity import matches_node_affinity
from dranet.scheduler.pods import HOSTNAME_LABEL, PodInfo, SpreadConstraint
from dranet.scheduler.taints import blocks

ZONE_LABEL = "topology.kubernetes.io/zone"
_REASON = "node(s) didn't match pod topology spread constraints"
_SKEW_EXCEEDED = Status((_REASON,), resolvable=True)
_NO_LABEL = Status((f"{_REASON} (missing required label)",))
_DEFAULTS = (
    SpreadConstraint(HOSTNAME_LABEL, 3, False, NOTHING),
    SpreadConstraint(ZONE_LABEL, 5, False, NOTHING),
)


class _Counts(msgspec.Struct, frozen=True):
    """Matching pods of one constraint."""

    rule: SpreadConstraint
    by_domain: dict[object, int]
    least: int
    own: int
    """1 if the constraint matches the pod itself."""


def pre_filter(cycle: Cycle) -> Filter | None:
    rules = [rule for rule in cycle.info.spread if rule.hard and cycle.knows_label(rule.key)]
    if not rules:
        return None
    counts = [_count_domains(cycle, rule, rules) for rule in rules]

    def check(group: EquivalenceClass) -> Status | None:
        for one in counts:
            domain = cycle.cluster.domain(group, one.rule.key)
            if domain is None:
                return _NO_LABEL
            if one.by_domain.get(domain, 0) + one.own - one.least > one.rule.max_skew:
                return _SKEW_EXCEEDED
        return None

    return check


def _count_domains(cycle: Cycle, rule: SpreadConstraint, rules: list[SpreadConstraint]) -> _Counts:
    by_domain: dict[object, int] = {}
    domains = 0
    for group in cycle.groups:
        if not _has_all_keys(cycle, group, rules) or not _counts_nodes(cycle.info, rule, group):
            continue
        domain = cycle.cluster.domain(group, rule.key)
        # Each node of the group is a domain of its own then, with the same number of pods.
        is_hosts = domain is group
        domains += len(group) if is_hosts else domain not in by_domain
        pods = _matching_pods(group, rule, cycle.info) * (1 if is_hosts else len(group))
        by_domain[domain] = by_domain.get(domain, 0) + pods
    least = min(by_domain.values(), default=0) if domains >= rule.min_domains else 0
    return _Counts(rule, by_domain, least, int(rule.selector.matches(cycle.info.labels)))


def _has_all_keys(cycle: Cycle, group: EquivalenceClass, rules: list[SpreadConstraint]) -> bool:
    return all(cycle.cluster.domain(group, rule.key) is not None for rule in rules)


def _counts_nodes(info: PodInfo, rule: SpreadConstraint, group: EquivalenceClass) -> bool:
    """Whether pods on these nodes count, by nodeAffinityPolicy and nodeTaintsPolicy."""
    node = group.sample.node
    if rule.honors_affinity and not matches_node_affinity(info, node):
        return False
    return not (rule.honors_taints and blocks(node.taints, info.tolerations))


def _matching_pods(group: EquivalenceClass, rule: SpreadConstraint, info: PodInfo) -> int:
    """The number on each of these nodes. kube-scheduler counts no pods for an empty selector."""
    if rule.selector.everything:
        return 0
    return sum(
        count
        for other, count in group.sample.pods.items()
        if other.namespace == info.namespace and rule.selector.matches(other.labels)
    )


def score(cycle: Cycle, groups: list[EquivalenceClass]) -> list[int] | None:
    rules = _soft_constraints(cycle)
    if not rules:
        return None
    strict = bool(cycle.info.spread)
    ignored = [strict and not _has_all_keys(cycle, group, rules) for group in groups]
    counted = [group for group, out in zip(groups, ignored, strict=True) if not out]
    weights = [_weight(cycle, rule, counted) for rule in rules]
    counts = [_count_scored_domains(cycle, rule, rules, counted, strict) for rule in rules]
    scores = [_score_nodes(cycle, group, rules, weights, counts) for group in groups]
    counted_scores = [one for one, out in zip(scores, ignored, strict=True) if not out]
    least, highest = min(counted_scores, default=0), max(counted_scores, default=0)
    return [
        0 if out else MAX_NODE_SCORE if not highest else MAX_NODE_SCORE * (highest + least - one) // highest
        for one, out in zip(scores, ignored, strict=True)
    ]


def _soft_constraints(cycle: Cycle) -> list[SpreadConstraint]:
    info = cycle.info
    if info.spread:
        return [rule for rule in info.spread if not rule.hard and cycle.knows_label(rule.key)]
    if info.default_spread is None:
        return []
    return [replace(rule, selector=info.default_spread) for rule in _DEFAULTS]


def _weight(cycle: Cycle, rule: SpreadConstraint, groups: list[EquivalenceClass]) -> float:
    """Grows with the number of domains."""
    domains = {cycle.cluster.domain(group, rule.key) for group in groups}
    size = sum(map(len, groups)) if rule.key == HOSTNAME_LABEL else len(domains)
    return math.log(size + 2)


def _count_scored_domains(
    cycle: Cycle, rule: SpreadConstraint, rules: list[SpreadConstraint], groups: list[EquivalenceClass], strict: bool
) -> dict[object, int]:
    """Pods on all nodes, for the domains of these groups. Empty for hosts: `_score_nodes` counts their own pods."""
    if rule.key == HOSTNAME_LABEL:
        return {}
    domains = {cycle.cluster.domain(group, rule.key) for group in groups}
    found: dict[object, int] = dict.fromkeys(domains, 0)
    for group in cycle.groups:
        domain = cycle.cluster.domain(group, rule.key)
        if domain not in found or (strict and not _has_all_keys(cycle, group, rules)):
            continue
        if _counts_nodes(cycle.info, rule, group):
            found[domain] += _matching_pods(group, rule, cycle.info) * len(group)
    return found


def _score_nodes(
    cycle: Cycle,
    group: EquivalenceClass,
    rules: list[SpreadConstraint],
    weights: list[float],
    counts: list[dict[object, int]],
) -> int:
    total = 0.0
    for rule, weight, by_domain in zip(rules, weights, counts, strict=True):
        domain = cycle.cluster.domain(group, rule.key)
        if domain is not None:
            hosts = rule.key == HOSTNAME_LABEL
            count = _matching_pods(group, rule, cycle.info) if hosts else by_domain.get(domain, 0)
            total += float(count) * weight + float(rule.max_skew - 1)
    # Go rounds halves up; Python's round() would take the even neighbour.
    return math.floor(total + 0.5)
