"""The abstract syntax of CEL.

Nodes are identity objects: the checker stores types and resolved overloads on them, and the position of a node is the
offset of its most telling token (an operator, the opening bracket of a call), because that is where errors point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dranet.cel.types import Type

ACCUMULATOR = "@result"


class Node:
    """Common part of all expressions. `type` and `overloads` are filled in by the checker."""

    __slots__ = ("offset", "overloads", "type")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.type: Type | None = None
        self.overloads: tuple[str, ...] = ()

    def children(self) -> list[Node]:
        return []


class Literal(Node):
    __slots__ = ("value",)

    def __init__(self, offset: int, value: Any) -> None:
        super().__init__(offset)
        self.value = value


class Ident(Node):
    __slots__ = ("name",)

    def __init__(self, offset: int, name: str) -> None:
        super().__init__(offset)
        self.name = name


class Select(Node):
    """`operand.field`; with `test` it is what `has()` expands to."""

    __slots__ = ("field", "operand", "test")

    def __init__(self, offset: int, operand: Node, field: str, test: bool = False) -> None:
        super().__init__(offset)
        self.operand = operand
        self.field = field
        self.test = test

    def children(self) -> list[Node]:
        return [self.operand]


class Call(Node):
    """A function, operator or method call; `target` is the receiver of a method."""

    __slots__ = ("args", "function", "target")

    def __init__(self, offset: int, function: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(offset)
        self.function = function
        self.args = args
        self.target = target

    def children(self) -> list[Node]:
        return ([self.target] if self.target is not None else []) + self.args


class ListNode(Node):
    __slots__ = ("elements", "optionals")

    def __init__(self, offset: int, elements: list[Node], optionals: frozenset[int] = frozenset()) -> None:
        super().__init__(offset)
        self.elements = elements
        self.optionals = optionals

    def children(self) -> list[Node]:
        return list(self.elements)


class Entry:
    """`key: value` in a map, or `field: value` in a message (then `key` is the field name)."""

    __slots__ = ("key", "offset", "optional", "value")

    def __init__(self, offset: int, key: Any, value: Node, optional: bool = False) -> None:
        self.offset = offset
        self.key = key
        self.value = value
        self.optional = optional


class MapNode(Node):
    __slots__ = ("entries",)

    def __init__(self, offset: int, entries: list[Entry]) -> None:
        super().__init__(offset)
        self.entries = entries

    def children(self) -> list[Node]:
        return [node for entry in self.entries for node in (entry.key, entry.value)]


class StructNode(Node):
    __slots__ = ("entries", "name")

    def __init__(self, offset: int, name: str, entries: list[Entry]) -> None:
        super().__init__(offset)
        self.name = name
        self.entries = entries

    def children(self) -> list[Node]:
        return [entry.value for entry in self.entries]


class Comprehension(Node):
    """The loop all macros expand to; `var2` is set for two-variable comprehensions."""

    __slots__ = ("accu", "condition", "init", "range", "result", "step", "var", "var2")

    def __init__(
        self,
        offset: int,
        range_: Node,
        var: str,
        init: Node,
        condition: Node,
        step: Node,
        result: Node,
        *,
        accu: str = ACCUMULATOR,
        var2: str = "",
    ) -> None:
        super().__init__(offset)
        self.range = range_
        self.var = var
        self.var2 = var2
        self.accu = accu
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result

    def children(self) -> list[Node]:
        return [self.range, self.init, self.condition, self.step, self.result]


class ErrorNode(Node):
    """Stands where something could not be parsed; an expression holding one is never evaluated."""

    __slots__ = ()


def qualified_name(node: Node) -> str | None:
    """`a.b.c` for a chain of plain selections, else None."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        prefix = qualified_name(node.operand)
        return f"{prefix}.{node.field}" if prefix is not None else None
    return None
