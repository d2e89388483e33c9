"""InterPodAffinity, the part that prefers: near pods that are liked and that like this one, far from the others.

A pod that requires this one near counts too, a little.
"""

from __future__ import annotations

from collections.abc import Iterable

from dranet.scheduling.cycle import Cycle
from dranet.scheduling.filters.inter_pod_affinity import own_terms
from dranet.scheduling.nodes import Alike
from dranet.scheduling.pods import AffinityTerm, Traits
from dranet.scheduling.scores.normal import MOST
from dranet.scheduling.selectors import Labels

_REQUIRED_WEIGHT = 1
Liking = dict[str, dict[object, int]]
"""Points by label and place."""


def score(cycle: Cycle, nodes: list[Alike]) -> list[int] | None:
    """Skipped where nobody prefers anything."""
    if not cycle.cluster.minding and not cycle.traits.preferred_affinity and not cycle.traits.preferred_anti_affinity:
        return None
    liking: Liking = {}
    liked = own_terms(cycle, cycle.traits.preferred_affinity)
    disliked = own_terms(cycle, cycle.traits.preferred_anti_affinity)
    labels = cycle.namespace_labels()
    for alike, other, count in cycle.pods():
        _add(cycle, liking, alike, count, liked, other, {}, 1)
        _add(cycle, liking, alike, count, disliked, other, {}, -1)
        _add(cycle, liking, alike, count, other.affinity, cycle.traits, labels, 1)
        _add(cycle, liking, alike, count, other.preferred_affinity, cycle.traits, labels, 1)
        _add(cycle, liking, alike, count, other.preferred_anti_affinity, cycle.traits, labels, -1)
    if not liking:
        return None
    points = [sum(places.get(cycle.cluster.domain(alike, key), 0) for key, places in liking.items()) for alike in nodes]
    least, most = min(points), max(points)
    return [int(float(MOST) * ((one - least) / (most - least))) if most > least else 0 for one in points]


def _add(
    cycle: Cycle,
    liking: Liking,
    alike: Alike,
    count: int,
    terms: Iterable[AffinityTerm],
    traits: Traits,
    namespace_labels: Labels,
    sign: int,
) -> None:
    for term in terms:
        place = cycle.cluster.domain(alike, term.key)
        if place is not None and term.matches(traits, namespace_labels):
            pods = count if place is alike else count * len(alike)
            places = liking.setdefault(term.key, {})
            places[place] = places.get(place, 0) + sign * pods * (term.weight or _REQUIRED_WEIGHT)
