"""NodeAffinity: nodeSelector and required node affinity.

Terms that all name nodes (``matchFields``) narrow the search before any node is looked at; the others are then counted
under a reason of their own. Of a node whose labels are not all known, a label that is not there is not asked about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dranet.allocation.nodes import Node, selector_matches
from dranet.model.untyped import mappings, sequence
from dranet.scheduling.cycle import Check, Cycle, Refused, Rejection
from dranet.scheduling.nodes import Alike, NodeFacts
from dranet.scheduling.pods import HOST, Traits

PLUGIN = "NodeAffinity"
REJECTION = Rejection(("node(s) didn't match Pod's node affinity/selector",))
NOT_NAMED = Rejection((f"node(s) didn't satisfy plugin(s) [{PLUGIN}]",))
_NAME = "metadata.name"


def prepare_named(cycle: Cycle) -> Check | None:
    """Before every other filter: nodes that the pod does not name where it names some in every term."""
    only = named_nodes(cycle.traits)
    if only is None:
        return None
    if not only:
        raise Refused("pod affinity terms conflict", PLUGIN)

    def check(alike: Alike) -> Rejection | None:
        return None if alike.sample.name in only else NOT_NAMED

    return check


def prepare(cycle: Cycle) -> Check | None:
    """Skipped for pods that go anywhere."""
    traits = cycle.traits
    if not traits.node_selector and traits.required_nodes is None:
        return None
    for key in asked_keys(traits) - {HOST}:
        cycle.knows(key)

    def check(alike: Alike) -> Rejection | None:
        return None if wanted(traits, alike.sample.facts) else REJECTION

    return check


def wanted(traits: Traits, facts: NodeFacts) -> bool:
    """Whether the pod may go to the node by its selector and its required affinity."""
    if any(facts.labels.get(key, value if facts.partial else None) != value for key, value in traits.node_selector):
        return False
    return traits.required_nodes is None or matches(traits.required_nodes, facts)


def matches(selector: Mapping[str, Any], facts: NodeFacts) -> bool:
    """Whether a v1 NodeSelector means the node."""
    if facts.partial:
        known = [_known_part(term, facts.labels) for term in mappings(selector.get("nodeSelectorTerms"))]
        if any(not any(term.values()) for term in known):
            return True
        selector = {"nodeSelectorTerms": known}
    return selector_matches(selector, Node(facts.name, facts.labels))


def _known_part(term: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    expressions = [one for one in mappings(term.get("matchExpressions")) if one.get("key") in labels]
    return {"matchExpressions": expressions, "matchFields": mappings(term.get("matchFields"))}


def named_nodes(traits: Traits) -> frozenset[str] | None:
    """The nodes it may go to, where every term names some; None where one does not."""
    names: set[str] = set()
    terms = mappings((traits.required_nodes or {}).get("nodeSelectorTerms"))
    for term in terms:
        sets = [
            {str(value) for value in sequence(one.get("values"))}
            for one in mappings(term.get("matchFields"))
            if one.get("key") == _NAME and one.get("operator") == "In"
        ]
        if not sets:
            return None
        names |= set.intersection(*sets)
    return frozenset(names) if terms else None


def asked_keys(traits: Traits) -> set[str]:
    """Labels of nodes that the pod asks about, preferences included."""
    keys = {key for key, _ in traits.node_selector}
    return keys | {str(one.get("key")) for one in _expressions(traits, "matchExpressions")}


def asked_names(traits: Traits) -> set[str]:
    """Names and host names of nodes that the pod mentions: those it treats differently from all others."""
    names = {value for key, value in traits.node_selector if key == HOST}
    by_label = (one for one in _expressions(traits, "matchExpressions") if one.get("key") == HOST)
    for one in (*by_label, *_expressions(traits, "matchFields")):
        names |= {str(value) for value in sequence(one.get("values"))}
    return names | ({traits.node_name} if traits.node_name else set())


def _expressions(traits: Traits, kind: str) -> Iterable[dict[str, Any]]:
    required = mappings((traits.required_nodes or {}).get("nodeSelectorTerms"))
    for term in (*required, *(term for _, term in traits.preferred_nodes)):
        yield from mappings(term.get(kind))
