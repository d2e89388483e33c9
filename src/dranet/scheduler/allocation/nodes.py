"""Which nodes a slice or device belongs to: node names, all nodes, or a node selector over labels and fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from dranet.scheduler.label_selectors import requirement_matches

_NODE_NAME = "metadata.name"


class NodeLabels(Protocol):
    """A node's name and labels, and the features that its kubelet declares."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def declared_features(self) -> frozenset[str]: ...


class _NodeLabels(msgspec.Struct, frozen=True):
    name: str
    labels: Mapping[str, str]
    declared_features: frozenset[str]


def read_node_labels(raw: NodeLabels | Mapping[str, Any]) -> NodeLabels:
    """From `{"name", "labels", "declaredFeatures"}` or a v1 Node."""
    if not isinstance(raw, Mapping):
        return raw
    meta, status = raw.get("metadata") or raw, raw.get("status") or raw
    features = frozenset(status.get("declaredFeatures") or ())
    return _NodeLabels(meta["name"], dict(meta.get("labels") or {}), features)


def node_matches(node: NodeLabels, node_name: str | None, all_nodes: bool, selector: Mapping[str, Any] | None) -> bool:
    """Precedence: a name, then all nodes, then the selector."""
    if node_name:
        return node.name == node_name
    if all_nodes:
        return True
    return selector is not None and selector_matches(selector, node)


def selector_matches(selector: Mapping[str, Any], node: NodeLabels) -> bool:
    """Terms are alternatives; an empty term matches nothing."""
    return any(_term_matches(term, node) for term in selector.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], node: NodeLabels) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    by_label = all(_requirement_matches(one, node.labels) for one in expressions)
    return by_label and all(_requirement_matches(one, {_NODE_NAME: node.name}) for one in fields)


def _requirement_matches(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value, operator = labels.get(requirement.get("key") or ""), requirement.get("operator") or ""
    return requirement_matches(value, operator, requirement.get("values") or ())
