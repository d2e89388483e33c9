"""`"%s is %d".format([...])`: rendering, and checking the clauses against static types at compile time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import msgspec

from dranet.cel import types as t
from dranet.cel.errors import Err, Issue, Source
from dranet.cel.libraries.literal_checks import descendants, issue
from dranet.cel.libraries.standard import show_double
from dranet.cel.libraries.timing import show_duration, show_timestamp
from dranet.cel.syntax.ast import Call, ListNode, Literal, MapNode, Node
from dranet.cel.values import Duration, Map, Timestamp, Uint, type_name

_PRECISION = 6
_CLAUSE = re.compile(r"\.([0-9]*)", re.ASCII)
_STRING_KINDS = frozenset(
    ["list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"]
)  # fmt: skip
_CLAUSES: dict[str, tuple[frozenset[str], str]] = {
    "s": (
        _STRING_KINDS,
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and"
        " timestamps, was given {}",
    ),
    "d": (frozenset({"int", "uint"}), "decimal clause can only be used on integers, was given {}"),
    "f": (frozenset({"double", "string"}), "fixed-point clause can only be used on doubles, was given {}"),
    "e": (frozenset({"double", "string"}), "scientific clause can only be used on doubles, was given {}"),
    "b": (frozenset({"int", "uint", "bool"}), "only integers and bools can be formatted as binary, was given {}"),
    "x": (
        frozenset({"int", "uint", "string", "bytes"}),
        "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    ),
    "o": (frozenset({"int", "uint"}), "octal clause can only be used on integers, was given {}"),
}
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


class FormatError(Exception):
    """The format string and its arguments do not fit; `node` is the offending argument when known."""

    def __init__(self, message: str, node: Node | None = None) -> None:
        self.node = node
        super().__init__(message)


class Clause(msgspec.Struct, frozen=True):
    letter: str
    precision: int | None


Render = Callable[[Clause, int], str]


def _walk(text: str, count: int, render: Render, *, compiling: bool = False) -> tuple[str, int]:
    """Apply `render` to each of the clauses in turn; `count` arguments are there.

    A lone percent sign at the end with no argument left is called by its name when compiling, and the missing argument
    when running: so does the original.
    """
    out, position, used = [], 0, 0
    data = text
    while position < len(data):
        if data[position] != "%":
            out.append(data[position])
            position += 1
        elif data[position + 1 : position + 2] == "%":
            out.append("%")
            position += 2
        else:
            ends = position + 1 >= len(data)
            if used >= count and not (compiling and ends):
                raise FormatError(f"index {used} out of range")
            if ends:
                raise FormatError("unexpected end of string")
            clause, position = _clause(data, position + 1)
            out.append(render(clause, used))
            used += 1
    return "".join(out), used


def _clause(text: str, position: int) -> tuple[Clause, int]:
    precision: int | None = None
    if text[position] == ".":
        match = _CLAUSE.match(text, position)
        assert match is not None
        if match.end() >= len(text):
            raise _unparsable("error while parsing precision: could not find end of precision specifier")
        if not match.group(1):
            raise _unparsable(
                "error while parsing precision: error while converting precision to integer:"
                ' strconv.Atoi: parsing "": invalid syntax'
            )
        precision, position = int(match.group(1)), match.end()
    letter = text[position]
    if letter.lower() not in _CLAUSES or (letter.isupper() and letter != "X"):
        raise _unparsable(f'unrecognized formatting clause "{letter}"')
    return Clause(letter, precision), position + 1


def _unparsable(message: str) -> FormatError:
    return FormatError(f"could not parse formatting clause: {message}")


def format_string(text: str, args: list[Any]) -> Any:
    """``text.format(args)``; a wrong clause or a missing argument is an error value, nothing is raised."""
    try:
        return _walk(text, len(args), lambda clause, index: _render(clause, args[index]))[0]
    except FormatError as error:
        return Err(str(error))


def _render(clause: Clause, value: Any) -> str:
    kinds, message = _CLAUSES[clause.letter.lower()]
    kind = type_name(value)
    try:
        if clause.letter == "s":
            return show(value)
        if clause.letter in "fe":
            return _real(clause, value, message)
        if _kind(value) not in kinds:
            raise FormatError(message.format(kind))
        return _integer(clause.letter, value)
    except FormatError as error:
        raise FormatError(f"error during formatting: {error}") from error


def _kind(value: Any) -> str:
    from dranet.cel.values import type_of

    return type_of(value).kind


def _integer(letter: str, value: Any) -> str:
    if letter in "xX" and isinstance(value, (str, bytes)):
        digits = (value.encode() if isinstance(value, str) else value).hex()
        return digits.upper() if letter == "X" else digits
    return format(int(value), letter)


def _real(clause: Clause, value: Any, message: str) -> str:
    if value.__class__ is str and value in _NOT_FINITE:
        value = _NOT_FINITE[value]
    if value.__class__ is not float:
        raise FormatError(message.format(type_name(value)))
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    precision = _PRECISION if clause.precision is None else clause.precision
    if clause.letter == "f":
        return f"{value:,.{precision}f}"
    mantissa, _, exponent = f"{value:.{_PRECISION}e}".partition("e")
    power = f"{'-' if exponent[0] == '-' else ''}{abs(int(exponent)):02d}"
    return f"{mantissa}\u202f×\u202f10{power.translate(_SUPERSCRIPT)}"


def show(value: Any) -> str:
    """A value under %s."""
    if value is None:
        return "null"
    if value.__class__ is list:
        return "[" + ", ".join(_inside(item) for item in value) + "]"
    if isinstance(value, Map):
        pairs = sorted((_key(key), _inside(item)) for key, item in value.items())
        return "{" + ", ".join(f"{key}:{item}" for key, item in pairs) + "}"
    plain = _plain(value)
    if plain is None:
        raise FormatError(_CLAUSES["s"][1].format(type_name(value)))
    return plain


def _plain(value: Any) -> str | None:
    if isinstance(value, t.Type):
        return value.name
    if value.__class__ is bool:
        return "true" if value else "false"
    if value.__class__ in (int, Uint):
        return str(int(value))
    if value.__class__ is float:
        return show_double(value)
    if value.__class__ is str:
        return str(value)
    if value.__class__ is bytes:
        return str(value.decode("utf-8", "replace"))
    if value.__class__ is Timestamp:
        return show_timestamp(value)
    return show_duration(value) if value.__class__ is Duration else None


def _key(key: Any) -> str:
    if key.__class__ is float:
        raise FormatError("no formatting function for map key of type double")
    return go_quote(key) if key.__class__ is str else show(key)


def _inside(value: Any) -> str:
    """A value as an element of a list or map."""
    if value.__class__ is str:
        return go_quote(value)
    if value.__class__ is bytes:
        return "b" + go_quote(show(value))
    if value.__class__ is float:
        return f"{value:.{_PRECISION}f}" if math.isfinite(value) else go_quote(show_double(value))
    if value.__class__ is Timestamp:
        return f"timestamp({go_quote(show(value))})"
    if value.__class__ is Duration:
        return f"duration({go_quote(show(value))})"
    if _kind(value) not in _STRING_KINDS:
        raise FormatError(f"no formatting function for {type_name(value)}")
    return show(value)


_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def go_quote(text: str) -> str:
    """Go's %q."""
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif char in _ESCAPES:
            out.append(_ESCAPES[char])
        elif char.isprintable():
            out.append(char)
        else:
            code = ord(char)
            out.append(f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return '"' + "".join(out) + '"'


def validate_formats(root: Node, source: Source) -> list[Issue]:
    """Constant format strings with literal argument lists are checked before anything runs."""
    found: list[Issue] = []
    for node in descendants(root):
        if isinstance(node, Call) and node.function == "format" and _is_constant(node):
            found += _validate(node, source)
    return found


def _is_constant(node: Call) -> bool:
    literal = isinstance(node.target, Literal) and isinstance(node.target.value, str)
    return literal and len(node.args) == 1 and isinstance(node.args[0], ListNode)


def _validate(node: Call, source: Source) -> list[Issue]:
    assert isinstance(node.target, Literal) and isinstance(node.args[0], ListNode)
    args = node.args[0].elements
    try:
        _, used = _walk(node.target.value, len(args), lambda clause, index: _check(clause, args[index]), compiling=True)
    except FormatError as error:
        return [issue(error.node or node, source, str(error))]
    if len(args) > used:
        message = f"too many arguments supplied to string.format (expected {used}, got {len(args)})"
        return [issue(node, source, message)]
    return []


def _check(clause: Clause, node: Node) -> str:
    kinds, message = _CLAUSES[clause.letter.lower()]
    bad = _unprintable(node) if clause.letter == "s" else None if _fits(node, kinds) else node
    if bad is not None:
        assert bad.type is not None
        raise FormatError(f"error during formatting: {message.format(bad.type.name)}", bad)
    return ""


def _fits(node: Node, kinds: frozenset[str]) -> bool:
    assert node.type is not None
    return node.type.kind == "dyn" or node.type.kind in kinds


def _unprintable(node: Node) -> Node | None:
    if not _fits(node, _STRING_KINDS):
        return node
    if isinstance(node, (ListNode, MapNode)):
        return next((bad for child in node.children() if (bad := _unprintable(child)) is not None), None)
    return None
