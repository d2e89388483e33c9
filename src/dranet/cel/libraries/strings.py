"""The string extensions: indexes count characters, and case folding is ASCII only."""

from __future__ import annotations

from typing import Any

from dranet.cel.errors import NO_SUCH_OVERLOAD, Err
from dranet.cel.functions import Function, Library, functions, overload
from dranet.cel.libraries.formatting import format_string
from dranet.cel.regex import RegexError, compile_re2
from dranet.cel.run.paths import show

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


_BASIC = functions(
    ("charAt", "string_char_at_int", "string.(int) -> string", _char_at),
    ("indexOf", "string_index_of_string", "string.(string) -> int", _index_of),
    ("indexOf", "string_index_of_string_int", "string.(string, int) -> int", _index_of),
    ("lastIndexOf", "string_last_index_of_string", "string.(string) -> int", _last_index_of),
    ("lastIndexOf", "string_last_index_of_string_int", "string.(string, int) -> int", _last_index_of),
    ("lowerAscii", "string_lower_ascii", "string.() -> string", lambda text: text.translate(_TO_LOWER)),
    ("replace", "string_replace_string_string", "string.(string, string) -> string", _replace),
    ("replace", "string_replace_string_string_int", "string.(string, string, int) -> string", _replace),
    ("split", "string_split_string", "string.(string) -> list(string)", _split),
    ("split", "string_split_string_int", "string.(string, int) -> list(string)", _split),
    ("substring", "string_substring_int", "string.(int) -> string", _substring),
    ("substring", "string_substring_int_int", "string.(int, int) -> string", _substring),
    ("trim", "string_trim", "string.() -> string", lambda text: text.strip(_SPACE)),
    ("upperAscii", "string_upper_ascii", "string.() -> string", lambda text: text.translate(_TO_UPPER)),
    ("join", "list_join", "list(string).() -> string", _join),
    ("join", "list_join_string", "list(string).(string) -> string", _join),
)
_FORMAT = overload("string_format", "string.(list(dyn)) -> string", format_string, stops_early=True)
_LATER = (
    Function("format", (_FORMAT,)),
    *functions(("strings.quote", "strings_quote", "(string) -> string", _quote)),
)


def strings_library(version: int) -> Library:
    """Version 0 has the basics, 1 adds format and quote."""
    return Library("strings", functions=_BASIC + (_LATER if version >= 1 else ()))


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
    functions=functions(
        ("find", "string_find_string", "string.(string) -> string", _find),
        ("findAll", "string_find_all_string", "string.(string) -> list(string)", _find_all),
        ("findAll", "string_find_all_string_int", "string.(string, int) -> list(string)", _find_all),
    ),
)
