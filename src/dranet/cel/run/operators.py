"""The operators and `size`, with CEL's overflow and division rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Function, Overload
from dranet.cel.values import MAX_INT, MAX_UINT, MIN_INT, Duration, Map, Timestamp, Uint, compare, equal

MIN_TIME, MAX_TIME = -62135596800 * 10**9, 253402300799 * 10**9 + 999999999
_INT_OVERFLOW = Err("integer overflow")
_UINT_OVERFLOW = Err("unsigned integer overflow")
_NUMBERS = (t.INT, t.DOUBLE, t.UINT)
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


_add_numbers = _arithmetic(lambda left, right: left + right, lambda left, right: left + right)
_subtract_numbers = _arithmetic(lambda left, right: left - right, lambda left, right: left - right)


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


def _not_strictly_false(value: Any) -> bool:
    return value is not False


def _overloads(prefix: str, kinds: Sequence[tuple[str, t.Type, t.Type, t.Type]]) -> tuple[Overload, ...]:
    return tuple(Overload(f"{prefix}_{name}", (left, right), result) for name, left, right, result in kinds)


_INTEGERS = [("int64", t.INT, t.INT, t.INT), ("uint64", t.UINT, t.UINT, t.UINT)]
_ALL_NUMBERS = [("double", t.DOUBLE, t.DOUBLE, t.DOUBLE), *_INTEGERS]
_ADDITIONS = [
    ("bytes", t.BYTES, t.BYTES, t.BYTES),
    ("double", t.DOUBLE, t.DOUBLE, t.DOUBLE),
    ("duration_duration", t.DURATION, t.DURATION, t.DURATION),
    ("duration_timestamp", t.DURATION, t.TIMESTAMP, t.TIMESTAMP),
    ("timestamp_duration", t.TIMESTAMP, t.DURATION, t.TIMESTAMP),
    ("int64", t.INT, t.INT, t.INT),
    ("list", t.LIST, t.LIST, t.LIST),
    ("string", t.STRING, t.STRING, t.STRING),
    ("uint64", t.UINT, t.UINT, t.UINT),
]
_SUBTRACTIONS = [
    ("double", t.DOUBLE, t.DOUBLE, t.DOUBLE),
    ("duration_duration", t.DURATION, t.DURATION, t.DURATION),
    ("int64", t.INT, t.INT, t.INT),
    ("timestamp_duration", t.TIMESTAMP, t.DURATION, t.TIMESTAMP),
    ("timestamp_timestamp", t.TIMESTAMP, t.TIMESTAMP, t.DURATION),
    ("uint64", t.UINT, t.UINT, t.UINT),
]
_NAMES = {t.INT: "int64", t.UINT: "uint64", t.DOUBLE: "double"}
_COMPARISONS = [
    ("bool", t.BOOL, t.BOOL, t.BOOL),
    *[
        (_NAMES[left] if left == right else f"{_NAMES[left]}_{_NAMES[right]}", left, right, t.BOOL)
        for left, others in (
            (t.INT, _NUMBERS), (t.UINT, (t.UINT, t.DOUBLE, t.INT)), (t.DOUBLE, (t.DOUBLE, t.INT, t.UINT)),
        )
        for right in others
    ],
    ("string", t.STRING, t.STRING, t.BOOL),
    ("bytes", t.BYTES, t.BYTES, t.BOOL),
    ("timestamp", t.TIMESTAMP, t.TIMESTAMP, t.BOOL),
    ("duration", t.DURATION, t.DURATION, t.BOOL),
]  # fmt: skip
CROSS_TYPE_COMPARISONS = frozenset(
    f"{order}_{name}"
    for order in ("less", "less_equals", "greater", "greater_equals")
    for name, left, right, _ in _COMPARISONS
    if left != right
)
_COMPARABLE = frozenset({bool, bytes, float, Duration, int, str, Timestamp, Uint})


def _operator(name: str, overloads: Sequence[Overload], call: Any, trait: frozenset[type] | None = None) -> Function:
    return Function(name, tuple(overloads), call, trait)


def _unused(*values: Any) -> Any:
    return NO_SUCH_OVERLOAD


def _sizes() -> Function:
    overloads: list[Overload] = []
    for name, type_ in (("bytes", t.BYTES), ("list", t.LIST), ("map", t.MAP), ("string", t.STRING)):
        overloads.append(Overload(f"size_{name}", (type_,), t.INT))
        overloads.append(Overload(f"{name}_size", (type_,), t.INT, member=True))
    return _operator("size", overloads, _length, None)


def _length(value: Any) -> Any:
    if isinstance(value, (str, bytes, list, Map)):
        return len(value)
    return Err("no such overload: size")


OPERATORS: tuple[Function, ...] = (
    _operator("_?_:_", [Overload("conditional", (t.BOOL, t.A, t.A), t.A)], _unused),
    _operator("_&&_", [Overload("logical_and", (t.BOOL, t.BOOL), t.BOOL)], _unused),
    _operator("_||_", [Overload("logical_or", (t.BOOL, t.BOOL), t.BOOL)], _unused),
    _operator("!_", [Overload("logical_not", (t.BOOL,), t.BOOL)], _not),
    Function(
        "@not_strictly_false", (Overload("not_strictly_false", (t.BOOL,), t.BOOL),), _not_strictly_false,
        non_strict=True,
    ),
    _operator("_==_", [Overload("equals", (t.A, t.A), t.BOOL)], equal),
    _operator("_!=_", [Overload("not_equals", (t.A, t.A), t.BOOL)], _unused),
    _operator(
        "_+_", _overloads("add", _ADDITIONS), add, frozenset({*_NUMERIC, str, bytes, list, Duration, Timestamp})
    ),
    _operator("_-_", _overloads("subtract", _SUBTRACTIONS), subtract, frozenset({*_NUMERIC, Duration, Timestamp})),
    _operator(
        "_*_", _overloads("multiply", _ALL_NUMBERS), _arithmetic(lambda a, b: a * b, lambda a, b: a * b), _NUMERIC
    ),
    _operator("_/_", _overloads("divide", _ALL_NUMBERS), _arithmetic(_divide, _divide_real), _NUMERIC),
    _operator("_%_", _overloads("modulo", _INTEGERS), _arithmetic(_modulo, None), frozenset({int, Uint})),
    _operator(
        "-_",
        [Overload("negate_double", (t.DOUBLE,), t.DOUBLE), Overload("negate_int64", (t.INT,), t.INT)],
        negate,
        frozenset({int, float, bool, Duration}),
    ),
    _operator("_<_", _overloads("less", _COMPARISONS), _ordered(lambda order: order < 0), _COMPARABLE),
    _operator("_<=_", _overloads("less_equals", _COMPARISONS), _ordered(lambda order: order <= 0), _COMPARABLE),
    _operator("_>_", _overloads("greater", _COMPARISONS), _ordered(lambda order: order > 0), _COMPARABLE),
    _operator("_>=_", _overloads("greater_equals", _COMPARISONS), _ordered(lambda order: order >= 0), _COMPARABLE),
    _operator(
        "_[_]",
        [Overload("index_list", (t.LIST, t.INT), t.A), Overload("index_map", (t.MAP, t.A), t.B)],
        _unused,
    ),
    _operator(
        "@in",
        [Overload("in_list", (t.A, t.LIST), t.BOOL), Overload("in_map", (t.A, t.MAP), t.BOOL)],
        contained,
    ),
    _sizes(),
)  # fmt: skip
