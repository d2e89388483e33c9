"""InterPodAffinity: affinity and anti-affinity between pods, of the pod itself and of pods on nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from dranet.scheduler.framework import MAX_NODE_SCORE, Cycle, Filter, Status
from dranet.scheduler.label_selectors import NOTHING, Labels
from dranet.scheduler.nodes import EquivalenceClass
from dranet.scheduler.pods import AffinityTerm, PodInfo

_AFFINITY = Status(("node(s) didn't match pod affinity rules",))
_ANTI_AFFINITY = Status(("node(s) didn't match pod anti-affinity rules",), resolvable=True)
_EXISTING_ANTI_AFFINITY = Status(("node(s) didn't satisfy existing pods anti-affinity rules",), resolvable=True)
_HARD_POD_AFFINITY_WEIGHT = 1
_Domains = set[tuple[str, object]]
"""Topology key and domain."""
_Scores = dict[str, dict[object, int]]
"""Scores by topology key and domain."""


def pre_filter(cycle: Cycle) -> Filter | None:
    affinity = _own_terms(cycle, cycle.info.affinity)
    anti_affinity = _own_terms(cycle, cycle.info.anti_affinity)
    existing = _existing_anti_affinity(cycle)
    if not affinity and not anti_affinity and not existing:
        return None
    near = _domains(cycle, affinity, lambda info: affinity if _matches_all(affinity, info) else ())
    far = _domains(cycle, anti_affinity, lambda info: [term for term in anti_affinity if term.matches(info, {})])
    # A pod that matches its own affinity terms may be the first one.
    is_first = not near and _matches_all(affinity, cycle.info)
    existing_keys = {key for key, _ in existing}
    domain = cycle.cluster.domain

    def check(group: EquivalenceClass) -> Status | None:
        domains = [(term.key, domain(group, term.key)) for term in affinity]
        if any(value is None for _, value in domains):
            return _AFFINITY
        if not is_first and not near.issuperset(domains):
            return _AFFINITY
        if any((term.key, domain(group, term.key)) in far for term in anti_affinity):
            return _ANTI_AFFINITY
        return _EXISTING_ANTI_AFFINITY if any((key, domain(group, key)) in existing for key in existing_keys) else None

    return check


def _own_terms(cycle: Cycle, terms: Iterable[AffinityTerm]) -> list[AffinityTerm]:
    """The pod's terms with resolved namespace selectors, without terms about unknown labels."""
    return [_with_namespaces(cycle, term) for term in terms if cycle.knows_label(term.key)]


def _with_namespaces(cycle: Cycle, term: AffinityTerm) -> AffinityTerm:
    # An empty selector stays: it also matches namespaces that are not in the input.
    if term.namespace_selector.everything or term.namespace_selector.nothing:
        return term
    selected = [name for name, labels in cycle.namespaces.items() if term.namespace_selector.matches(labels)]
    return replace(term, namespaces=term.namespaces.union(selected), namespace_selector=NOTHING)


def _matches_all(terms: list[AffinityTerm], info: PodInfo) -> bool:
    return bool(terms) and all(term.matches(info, {}) for term in terms)


def _domains(
    cycle: Cycle, terms: Iterable[AffinityTerm], matching: Callable[[PodInfo], Iterable[AffinityTerm]]
) -> _Domains:
    """The domains of all pods on nodes for their matching terms."""
    if not terms:
        return set()
    found = {
        (term.key, cycle.cluster.domain(group, term.key)) for group, info, _ in cycle.pods() for term in matching(info)
    }
    return {(key, domain) for key, domain in found if domain is not None}


def _existing_anti_affinity(cycle: Cycle) -> _Domains:
    """The domains of pods on nodes with a required anti-affinity against this pod."""
    labels = cycle.namespace_labels()

    def matching(other: PodInfo) -> list[AffinityTerm]:
        return [
            term for term in other.anti_affinity if cycle.knows_label(term.key) and term.matches(cycle.info, labels)
        ]

    terms = [term for other in cycle.cluster.pods_with_affinity for term in other.anti_affinity]
    return _domains(cycle, [term for term in terms if term.matches(cycle.info, labels)], matching)


def score(cycle: Cycle, groups: list[EquivalenceClass]) -> list[int] | None:
    info = cycle.info
    if not cycle.cluster.pods_with_affinity and not info.preferred_affinity and not info.preferred_anti_affinity:
        return None
    scores: _Scores = {}
    affinity = _own_terms(cycle, info.preferred_affinity)
    anti_affinity = _own_terms(cycle, info.preferred_anti_affinity)
    labels = cycle.namespace_labels()
    for group, other, count in cycle.pods():
        _add(cycle, scores, group, count, affinity, other, {}, 1)
        _add(cycle, scores, group, count, anti_affinity, other, {}, -1)
        _add(cycle, scores, group, count, other.affinity, info, labels, 1)
        _add(cycle, scores, group, count, other.preferred_affinity, info, labels, 1)
        _add(cycle, scores, group, count, other.preferred_anti_affinity, info, labels, -1)
    if not scores:
        return None
    sums = [
        sum(domains.get(cycle.cluster.domain(group, key), 0) for key, domains in scores.items()) for group in groups
    ]
    least, most = min(sums), max(sums)
    return [int(float(MAX_NODE_SCORE) * ((one - least) / (most - least))) if most > least else 0 for one in sums]


def _add(
    cycle: Cycle,
    scores: _Scores,
    group: EquivalenceClass,
    count: int,
    terms: Iterable[AffinityTerm],
    info: PodInfo,
    namespace_labels: Labels,
    sign: int,
) -> None:
    for term in terms:
        domain = cycle.cluster.domain(group, term.key)
        if domain is not None and term.matches(info, namespace_labels):
            pods = count if domain is group else count * len(group)
            domains = scores.setdefault(term.key, {})
            # Required affinity of pods on nodes has no weight of its own.
            domains[domain] = domains.get(domain, 0) + sign * pods * (term.weight or _HARD_POD_AFFINITY_WEIGHT)
