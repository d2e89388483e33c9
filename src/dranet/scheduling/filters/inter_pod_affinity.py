"""InterPodAffinity, the part that rules out: pods that want others near, or far, and others that want this one far.

A pod that wants such pods near as it is itself may be the first of them anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dranet.scheduling.cycle import Check, Cycle, Rejection
from dranet.scheduling.nodes import Alike
from dranet.scheduling.pods import AffinityTerm, Traits
from dranet.scheduling.selectors import NOTHING

NOT_NEAR = Rejection(("node(s) didn't match pod affinity rules",))
NOT_FAR = Rejection(("node(s) didn't match pod anti-affinity rules",), preemptible=True)
UNWANTED = Rejection(("node(s) didn't satisfy existing pods anti-affinity rules",), preemptible=True)
Places = set[tuple[str, object]]
"""Label and value."""


def prepare(cycle: Cycle) -> Check | None:
    """Skipped where nobody minds anybody."""
    near = own_terms(cycle, cycle.traits.affinity)
    far = own_terms(cycle, cycle.traits.anti_affinity)
    unwanted = _unwanted(cycle)
    if not near and not far and not unwanted:
        return None
    near_places, far_places = _places_near(cycle, near), _places_far(cycle, far)
    first = not near_places and _all_match(near, cycle.traits)
    domain = cycle.cluster.domain

    def check(alike: Alike) -> Rejection | None:
        places = [(term.key, domain(alike, term.key)) for term in near]
        if any(place is None for _, place in places):
            return NOT_NEAR
        if not first and not near_places.issuperset(places):
            return NOT_NEAR
        if any((term.key, domain(alike, term.key)) in far_places for term in far):
            return NOT_FAR
        return UNWANTED if any((key, domain(alike, key)) in unwanted for key in {key for key, _ in unwanted}) else None

    return check


def own_terms(cycle: Cycle, terms: Iterable[AffinityTerm]) -> list[AffinityTerm]:
    """The pod's terms with namespaces looked up; those about labels that are not known are left out."""
    return [_with_namespaces(cycle, term) for term in terms if cycle.knows(term.key)]


def _with_namespaces(cycle: Cycle, term: AffinityTerm) -> AffinityTerm:
    # A selector that asks nothing stays as it is: it means namespaces that nobody has told us about as well.
    if term.namespace_selector.everything or term.namespace_selector.nothing:
        return term
    meant = [name for name, labels in cycle.namespaces.items() if term.namespace_selector.matches(labels)]
    return replace(term, namespaces=term.namespaces.union(meant), namespace_selector=NOTHING)


def _all_match(terms: list[AffinityTerm], traits: Traits) -> bool:
    return bool(terms) and all(term.matches(traits, {}) for term in terms)


def _places_near(cycle: Cycle, terms: list[AffinityTerm]) -> Places:
    """Where pods are that match all terms at once."""
    if not terms:
        return set()
    found = {
        (term.key, cycle.cluster.domain(alike, term.key))
        for alike, traits, _ in cycle.pods()
        if _all_match(terms, traits)
        for term in terms
    }
    return {(key, place) for key, place in found if place is not None}


def _places_far(cycle: Cycle, terms: list[AffinityTerm]) -> Places:
    """Where pods are that match any of the terms."""
    if not terms:
        return set()
    found = {
        (term.key, cycle.cluster.domain(alike, term.key))
        for alike, traits, _ in cycle.pods()
        for term in terms
        if term.matches(traits, {})
    }
    return {(key, place) for key, place in found if place is not None}


def _unwanted(cycle: Cycle) -> Places:
    """Where pods are that do not want this one near."""
    labels = cycle.namespace_labels()
    if not any(term.matches(cycle.traits, labels) for other in cycle.cluster.minding for term in other.anti_affinity):
        return set()
    found = {
        (term.key, cycle.cluster.domain(alike, term.key))
        for alike, traits, _ in cycle.pods()
        for term in traits.anti_affinity
        if cycle.knows(term.key) and term.matches(cycle.traits, labels)
    }
    return {(key, place) for key, place in found if place is not None}
