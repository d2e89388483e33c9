"""The string extensions: indexes count characters, and case folding is ASCII only."""

from __future__ import annotations

from typing import Any

from dranet.cel import types as t
from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Function, Library, Overload, function, global_, method
from dranet.cel.libraries.formatting import format_string
from dranet.cel.regex import RegexError, compile_re2
from dranet.cel.run.paths import show

_STRINGS = t.list_of(t.STRING)
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
}  # fmt: skip
_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_TO_LOWER, _TO_UPPER = str.maketrans(_UPPER, _LOWER), str.maketrans(_LOWER, _UPPER)


def _out_of_range(index: int) -> Err:
    return Err(f"index out of range: {index}")


def _char_at(text: str, index: int) -> Any:
    return text[index : index + 1] if 0 <= index <= len(text) else _out_of_range(index)


def _index_of(text: str, part: str, start: int = 0) -> Any:
    if part == "":
        return start
    if start < 0:
        return _out_of_range(start)
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> Any:
    if start is None:
        if part == "":
            return len(text)
        if len(text.encode()) < len(part.encode()):
            return -1
        start = len(text) - 1
    if part == "":
        return start
    if start < 0:
        return _out_of_range(start)
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count if count >= 0 else -1)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if separator == "":
        parts = list(text)
        return parts if count < 0 or len(parts) <= count else [*parts[: count - 1], "".join(parts[count - 1 :])]
    return text.split(separator, count - 1 if count > 0 else -1)


def _substring(text: str, start: int, end: int | None = None) -> Any:
    if end is not None and start > end:
        return Err(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if index is not None and not 0 <= index <= len(text):
            return _out_of_range(index)
    return text[start:end]


def _join(items: list[Any], separator: str = "") -> Any:
    for item in items:
        if item.__class__ is not str:
            return Err(f"join: invalid input: {show(item)}")
    return separator.join(items)


def _quote(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(char, char) for char in text) + '"'


_BASIC: tuple[Function, ...] = (
    function("charAt", method("string_char_at_int", [t.STRING, t.INT], t.STRING, _char_at)),
    function(
        "indexOf",
        method("string_index_of_string", [t.STRING, t.STRING], t.INT, _index_of),
        method("string_index_of_string_int", [t.STRING, t.STRING, t.INT], t.INT, _index_of),
    ),
    function(
        "lastIndexOf",
        method("string_last_index_of_string", [t.STRING, t.STRING], t.INT, _last_index_of),
        method("string_last_index_of_string_int", [t.STRING, t.STRING, t.INT], t.INT, _last_index_of),
    ),
    function("lowerAscii", method("string_lower_ascii", [t.STRING], t.STRING, lambda text: text.translate(_TO_LOWER))),
    function(
        "replace",
        method("string_replace_string_string", [t.STRING] * 3, t.STRING, _replace),
        method("string_replace_string_string_int", [t.STRING, t.STRING, t.STRING, t.INT], t.STRING, _replace),
    ),
    function(
        "split",
        method("string_split_string", [t.STRING, t.STRING], _STRINGS, _split),
        method("string_split_string_int", [t.STRING, t.STRING, t.INT], _STRINGS, _split),
    ),
    function(
        "substring",
        method("string_substring_int", [t.STRING, t.INT], t.STRING, _substring),
        method("string_substring_int_int", [t.STRING, t.INT, t.INT], t.STRING, _substring),
    ),
    function("trim", method("string_trim", [t.STRING], t.STRING, lambda text: text.strip(_SPACE))),
    function("upperAscii", method("string_upper_ascii", [t.STRING], t.STRING, lambda text: text.translate(_TO_UPPER))),
    function(
        "join",
        method("list_join", [_STRINGS], t.STRING, _join),
        method("list_join_string", [_STRINGS, t.STRING], t.STRING, _join),
    ),
)
_LATER: tuple[Function, ...] = (
    function(
        "format",
        Overload("string_format", (t.STRING, t.list_of(t.DYN)), t.STRING, format_string, member=True, stops_early=True),
    ),
    function("strings.quote", global_("strings_quote", [t.STRING], t.STRING, _quote)),
)
_REVERSE = function("reverse", method("string_reverse", [t.STRING], t.STRING, lambda text: text[::-1]))


def strings_library(version: int) -> Library:
    """Version 0 has the basics, 1 adds format and quote, 3 reverse."""
    functions = _BASIC + (_LATER if version >= 1 else ()) + ((_REVERSE,) if version >= 3 else ())
    return Library("strings", functions=functions)


def _find(text: Any, pattern: Any) -> Any:
    if text.__class__ is not str or pattern.__class__ is not str:
        return NO_SUCH_OVERLOAD
    try:
        return next(compile_re2(pattern).find_all(text), "")
    except RegexError as error:
        return Err(f"Illegal regex: {error}")


def _find_all(text: Any, pattern: Any, count: int = -1) -> Any:
    try:
        found = list(compile_re2(pattern).find_all(text))
    except RegexError as error:
        return Err(f"Illegal regex: {error}")
    return found if count < 0 else found[:count]


REGEX = Library(
    "kubernetes.regex",
    functions=(
        function("find", method("string_find_string", [t.STRING, t.STRING], t.STRING, _find)),
        function(
            "findAll",
            method("string_find_all_string", [t.STRING, t.STRING], _STRINGS, _find_all),
            method("string_find_all_string_int", [t.STRING, t.STRING, t.INT], _STRINGS, _find_all),
        ),
    ),
)
