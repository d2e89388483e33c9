"""How an expression is worded, apart from its literals: `mtu > 1500` and `mtu > 9000` are one wording.

Claims by the thousand come from programs, which write one sentence with other names and numbers in it. Such sentences
have the same tree and the same types, so one of them is parsed and checked for all. That holds for literals that are
only compared (`open_literals`); a pattern, a key or a quantity is looked at when an expression is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dranet.cel.syntax.ast import Call, Literal, Node
from dranet.cel.syntax.literals import LiteralError, float_value, int_value, string_value, uint_value
from dranet.cel.syntax.tokens import pieces

_VALUES = {"int": int_value, "uint": uint_value, "float": float_value, "string": string_value}
_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "startsWith", "endsWith", "contains"})


class Wording(msgspec.Struct, frozen=True):
    """A text without its literals, and these."""

    words: tuple[str, ...]
    """All tokens; in place of a literal its kind."""
    literals: tuple[tuple[str, str, int], ...]
    """Kind, text and offset."""


class Open(msgspec.Struct, frozen=True):
    """A literal that may be another one: its place among the literals, and whether a minus belongs to it."""

    place: int
    negative: bool


def wording_of(text: str) -> Wording | None:
    """None for a text that holds something which is no token."""
    words, literals, covered = [], [], 0
    for kind, piece, offset in pieces(text):
        covered += len(piece)
        if kind in _VALUES:
            words.append(f"<{kind}>")
            literals.append((kind, piece, offset))
        elif kind != "skip":
            words.append(piece)
    return Wording(tuple(words), tuple(literals)) if covered == len(text) else None


def open_literals(root: Node, text: str, wording: Wording) -> dict[Open, list[Literal]]:
    """The literals of a tree that are compared and nothing else."""
    compared: dict[int, list[Literal]] = {}
    looked_at: set[int] = set()
    for parent, node in _with_parents(root):
        if isinstance(parent, Call) and parent.function in _COMPARISONS and node is not parent.target:
            compared.setdefault(node.offset, []).append(node)
        else:
            looked_at.add(node.offset)
    found = {}
    for place, (_, _, offset) in enumerate(wording.literals):
        # A negative number stands where its minus is, and blanks may come between the two.
        before = text[:offset].rstrip()
        for where, negative in ((offset, False), (len(before) - 1, before.endswith("-"))):
            if where in compared and where not in looked_at and (where == offset or negative):
                found[Open(place, negative)] = compared[where]
    return found


def values_at(wording: Wording, places: tuple[Open, ...]) -> tuple[Any, ...] | None:
    """The values of these literals; None where one of them has none, such as a number of more than 64 bits."""
    try:
        return tuple(_value(wording.literals[one.place], one.negative) for one in places)
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
