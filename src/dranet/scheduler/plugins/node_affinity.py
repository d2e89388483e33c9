"""NodeAffinity: nodeSelector, required and preferred node affinity.

If all required terms name nodes (``matchFields``), a PreFilter keeps only these nodes; the others have a reason of
their own. For a node with partially known labels, an unknown label is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dranet.core.untyped import as_dicts, as_list
from dranet.scheduler.allocation.nodes import selector_matches
from dranet.scheduler.framework import Cycle, Filter, NodeScore, PreFilterFailure, Status, normalize_score
from dranet.scheduler.nodes import EquivalenceClass, Node
from dranet.scheduler.pods import HOSTNAME_LABEL, PodInfo

_PLUGIN = "NodeAffinity"
_STATUS = Status(("node(s) didn't match Pod's node affinity/selector",))
_NOT_NAMED = Status((f"node(s) didn't satisfy plugin(s) [{_PLUGIN}]",))
_NAME = "metadata.name"


def pre_filter_names(cycle: Cycle) -> Filter | None:
    """Runs before all other filters: rejects nodes that the pod does not name, if every required term names some."""
    names = _required_names(cycle.info)
    if names is None:
        return None
    if not names:
        raise PreFilterFailure("pod affinity terms conflict", _PLUGIN)

    def check(group: EquivalenceClass) -> Status | None:
        return None if group.sample.name in names else _NOT_NAMED

    return check


def pre_filter(cycle: Cycle) -> Filter | None:
    info = cycle.info
    if not info.node_selector and info.required_nodes is None:
        return None
    for key in label_keys(info) - {HOSTNAME_LABEL}:
        cycle.knows_label(key)

    def check(group: EquivalenceClass) -> Status | None:
        return None if matches_node_affinity(info, group.sample.node) else _STATUS

    return check


def _score(cycle: Cycle, group: EquivalenceClass) -> int:
    node, preferred = group.sample.node, cycle.info.preferred_nodes
    return sum(weight for weight, term in preferred if _matches({"nodeSelectorTerms": [term]}, node))


SCORE = NodeScore(_score, normalize_score, lambda info: bool(info.preferred_nodes))


def matches_node_affinity(info: PodInfo, node: Node) -> bool:
    """Whether nodeSelector and required affinity of the pod match the node."""
    for key, value in info.node_selector:
        if node.labels.get(key, value if node.labels_partial else None) != value:
            return False
    return info.required_nodes is None or _matches(info.required_nodes, node)


def _matches(selector: Mapping[str, Any], node: Node) -> bool:
    """Whether a v1 NodeSelector selects the node."""
    if node.labels_partial:
        known = [_known_part(term, node.labels) for term in as_dicts(selector.get("nodeSelectorTerms"))]
        if any(not any(term.values()) for term in known):
            return True
        selector = {"nodeSelectorTerms": known}
    return selector_matches(selector, node)


def _known_part(term: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    expressions = [one for one in as_dicts(term.get("matchExpressions")) if one.get("key") in labels]
    return {"matchExpressions": expressions, "matchFields": as_dicts(term.get("matchFields"))}


def _required_names(info: PodInfo) -> frozenset[str] | None:
    """The nodes that the required terms name; None if a term names no node."""
    names: set[str] = set()
    terms = as_dicts((info.required_nodes or {}).get("nodeSelectorTerms"))
    for term in terms:
        sets = [
            {str(value) for value in as_list(one.get("values"))}
            for one in as_dicts(term.get("matchFields"))
            if one.get("key") == _NAME and one.get("operator") == "In"
        ]
        if not sets:
            return None
        names |= set.intersection(*sets)
    return frozenset(names) if terms else None


def label_keys(info: PodInfo) -> set[str]:
    """Node labels that the pod refers to, preferences included."""
    keys = {key for key, _ in info.node_selector}
    return keys | {str(one.get("key")) for one in _expressions(info, "matchExpressions")}


def mentioned_nodes(info: PodInfo) -> set[str]:
    """Names and hostnames of nodes that the pod mentions: those differ from otherwise equivalent nodes."""
    names = {value for key, value in info.node_selector if key == HOSTNAME_LABEL}
    by_label = (one for one in _expressions(info, "matchExpressions") if one.get("key") == HOSTNAME_LABEL)
    for one in (*by_label, *_expressions(info, "matchFields")):
        names |= {str(value) for value in as_list(one.get("values"))}
    return names | ({info.node_name} if info.node_name else set())


def _expressions(info: PodInfo, kind: str) -> Iterable[dict[str, Any]]:
    required = as_dicts((info.required_nodes or {}).get("nodeSelectorTerms"))
    for term in (*required, *(term for _, term in info.preferred_nodes)):
        yield from as_dicts(term.get(kind))
