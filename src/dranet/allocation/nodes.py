"""Which nodes a slice or device belongs to: node names, all nodes, or a node selector over labels and fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NODE_NAME = "metadata.name"


class Node:
    """Name and labels of a node."""

    __slots__ = ("labels", "name")

    def __init__(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.labels = dict(labels or {})


def read_node(raw: Mapping[str, Any]) -> Node:
    """A node from `{"name", "labels"}` or from a v1 Node object."""
    meta = raw.get("metadata") or raw
    return Node(meta["name"], meta.get("labels"))


def node_matches(node: Node, node_name: str | None, all_nodes: bool, selector: Mapping[str, Any] | None) -> bool:
    """Precedence: a name, then all nodes, then the selector."""
    if node_name:
        return node.name == node_name
    if all_nodes:
        return True
    return selector is not None and selector_matches(selector, node)


def selector_matches(selector: Mapping[str, Any], node: Node) -> bool:
    """Terms are alternatives; an empty term matches nothing."""
    return any(_term_matches(term, node) for term in selector.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], node: Node) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    by_label = all(_requirement_matches(one, node.labels) for one in expressions)
    return by_label and all(_requirement_matches(one, {_NODE_NAME: node.name}) for one in fields)


def _requirement_matches(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.get("key") or "")
    values: Sequence[str] = requirement.get("values") or ()
    operator = requirement.get("operator")
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    return _compares(operator, value, values)


def _compares(operator: str | None, value: str | None, values: Sequence[str]) -> bool:
    try:
        actual, wanted = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return actual > wanted if operator == "Gt" else operator == "Lt" and actual < wanted
