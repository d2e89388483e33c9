"""The operators and `size`, with CEL's overflow and division rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Function, Overload, overloads
from dranet.cel.values import MAX_INT, MAX_UINT, MIN_INT, Duration, Map, Timestamp, Uint, compare, equal

MIN_TIME, MAX_TIME = -62135596800 * 10**9, 253402300799 * 10**9 + 999999999
_INT_OVERFLOW = Err("integer overflow")
_UINT_OVERFLOW = Err("unsigned integer overflow")
_NUMERIC = frozenset({int, Uint, float})


def checked_int(value: int) -> Any:
    """A result within 64 bits, or the overflow error."""
    return value if MIN_INT <= value <= MAX_INT else _INT_OVERFLOW


def checked_uint(value: int) -> Any:
    """The same for unsigned numbers."""
    return Uint(value) if 0 <= value <= MAX_UINT else _UINT_OVERFLOW


def duration(nanos: int) -> Any:
    """A duration within its limits, or the overflow error."""
    return Duration(nanos) if MIN_INT <= nanos <= MAX_INT else Err("duration overflow")


def timestamp(nanos: int) -> Any:
    """A moment from year 1 to 9999, or the overflow error."""
    return Timestamp(nanos) if MIN_TIME <= nanos <= MAX_TIME else Err("timestamp overflow")


def _arithmetic(
    integer: Callable[[int, int], Any], real: Callable[[float, float], float] | None
) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        if left.__class__ is not right.__class__:
            return NO_SUCH_OVERLOAD
        if left.__class__ is float:
            return real(left, right) if real else NO_SUCH_OVERLOAD
        result = integer(int(left), int(right))
        if result.__class__ is Err:
            return result
        return checked_uint(result) if left.__class__ is Uint else checked_int(result)

    return apply


def _divide(left: int, right: int) -> Any:
    if right == 0:
        return Err("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo(left: int, right: int) -> Any:
    if right == 0:
        return Err("modulus by zero")
    if left == MIN_INT and right == -1:
        return MAX_INT + 1
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _divide_real(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or left != left:
        return float("nan")
    return float("inf") if (left > 0) == (str(right)[0] != "-") else float("-inf")


_add_numbers = _arithmetic(operator.add, operator.add)
_subtract_numbers = _arithmetic(operator.sub, operator.sub)


def add(left: Any, right: Any) -> Any:
    """`+` of whatever may be added; values decide, for the types may be dyn."""
    kind, other = left.__class__, right.__class__
    if kind in _NUMERIC:
        return _add_numbers(left, right)
    if kind is other and kind in (str, bytes, list):
        return left + right
    if kind is Duration and other is Duration:
        return duration(left.nanos + right.nanos)
    if (kind is Timestamp and other is Duration) or (kind is Duration and other is Timestamp):
        return timestamp(left.nanos + right.nanos)
    return NO_SUCH_OVERLOAD


def subtract(left: Any, right: Any) -> Any:
    """`-` of two values; the difference of two moments is a duration."""
    kind, other = left.__class__, right.__class__
    if kind in _NUMERIC:
        return _subtract_numbers(left, right)
    if kind is other and kind in (Duration, Timestamp):
        return duration(left.nanos - right.nanos)
    if kind is Timestamp and other is Duration:
        return timestamp(left.nanos - right.nanos)
    return NO_SUCH_OVERLOAD


def negate(value: Any) -> Any:
    """Unary minus; the least integer has no opposite."""
    if value.__class__ is bool:
        return NO_SUCH_OVERLOAD
    if value.__class__ is int:
        return checked_int(-value)
    return -value if value.__class__ is float else duration(-value.nanos)


def _not(value: Any) -> Any:
    return not value if value.__class__ is bool else NO_SUCH_OVERLOAD


def _ordered(accept: Callable[[int], bool]) -> Callable[[Any, Any], Any]:
    def apply(left: Any, right: Any) -> Any:
        order = compare(left, right)
        return order if order.__class__ is Err else accept(order)

    return apply


def contained(item: Any, container: Any) -> Any:
    """`in` for lists and maps, with CEL's equality."""
    if container.__class__ is list:
        return any(equal(element, item) is True for element in container)
    return container.contains(item) if isinstance(container, Map) else NO_SUCH_OVERLOAD


def _binary(prefix: str, signatures: Mapping[str, str]) -> tuple[Overload, ...]:
    return overloads(*((f"{prefix}_{name}", text) for name, text in signatures.items()))


_INTEGERS = {"int64": "(int, int) -> int", "uint64": "(uint, uint) -> uint"}
_ALL_NUMBERS = {"double": "(double, double) -> double", **_INTEGERS}
_ADDITIONS = {
    "bytes": "(bytes, bytes) -> bytes",
    "double": "(double, double) -> double",
    "duration_duration": "(duration, duration) -> duration",
    "duration_timestamp": "(duration, timestamp) -> timestamp",
    "timestamp_duration": "(timestamp, duration) -> timestamp",
    "int64": "(int, int) -> int",
    "list": "(list(A), list(A)) -> list(A)",
    "string": "(string, string) -> string",
    "uint64": "(uint, uint) -> uint",
}
_SUBTRACTIONS = {
    "double": "(double, double) -> double",
    "duration_duration": "(duration, duration) -> duration",
    "int64": "(int, int) -> int",
    "timestamp_duration": "(timestamp, duration) -> timestamp",
    "timestamp_timestamp": "(timestamp, timestamp) -> duration",
    "uint64": "(uint, uint) -> uint",
}
_COMPARISONS = {
    "bool": "(bool, bool) -> bool",
    "int64": "(int, int) -> bool",
    "int64_double": "(int, double) -> bool",
    "int64_uint64": "(int, uint) -> bool",
    "uint64": "(uint, uint) -> bool",
    "uint64_double": "(uint, double) -> bool",
    "uint64_int64": "(uint, int) -> bool",
    "double": "(double, double) -> bool",
    "double_int64": "(double, int) -> bool",
    "double_uint64": "(double, uint) -> bool",
    "string": "(string, string) -> bool",
    "bytes": "(bytes, bytes) -> bool",
    "timestamp": "(timestamp, timestamp) -> bool",
    "duration": "(duration, duration) -> bool",
}
_COMPARABLE = frozenset({bool, bytes, float, Duration, int, str, Timestamp, Uint})


_ADDABLE = frozenset({*_NUMERIC, str, bytes, list, Duration, Timestamp})
_SUBTRACTABLE = frozenset({*_NUMERIC, Duration, Timestamp})
_NEGATABLE = frozenset({int, float, bool, Duration})
_SIZES = [
    row
    for name, type_ in (("bytes", "bytes"), ("list", "list(A)"), ("map", "map(A, B)"), ("string", "string"))
    for row in ((f"size_{name}", f"({type_}) -> int"), (f"{name}_size", f"{type_}.() -> int"))
]


def _unused(*values: Any) -> Any:
    return NO_SUCH_OVERLOAD


def _length(value: Any) -> Any:
    if isinstance(value, (str, bytes, list, Map)):
        return len(value)
    return Err("no such overload: size")


OPERATORS: tuple[Function, ...] = (
    Function("_?_:_", overloads(("conditional", "(bool, A, A) -> A")), _unused),
    Function("_&&_", overloads(("logical_and", "(bool, bool) -> bool")), _unused),
    Function("_||_", overloads(("logical_or", "(bool, bool) -> bool")), _unused),
    Function("!_", overloads(("logical_not", "(bool) -> bool")), _not),
    Function(
        "@not_strictly_false",
        overloads(("not_strictly_false", "(bool) -> bool")),
        lambda value: value is not False,
        non_strict=True,
    ),
    Function("_==_", overloads(("equals", "(A, A) -> bool")), equal),
    Function("_!=_", overloads(("not_equals", "(A, A) -> bool")), _unused),
    Function("_+_", _binary("add", _ADDITIONS), add, _ADDABLE),
    Function("_-_", _binary("subtract", _SUBTRACTIONS), subtract, _SUBTRACTABLE),
    Function("_*_", _binary("multiply", _ALL_NUMBERS), _arithmetic(operator.mul, operator.mul), _NUMERIC),
    Function("_/_", _binary("divide", _ALL_NUMBERS), _arithmetic(_divide, _divide_real), _NUMERIC),
    Function("_%_", _binary("modulo", _INTEGERS), _arithmetic(_modulo, None), frozenset({int, Uint})),
    Function(
        "-_", overloads(("negate_double", "(double) -> double"), ("negate_int64", "(int) -> int")), negate, _NEGATABLE
    ),
    Function("_<_", _binary("less", _COMPARISONS), _ordered(lambda order: order < 0), _COMPARABLE),
    Function("_<=_", _binary("less_equals", _COMPARISONS), _ordered(lambda order: order <= 0), _COMPARABLE),
    Function("_>_", _binary("greater", _COMPARISONS), _ordered(lambda order: order > 0), _COMPARABLE),
    Function("_>=_", _binary("greater_equals", _COMPARISONS), _ordered(lambda order: order >= 0), _COMPARABLE),
    Function("_[_]", overloads(("index_list", "(list(A), int) -> A"), ("index_map", "(map(A, B), A) -> B")), _unused),
    Function("@in", overloads(("in_list", "(A, list(A)) -> bool"), ("in_map", "(A, map(A, B)) -> bool")), contained),
    Function("size", overloads(*_SIZES), _length),
)
