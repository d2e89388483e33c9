"""The standard library: conversions, string tests, regular expressions, time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Function, Library, Overload, function, global_, method
from dranet.cel.libraries.timing import TIME_FUNCTIONS, parse_duration, parse_timestamp, show_duration, show_timestamp
from dranet.cel.regex import RegexError, compile_re2
from dranet.cel.run.operators import OPERATORS, checked_int, timestamp
from dranet.cel.syntax.macros import STANDARD
from dranet.cel.values import MAX_INT, MAX_UINT, MIN_INT, Duration, Uint, type_of

_INT_OVERFLOW = Err("integer overflow")
_UINT_OVERFLOW = Err("unsigned integer overflow")
_DECIMAL = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE
)
_TRUE, _FALSE = {"1", "t", "T", "true", "TRUE", "True"}, {"0", "f", "F", "false", "FALSE", "False"}


def _refused(source: str, target: str) -> Err:
    return Err(f"type conversion error from '{source}' to '{target}'")


def _identity(value: Any) -> Any:
    return value


def _string_to_int(text: str) -> Any:
    if _DECIMAL.fullmatch(text) and MIN_INT <= int(text) <= MAX_INT:
        return int(text)
    return _refused("string", "int")


def _string_to_uint(text: str) -> Any:
    if _DECIMAL.fullmatch(text) and text[0] not in "+-" and int(text) <= MAX_UINT:
        return Uint(int(text))
    return _refused("string", "uint")


def _string_to_double(text: str) -> Any:
    if not _FLOAT.fullmatch(text):
        return _refused("string", "double")
    value = float(text)
    overflowed = math.isinf(value) and "inf" not in text.lower()
    return _refused("string", "double") if overflowed else value


def _string_to_bool(text: str) -> Any:
    return True if text in _TRUE else False if text in _FALSE else _refused("string", "bool")


def _string_to_duration(text: str) -> Any:
    return parse_duration(text) or _refused("string", "google.protobuf.Duration")


def _string_to_timestamp(text: str) -> Any:
    return parse_timestamp(text) or _refused("string", "google.protobuf.Timestamp")


def _double_to_int(value: float) -> Any:
    if math.isnan(value) or not -9223372036854775808.0 < value < 9223372036854775808.0:
        return _INT_OVERFLOW
    return int(value)


def _double_to_uint(value: float) -> Any:
    if math.isnan(value) or not 0 <= value < 18446744073709551616.0:
        return _UINT_OVERFLOW
    return Uint(int(value))


def _int_to_uint(value: int) -> Any:
    return Uint(value) if value >= 0 else _UINT_OVERFLOW


def _bytes_to_string(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Err("invalid UTF-8 in bytes, cannot convert to string")


def show_double(value: float) -> str:
    """Go's %g: shortest digits, exponent from 1e21 up and below 1e-4."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    digits, _, exponent = f"{value!r}".partition("e")
    power = int(exponent) if exponent else None
    if power is None and value.is_integer():
        power = len(digits.lstrip("-").split(".")[0]) - 1
    scientific = f"{value:.17e}" if value else "0e+00"
    power = int(scientific.partition("e")[2])
    if value and (power < -4 or power >= 21):
        mantissa = _shortest_mantissa(value)
        return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"
    plain = digits if not exponent else f"{value:f}"
    return plain.removesuffix(".0")


def _shortest_mantissa(value: float) -> str:
    for precision in range(17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text.partition("e")[0]
    return f"{value:.17e}".partition("e")[0]


def _convert(name: str, result: t.Type, sources: list[tuple[str, t.Type, Callable[[Any], Any]]]) -> Function:
    return function(name, *(global_(id_, [source], result, call) for id_, source, call in sources))


_CONVERSIONS = (
    _convert("bool", t.BOOL, [("bool_to_bool", t.BOOL, _identity), ("string_to_bool", t.STRING, _string_to_bool)]),
    _convert(
        "bytes", t.BYTES,
        [("bytes_to_bytes", t.BYTES, _identity), ("string_to_bytes", t.STRING, lambda text: text.encode())],
    ),
    _convert(
        "double", t.DOUBLE,
        [
            ("double_to_double", t.DOUBLE, _identity),
            ("int64_to_double", t.INT, float),
            ("string_to_double", t.STRING, _string_to_double),
            ("uint64_to_double", t.UINT, float),
        ],
    ),
    _convert(
        "duration", t.DURATION,
        [
            ("duration_to_duration", t.DURATION, _identity),
            ("int64_to_duration", t.INT, Duration),
            ("string_to_duration", t.STRING, _string_to_duration),
        ],
    ),
    _convert(
        "int", t.INT,
        [
            ("int64_to_int64", t.INT, _identity),
            ("double_to_int64", t.DOUBLE, _double_to_int),
            ("duration_to_int64", t.DURATION, lambda value: value.nanos),
            ("string_to_int64", t.STRING, _string_to_int),
            ("timestamp_to_int64", t.TIMESTAMP, lambda value: value.nanos // 10**9),
            ("uint64_to_int64", t.UINT, lambda value: checked_int(int(value))),
        ],
    ),
    _convert(
        "string", t.STRING,
        [
            ("string_to_string", t.STRING, _identity),
            ("bool_to_string", t.BOOL, lambda value: "true" if value else "false"),
            ("bytes_to_string", t.BYTES, _bytes_to_string),
            ("double_to_string", t.DOUBLE, show_double),
            ("duration_to_string", t.DURATION, show_duration),
            ("int64_to_string", t.INT, str),
            ("timestamp_to_string", t.TIMESTAMP, show_timestamp),
            ("uint64_to_string", t.UINT, lambda value: str(int(value))),
        ],
    ),
    _convert(
        "timestamp", t.TIMESTAMP,
        [
            ("timestamp_to_timestamp", t.TIMESTAMP, _identity),
            ("int64_to_timestamp", t.INT, lambda value: timestamp(value * 10**9)),
            ("string_to_timestamp", t.STRING, _string_to_timestamp),
        ],
    ),
    _convert(
        "uint", t.UINT,
        [
            ("uint64_to_uint64", t.UINT, _identity),
            ("double_to_uint64", t.DOUBLE, _double_to_uint),
            ("int64_to_uint64", t.INT, _int_to_uint),
            ("string_to_uint64", t.STRING, _string_to_uint),
        ],
    ),
    Function("dyn", (Overload("to_dyn", (t.A,), t.DYN),), _identity),
    Function("type", (Overload("type", (t.A,), t.type_of_type(t.A)),), type_of),
)  # fmt: skip


def _string_test(test: Callable[[str, str], bool]) -> Callable[[Any, Any], Any]:
    def apply(text: Any, other: Any) -> Any:
        if text.__class__ is not str or other.__class__ is not str:
            return NO_SUCH_OVERLOAD
        return test(text, other)

    return apply


def _matches(text: Any, pattern: Any) -> Any:
    if pattern.__class__ is not str:
        return NO_SUCH_OVERLOAD
    try:
        return compile_re2(pattern).is_in(text)
    except RegexError as error:
        return Err(str(error))


def _string_method(name: str, test: Callable[[str, str], bool], id_: str) -> Function:
    return function(name, method(id_, [t.STRING, t.STRING], t.BOOL, _string_test(test), guarded=False))


_STRINGS = (
    _string_method("contains", lambda text, part: part in text, "contains_string"),
    _string_method("endsWith", str.endswith, "ends_with_string"),
    _string_method("startsWith", str.startswith, "starts_with_string"),
    Function(
        "matches",
        (
            Overload("matches", (t.STRING, t.STRING), t.BOOL),
            Overload("matches_string", (t.STRING, t.STRING), t.BOOL, member=True),
        ),
        _matches,
        frozenset({str}),
    ),
)

STANDARD_TYPES: dict[str, t.Type] = {
    "bool": t.BOOL, "bytes": t.BYTES, "double": t.DOUBLE, "int": t.INT, "uint": t.UINT, "string": t.STRING,
    "list": t.LIST, "map": t.MAP, "null_type": t.NULL, "type": t.TYPE,
    "duration": t.DURATION, "timestamp": t.TIMESTAMP,
    "google.protobuf.Duration": t.DURATION, "google.protobuf.Timestamp": t.TIMESTAMP,
}  # fmt: skip

STDLIB = Library(
    "stdlib",
    functions=(*OPERATORS, *_CONVERSIONS, *_STRINGS, *TIME_FUNCTIONS),
    macros=tuple(STANDARD.items()),
)
