"""Values an expression computes with.

Python's own types serve where they can: bool, int, float, str, bytes, None, list. What Python cannot tell apart gets
a class: an unsigned integer is not an integer, and a map must not confuse the keys 1 and true. Equality and order
are functions here, not `==`, because CEL compares across numeric types and answers with errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err

MIN_INT, MAX_INT, MAX_UINT = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1


class Uint(int):
    """An unsigned integer."""

    __slots__ = ()


class Duration(msgspec.Struct, frozen=True):
    nanos: int


class Timestamp(msgspec.Struct, frozen=True):
    """Nanoseconds since 1970 in UTC."""

    nanos: int


class OptionalValue:
    """`optional.of(x)` or, with no value, `optional.none()`."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any = None, *, present: bool = True) -> None:
        self.value = value
        self.present = present


NONE = OptionalValue(present=False)
MISSING = object()


class Opaque:
    """Base of extension objects (versions, quantities, addresses). Subclasses say their type and how they compare."""

    __slots__ = ()
    type: t.Type

    def equal(self, other: Any) -> Any:
        raise NotImplementedError

    def size(self) -> int | None:
        """For objects that can be measured; the cost of a call may depend on it."""
        return None


class Struct:
    """A message-like object with declared fields; an unset field reads as its zero value."""

    __slots__ = ("defaults", "fields", "type")

    def __init__(self, type_: t.Type, fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.type = type_
        self.fields = fields
        self.defaults = defaults


def _token(key: Any) -> Any:
    return ("bool", key) if key.__class__ is bool else key


class Map:
    """A map whose keys are strings, booleans or numbers; 1, 1u and 1.0 are one key, true is another."""

    __slots__ = ("_entries",)

    def __init__(self, pairs: Iterable[tuple[Any, Any]] = ()) -> None:
        self._entries = {_token(key): (key, value) for key, value in pairs}

    def find(self, key: Any) -> Any:
        """The value of a key, MISSING where there is none. Numbers of all kinds are one key: 1, 1u and 1.0."""
        try:
            entry = self._entries.get(_token(key))
        except TypeError:
            return MISSING
        return MISSING if entry is None else entry[1]

    def contains(self, key: Any) -> bool:
        """Whether the key exists; false for a value that cannot be a key."""
        try:
            return _token(key) in self._entries
        except TypeError:
            return False

    def keys(self) -> list[Any]:
        """In the order in which they were written."""
        return [key for key, _ in self._entries.values()]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Keys with their values, in the order in which they were written."""
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def to_cel(value: Any) -> Any:
    """Plain Python data as CEL values."""
    if isinstance(value, dict):
        return Map((key, to_cel(inner)) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return [to_cel(inner) for inner in value]
    return value


def to_python(value: Any) -> Any:
    """CEL values as plain Python data."""
    if isinstance(value, Map):
        return {key: to_python(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [to_python(inner) for inner in value]
    return value


_TYPES: dict[type, t.Type] = {
    bool: t.BOOL, int: t.INT, Uint: t.UINT, float: t.DOUBLE, str: t.STRING, bytes: t.BYTES, type(None): t.NULL,
    list: t.list_of(t.DYN), Map: t.map_of(t.DYN, t.DYN), Duration: t.DURATION, Timestamp: t.TIMESTAMP, t.Type: t.TYPE,
    OptionalValue: t.optional_of(t.DYN),
}  # fmt: skip


def type_of(value: Any) -> t.Type:
    """The CEL type of a value at run time."""
    found = _TYPES.get(value.__class__)
    if found is not None:
        return found
    declared = getattr(value, "type", None)
    return declared if isinstance(declared, t.Type) else t.DYN


def type_name(value: Any) -> str:
    """As error messages and ``type()`` name it."""
    return type_of(value).name


def is_number(value: Any) -> bool:
    """int, uint or double, which compare with each other; not bool, although it is an int in Python."""
    return value.__class__ in (int, Uint, float)


def equal(left: Any, right: Any) -> Any:
    """True, False or an error; objects on the left refuse to be compared with other types."""
    if left is None or right is None:
        return left is right
    kind = left.__class__
    if kind is str or kind is bool or kind is bytes:
        return right.__class__ is kind and left == right
    if kind in (int, Uint, float):
        return is_number(right) and left == right
    if kind is list:
        return _lists_equal(left, right)
    if kind is Map:
        return _maps_equal(left, right)
    if isinstance(left, Opaque):
        return left.equal(right)
    if kind is OptionalValue:
        return _optionals_equal(left, right)
    if kind is Struct:
        return right.__class__ is Struct and left.type == right.type and _fields_equal(left, right)
    if kind is t.Type:
        return right.__class__ is t.Type and left.name == right.name
    return right.__class__ is kind and left == right


def _lists_equal(left: list[Any], right: Any) -> bool:
    if right.__class__ is not list or len(left) != len(right):
        return False
    return all(equal(one, other) is not False for one, other in zip(left, right, strict=True))


def _maps_equal(left: Map, right: Any) -> bool:
    if not isinstance(right, Map) or len(left) != len(right):
        return False
    for key, value in left.items():
        other = right.find(key)
        if other is MISSING or equal(value, other) is False:
            return False
    return True


def _optionals_equal(left: OptionalValue, right: Any) -> Any:
    if right.__class__ is not OptionalValue or left.present != right.present:
        return False
    return equal(left.value, right.value) if left.present else True


def _fields_equal(left: Struct, right: Struct) -> bool:
    return all(
        equal(left.fields.get(name, zero), right.fields.get(name, zero)) is True for name, zero in left.defaults.items()
    )


def compare(left: Any, right: Any) -> Any:
    """-1, 0, 1 or an error."""
    if is_number(left) and is_number(right):
        if (left.__class__ is float and math.isnan(left)) or (right.__class__ is float and math.isnan(right)):
            return Err("NaN values cannot be ordered")
    elif left.__class__ is not right.__class__:
        return NO_SUCH_OVERLOAD
    elif isinstance(left, (Duration, Timestamp)):
        left, right = left.nanos, right.nanos
    elif isinstance(left, str):
        left, right = left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass")
    return (left > right) - (left < right)


def size_of(value: Any) -> int | None:
    """Length of strings (in characters), bytes, lists, maps and measurable objects."""
    kind = value.__class__
    if kind is str or kind is list or kind is bytes or kind is Map:
        return len(value)
    if isinstance(value, Map):
        return len(value)
    return value.size() if isinstance(value, Opaque) else None


def is_zero(value: Any) -> bool:
    """Whether `optional.ofNonZeroValue` would drop it."""
    if isinstance(value, (Duration, Timestamp)):
        return value.nanos == 0
    return value is None or (isinstance(value, (bool, int, float, str, bytes, list, Map)) and not value)
