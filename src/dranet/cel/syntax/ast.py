"""The abstract syntax of CEL.

Nodes are identity objects: the checker stores types and resolved overloads on them, and the position of a node is the
offset of its most telling token (an operator, the opening bracket of a call), because that is where errors point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dranet.cel.types import Type

ACCUMULATOR = "@result"


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """Common part of all expressions. `type` and `overloads` are filled in by the checker."""

    offset: int
    type: Type | None = field(default=None, init=False)
    overloads: tuple[str, ...] = field(default=(), init=False)

    def children(self) -> list[Node]:
        return []


@dataclass(slots=True, eq=False, repr=False)
class Literal(Node):
    value: Any


@dataclass(slots=True, eq=False, repr=False)
class Ident(Node):
    name: str


@dataclass(slots=True, eq=False, repr=False)
class Select(Node):
    """`operand.field`; with `test` it is what `has()` expands to."""

    operand: Node
    field: str
    test: bool = False

    def children(self) -> list[Node]:
        return [self.operand]


@dataclass(slots=True, eq=False, repr=False)
class Call(Node):
    """A function, operator or method call; `target` is the receiver of a method."""

    function: str
    args: list[Node]
    target: Node | None = None

    def children(self) -> list[Node]:
        return ([self.target] if self.target is not None else []) + self.args


@dataclass(slots=True, eq=False, repr=False)
class ListNode(Node):
    elements: list[Node]
    optionals: frozenset[int] = frozenset()

    def children(self) -> list[Node]:
        return list(self.elements)


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """`key: value` in a map, or `field: value` in a message (then `key` is the field name)."""

    offset: int
    key: Any
    value: Node
    optional: bool = False


@dataclass(slots=True, eq=False, repr=False)
class MapNode(Node):
    entries: list[Entry]

    def children(self) -> list[Node]:
        return [node for entry in self.entries for node in (entry.key, entry.value)]


@dataclass(slots=True, eq=False, repr=False)
class StructNode(Node):
    name: str
    entries: list[Entry]

    def children(self) -> list[Node]:
        return [entry.value for entry in self.entries]


@dataclass(slots=True, eq=False, repr=False)
class Comprehension(Node):
    """The loop all macros expand to; `var2` is set for two-variable comprehensions."""

    range: Node
    var: str
    init: Node
    condition: Node
    step: Node
    result: Node
    accu: str = ACCUMULATOR
    var2: str = ""

    def children(self) -> list[Node]:
        return [self.range, self.init, self.condition, self.step, self.result]


class ErrorNode(Node):
    """Stands where something could not be parsed; an expression holding one is never evaluated."""


def qualified_name(node: Node) -> str | None:
    """`a.b.c` for a chain of plain selections, else None."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        prefix = qualified_name(node.operand)
        return f"{prefix}.{node.field}" if prefix is not None else None
    return None
