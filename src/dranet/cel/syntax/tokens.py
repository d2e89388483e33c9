"""Text to tokens.

Longest match wins. A character no token can start with, or a string that never ends, is reported and skipped, and
lexing goes on: one expression can hold several such errors and the parser still sees what follows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

EOF = "<EOF>"
IDENT, ESC_IDENT = "IDENTIFIER", "ESC_IDENTIFIER"
FLOAT, INT, UINT, STRING, BYTES = "NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES"

# The order is the order in which error messages list what was expected.
KINDS = (
    EOF, "'=='", "'!='", "'in'", "'<'", "'<='", "'>='", "'>'", "'&&'", "'||'", "'['", "']'", "'{'", "'}'", "'('", "')'",
    "'.'", "','", "'-'", "'!'", "'?'", "':'", "'+'", "'*'", "'/'", "'%'", "'true'", "'false'", "'null'",
    FLOAT, INT, UINT, STRING, BYTES, IDENT, ESC_IDENT,
)  # fmt: skip
ORDER = {kind: index for index, kind in enumerate(KINDS)}
LOOKAHEAD = 3
_KEYWORDS = {"in", "true", "false", "null"}

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"""
_STRINGS = rf"""
    [rR]\"\"\"(?s:.*?)\"\"\" | [rR]'''(?s:.*?)'''
  | [rR]"[^"\n\r]*" | [rR]'[^'\n\r]*'
  | \"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\" | '''(?:{_ESCAPE}|[^\\])*?'''
  | "(?:{_ESCAPE}|[^\\"\n\r])*" | '(?:{_ESCAPE}|[^\\'\n\r])*'
"""
_TOKEN = re.compile(
    rf"""
    (?P<skip>[\t \r\n\f]+|//[^\n]*)
  | (?P<bytes>[bB](?:{_STRINGS}))
  | (?P<string>{_STRINGS})
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<ident>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<esc>`[A-Za-z0-9_.\-/\ ]+`)
  | (?P<op>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """,
    re.VERBOSE,
)
_KIND_OF_GROUP = {
    "bytes": BYTES, "string": STRING, "float": FLOAT, "uint": UINT, "int": INT, "ident": IDENT, "esc": ESC_IDENT,
}  # fmt: skip


class Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    offset: int
    end: int


def tokenize(text: str, report: Callable[[int, str], None], unrecognised: list[tuple[int, int]]) -> list[Token]:
    """All visible tokens, ending with EOF as often as a parser may look ahead; `report(offset, message)` is called
    for text that is not a token, and `unrecognised` receives its position."""
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            stop = _failure_end(text, position)
            report(position, f"token recognition error at: '{text[position : stop + 1]}'")
            unrecognised.append((position, stop + 1))
            position = stop + 1
            continue
        group, position = match.lastgroup, match.end()
        if group != "skip":
            tokens.append(_token(group or "", match.group(), match.start(), match.end()))
    return tokens + [Token(EOF, "<EOF>", len(text), len(text))] * LOOKAHEAD


def pieces(text: str) -> Iterator[tuple[str, str, int]]:
    """What stands in a text, blanks and comments included, each with its kind and offset; a character that belongs to
    nothing is passed over."""
    return ((match.lastgroup or "", match.group(), match.start()) for match in _TOKEN.finditer(text))


def _token(group: str, text: str, start: int, end: int) -> Token:
    if group == "op" or text in _KEYWORDS:
        return Token(f"'{text}'", text, start, end)
    return Token(_KIND_OF_GROUP[group], text, start, end)


def _failure_end(text: str, start: int) -> int:
    """Offset of the character at which no token could go on."""
    first = text[start]
    if first in "\"'":
        return _string_failure(text, start + 1, first)
    if first == "`":
        match = re.compile(r"[A-Za-z0-9_.\-/ ]*").match(text, start + 1)
        return match.end() if match else start + 1
    if first in "&|=":
        return start + 1
    return start


def _string_failure(text: str, position: int, quote: str) -> int:
    escape = re.compile(_ESCAPE)
    while position < len(text) and text[position] not in "\n\r":
        if text[position] == "\\":
            match = escape.match(text, position)
            if match is None:
                return _escape_failure(text, position + 1)
            position = match.end()
        elif text[position] == quote:
            return position
        else:
            position += 1
    return position


def _escape_failure(text: str, position: int) -> int:
    lead = text[position : position + 1]
    wanted = {"x": 2, "X": 2, "u": 4, "U": 8}.get(lead)
    if wanted:
        digits, alphabet = wanted, "0123456789abcdefABCDEF"
    elif lead and lead in "0123":
        digits, alphabet = 2, "01234567"
    else:
        return position
    position += 1
    for _ in range(digits):
        if position >= len(text) or text[position] not in alphabet:
            return position
        position += 1
    return position
