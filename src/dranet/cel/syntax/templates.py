"""Expressions without their literals: `mtu > 1500` and `mtu > 9000` have one template.

Programs write thousands of claims whose selectors differ only in names and numbers. These have the same tree and the
same types, so the engine parses and checks one of them for all. This holds for literals that are only compared
(`free_literals`); a pattern, a key or a quantity is evaluated when an expression is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dranet.cel.syntax.ast import Call, Literal, Node
from dranet.cel.syntax.literals import LiteralError, bytes_value, float_value, int_value, string_value, uint_value
from dranet.cel.syntax.tokens import pieces

_VALUES = {"int": int_value, "uint": uint_value, "float": float_value, "string": string_value, "bytes": bytes_value}
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith", "contains"})


class ExpressionTemplate(msgspec.Struct, frozen=True):
    """The tokens of an expression with placeholders for its literals, and the literals."""

    tokens: tuple[str, ...]
    """All tokens; the kind in place of a literal."""
    literals: tuple[tuple[str, str, int], ...]
    """Kind, text and offset."""


class FreeLiteral(msgspec.Struct, frozen=True):
    """A literal that may differ between expressions of one template: its index, and whether a minus belongs to it."""

    index: int
    negative: bool


def read_template(text: str) -> ExpressionTemplate | None:
    """None for a text with characters that are not part of a token."""
    tokens, literals, covered = [], [], 0
    for kind, piece, offset in pieces(text):
        covered += len(piece)
        if kind in _VALUES:
            tokens.append(f"<{kind}>")
            literals.append((kind, piece, offset))
        elif kind != "skip":
            tokens.append(piece)
    return ExpressionTemplate(tuple(tokens), tuple(literals)) if covered == len(text) else None


def free_literals(root: Node, text: str, template: ExpressionTemplate) -> dict[FreeLiteral, list[Literal]]:
    """The literals of a tree that are only compared."""
    compared: dict[int, list[Literal]] = {}
    other_uses: set[int] = set()
    for parent, node in _with_parents(root):
        if isinstance(parent, Call) and parent.function in _COMPARISONS and node is not parent.target:
            compared.setdefault(node.offset, []).append(node)
        else:
            other_uses.add(node.offset)
    found = {}
    for index, (_, _, offset) in enumerate(template.literals):
        # The offset of a negative number is that of its minus, and blanks may come between the two.
        before = text[:offset].rstrip()
        for where, negative in ((offset, False), (len(before) - 1, before.endswith("-"))):
            if where in compared and where not in other_uses and (where == offset or negative):
                found[FreeLiteral(index, negative)] = compared[where]
    return found


def literal_values(template: ExpressionTemplate, places: tuple[FreeLiteral, ...]) -> tuple[Any, ...] | None:
    """The values of these literals; None if one is invalid, such as a number of more than 64 bits."""
    try:
        return tuple(_value(template.literals[one.index], one.negative) for one in places)
    except LiteralError:
        return None


def _value(literal: tuple[str, str, int], negative: bool) -> Any:
    kind, text, _ = literal
    return _VALUES[kind](f"-{text}" if negative else text)


def _with_parents(node: Node) -> Iterator[tuple[Node, Literal]]:
    for child in node.children():
        if isinstance(child, Literal):
            yield node, child
        else:
            yield from _with_parents(child)
