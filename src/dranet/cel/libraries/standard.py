"""The standard library: conversions, string tests, regular expressions, time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Function, Library, functions, overload, overloads
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
    power = int(f"{value:.17e}".partition("e")[2])
    if value and (power < -4 or power >= 21):
        return f"{digits}e{'-' if power < 0 else '+'}{abs(power):02d}"
    plain = digits if not exponent else f"{value:f}"
    return plain.removesuffix(".0")


_CONVERSIONS = (
    *functions(
        ("bool", "bool_to_bool", "(bool) -> bool", _identity),
        ("bool", "string_to_bool", "(string) -> bool", _string_to_bool),
        ("bytes", "bytes_to_bytes", "(bytes) -> bytes", _identity),
        ("bytes", "string_to_bytes", "(string) -> bytes", lambda text: text.encode()),
        ("double", "double_to_double", "(double) -> double", _identity),
        ("double", "int64_to_double", "(int) -> double", float),
        ("double", "string_to_double", "(string) -> double", _string_to_double),
        ("double", "uint64_to_double", "(uint) -> double", float),
        ("duration", "duration_to_duration", "(duration) -> duration", _identity),
        ("duration", "int64_to_duration", "(int) -> duration", Duration),
        ("duration", "string_to_duration", "(string) -> duration", _string_to_duration),
        ("int", "int64_to_int64", "(int) -> int", _identity),
        ("int", "double_to_int64", "(double) -> int", _double_to_int),
        ("int", "duration_to_int64", "(duration) -> int", lambda value: value.nanos),
        ("int", "string_to_int64", "(string) -> int", _string_to_int),
        ("int", "timestamp_to_int64", "(timestamp) -> int", lambda value: value.nanos // 10**9),
        ("int", "uint64_to_int64", "(uint) -> int", lambda value: checked_int(int(value))),
        ("string", "string_to_string", "(string) -> string", _identity),
        ("string", "bool_to_string", "(bool) -> string", lambda value: "true" if value else "false"),
        ("string", "bytes_to_string", "(bytes) -> string", _bytes_to_string),
        ("string", "double_to_string", "(double) -> string", show_double),
        ("string", "duration_to_string", "(duration) -> string", show_duration),
        ("string", "int64_to_string", "(int) -> string", str),
        ("string", "timestamp_to_string", "(timestamp) -> string", show_timestamp),
        ("string", "uint64_to_string", "(uint) -> string", lambda value: str(int(value))),
        ("timestamp", "timestamp_to_timestamp", "(timestamp) -> timestamp", _identity),
        ("timestamp", "int64_to_timestamp", "(int) -> timestamp", lambda value: timestamp(value * 10**9)),
        ("timestamp", "string_to_timestamp", "(string) -> timestamp", _string_to_timestamp),
        ("uint", "uint64_to_uint64", "(uint) -> uint", _identity),
        ("uint", "double_to_uint64", "(double) -> uint", _double_to_uint),
        ("uint", "int64_to_uint64", "(int) -> uint", _int_to_uint),
        ("uint", "string_to_uint64", "(string) -> uint", _string_to_uint),
    ),
    Function("dyn", overloads(("to_dyn", "(A) -> dyn")), _identity),
    Function("type", overloads(("type", "(A) -> type(A)")), type_of),
)


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


def _string_method(name: str, id_: str, test: Callable[[str, str], bool]) -> Function:
    return Function(name, (overload(id_, "string.(string) -> bool", _string_test(test), guarded=False),))


_STRINGS = (
    _string_method("contains", "contains_string", lambda text, part: part in text),
    _string_method("endsWith", "ends_with_string", str.endswith),
    _string_method("startsWith", "starts_with_string", str.startswith),
    Function(
        "matches",
        overloads(("matches", "(string, string) -> bool"), ("matches_string", "string.(string) -> bool")),
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
