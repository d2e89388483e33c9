"""Ranges of sizes and costs in saturating 64-bit arithmetic, as the API server computes them."""

from __future__ import annotations

import math

import msgspec

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
