"""Patterns as Kubernetes understands them: RE2, which takes time in proportion to the text whatever the pattern.

The engine is Google's own RE2. Kubernetes uses Go's `regexp`, the same language by the same author with other words for
its errors and a few differences; people read those errors in events, so they are said here as Go says them.

The module is loaded when the first pattern is: the daemon's filter hardly ever has one, and RE2 costs it memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_MAX_NESTING = 1000
_MAX_REPEAT = 1000
_KEPT = 64
"""Size of the cache of compiled patterns: each may grow to RE2's limit of 8 MiB."""

_IN_GOS_WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": "expression too large",
}
_TOKEN = re.compile(
    r"\\Q.*?(?:\\E|\Z)"  # quoted text
    r"|\\[xpP]\{[^}]*\}?|\\."  # an escape
    r"|\[\^?\]?(?:\[:\w*:\]|\\.|[^\]\\])*\]?"  # a class
    r"|\(\?P?<|\(\?|\(|\)|\{\d+(?:,\d*)?\}",
    re.DOTALL,
)
_ABOUT_ALL_OF_IT = ("unexpected )", "pattern too large - compile failed")
_NAMED = ("(?P<", "(?<")
_NAME = re.compile(r"\(\?P?<([^>]*)>")


class RegexError(ValueError):
    """The pattern is not RE2."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"error parsing regexp: {what}: `{where}`")
        self.what = what


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def is_in(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        return self._search(_encoded(text), 0) is not None

    def find_all(self, text: str) -> Iterator[str]:
        """The matches from left to right. An empty one right after another match does not count, as in Go."""
        data, at, last = _encoded(text), 0, -1
        while at <= len(data) and (match := self._search(data, at)) is not None:
            start, end = match
            if start < end or start != last:
                yield data[start:end].decode()
            last = end
            at = end if end > at else _next(data, at)

    def _search(self, data: bytes, at: int) -> tuple[int, int] | None:
        """The next match. RE2 finds an empty one (of ``\\B``) between the bytes of a character too; Go does not."""
        while (match := self._compiled.search(data, at)) is not None:
            start, end = match.span()
            if not _is_inside(data, start):
                return start, end
            at = _next(data, start)
        return None


def _is_inside(data: bytes, at: int) -> bool:
    return at < len(data) and data[at] & 0xC0 == 0x80


def _next(data: bytes, at: int) -> int:
    """Where the next character begins."""
    at += 1
    while _is_inside(data, at):
        at += 1
    return at


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")  # Go does not accept half a surrogate pair either


@lru_cache(maxsize=_KEPT)
def compile_re2(pattern: str) -> Pattern:
    """The compiled pattern; raises RegexError with Go's text."""
    at, refusal = _what_go_lacks(pattern)
    if refusal is None:
        return Pattern(_compile(pattern, pattern))
    try:
        _compile(pattern[:at], pattern)
    except RegexError as earlier:
        if earlier.what != "missing closing )":  # caused by the cut
            raise
    raise refusal


def _compile(pattern: str, whole: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # groups are not used, and without them RE2 is faster
    try:
        return re2._Regexp(_encoded(pattern), options)  # not re2.compile, which keeps patterns of its own
    except re2.error as error:
        raise _in_gos_words(error.args[0].decode(errors="replace"), whole) from error


def _in_gos_words(message: str, whole: str) -> RegexError:
    what, _, where = message.partition(": ")
    if what == "invalid UTF-8":  # RE2's word for a pattern that ends within this escape; ours are always UTF-8
        return RegexError("invalid escape sequence", "\\x{")
    return RegexError(_IN_GOS_WORDS.get(what, what), whole if what in _ABOUT_ALL_OF_IT else where)


def _what_go_lacks(pattern: str) -> tuple[int, RegexError | None]:
    """Where RE2 knows more than Go (single bytes, other names, deeper nesting) or looks at something else first."""
    depth = 0
    for token in _TOKEN.finditer(pattern):
        text, rest = token.group(), pattern[token.start() :]
        if text == "\\C":
            return token.start(), RegexError("invalid escape sequence", text)
        if text in _NAMED and (bad := _bad_name(rest)):
            return token.start(), RegexError("invalid named capture", bad)
        if text[0] == "{" and _bad_count(text):
            return token.start(), RegexError("invalid repeat count", text)
        depth += text in ("(", *_NAMED)
        depth -= text == ")" and depth > 0
        if depth >= _MAX_NESTING:
            return token.start(), RegexError("expression nests too deeply", pattern)
    return 0, None


def _bad_count(text: str) -> bool:
    low, _, high = text[1:-1].partition(",")
    return int(low) > _MAX_REPEAT or (bool(high) and not int(low) <= int(high) <= _MAX_REPEAT)


def _bad_name(rest: str) -> str:
    """What Go would show of a group whose name it does not take; empty where it does."""
    named = _NAME.match(rest)
    if named is None:
        return rest
    return "" if re.fullmatch(r"\w+", named.group(1), re.ASCII) else named.group()
