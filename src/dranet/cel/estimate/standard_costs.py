"""Worst-case costs of standard library calls from the sizes of their arguments, in saturating 64-bit arithmetic.

The API server computes the same ranges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from dranet.cel import types as t
from dranet.cel.run.cost import REGEX, TRAVERSAL
from dranet.cel.syntax.ast import Node

MAX = (1 << 64) - 1


def _plus(one: int, other: int) -> int:
    return min(one + other, MAX)


def _times(one: int, other: int) -> int:
    return min(one * other, MAX)


def _scaled(value: int, factor: float) -> int:
    real = float(value)
    if real > 0 and factor > 0 and real > float(MAX) / factor:
        return MAX
    result = math.ceil(real * factor)
    return MAX if result >= 1 << 64 else result


class Range(msgspec.Struct, frozen=True):
    """At least `min`, at most `max`."""

    min: int
    max: int

    def __add__(self, other: Range) -> Range:
        return Range(_plus(self.min, other.min), _plus(self.max, other.max))

    def __mul__(self, other: Range) -> Range:
        return Range(_times(self.min, other.min), _times(self.max, other.max))

    def scaled(self, factor: float) -> Range:
        """Both ends times a factor, rounded up; unbounded stays unbounded."""
        return Range(_scaled(self.min, factor), _scaled(self.max, factor))

    def union(self, other: Range) -> Range:
        """The smallest range that holds both: either may be what happens."""
        return Range(min(self.min, other.min), max(self.max, other.max))


def fixed(value: int) -> Range:
    """A range of exactly one value."""
    return Range(value, value)


UNKNOWN = Range(0, MAX)
ZERO, ONE = fixed(0), fixed(1)
Path = tuple[str, ...]
"""A variable and the fields below it."""


class Measured(msgspec.Struct, frozen=True):
    """An argument of a call as cost functions see it."""

    node: Node | None
    path: Path
    type: t.Type
    size: Range | None


class CallEstimate(msgspec.Struct, frozen=True):
    """The cost of a call and, where it is known, the size of its result."""

    cost: Range
    size: Range | None = None


def known_size(measured: Measured) -> Range:
    """Its size, or any size where nothing is known."""
    return measured.size or UNKNOWN


def standard_call(overload: str, target: Measured | None, args: Sequence[Measured]) -> CallEstimate:
    """Functions of the standard library whose cost depends on sizes; everything else costs one."""
    if overload == "string_format" and target is not None:
        return CallEstimate(known_size(target).scaled(TRAVERSAL))
    if overload == "string_to_bytes":
        size = known_size(args[0])
        return CallEstimate(size.scaled(TRAVERSAL), Range(size.min, size.max * 4 & MAX))
    if overload == "bytes_to_string":
        size = known_size(args[0])
        return CallEstimate(size.scaled(TRAVERSAL), Range(size.min // 4, size.max))
    if overload == "strings_quote":
        size = known_size(args[0])
        return CallEstimate(size.scaled(TRAVERSAL), Range(size.min + 2 & MAX, size.max * 2 + 2 & MAX))
    if overload in ("starts_with_string", "ends_with_string"):
        return CallEstimate(known_size(args[0]).scaled(TRAVERSAL))
    if overload == "in_list":
        return CallEstimate(known_size(args[1]).scaled(1))
    if overload == "matches_string" and target is not None:
        return CallEstimate((known_size(target) + ONE).scaled(TRAVERSAL) * known_size(args[0]).scaled(REGEX))
    if overload == "contains_string" and target is not None:
        return CallEstimate(known_size(target).scaled(TRAVERSAL) * known_size(args[0]).scaled(TRAVERSAL))
    if overload in _COMPARISONS:
        smallest = min(known_size(args[0]).max, known_size(args[1]).max)
        return CallEstimate(Range(1 if smallest > 0 else 0, smallest).scaled(TRAVERSAL))
    return CallEstimate(ONE)


_COMPARISONS = frozenset(
    [
        f"{order}_{kind}"
        for order in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    ]
    + ["equals", "not_equals"]
)
