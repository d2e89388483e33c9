"""RE2 patterns on Python's engine.

CEL promises RE2 syntax. Most of it means the same to Python; what does not is rewritten (`$`, `\\z`, `\\s`, POSIX
classes, `\\Q..\\E`), and what RE2 lacks (look-around, back references) is refused instead of silently accepted.
"""

from __future__ import annotations

import re
from functools import lru_cache

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_OUTSIDE = {"z": r"\Z", "A": r"\A", "s": r"[\t\n\f\r ]", "S": r"[^\t\n\f\r ]"}
_KEPT = frozenset("dDwWbBafnrtv")
_MAX_REPEAT = 1000


class RegexError(ValueError):
    """The pattern is not RE2."""


@lru_cache(maxsize=1024)
def compile_re2(pattern: str) -> re.Pattern[str]:
    translated, multiline = _Translator(pattern).run()
    try:
        return re.compile(translated, re.ASCII | (re.MULTILINE if multiline else 0))
    except (re.error, OverflowError, RecursionError) as error:
        raise RegexError(f"error parsing regexp: {error}") from error


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._out: list[str] = []
        self._multiline = False

    def run(self) -> tuple[str, bool]:
        flags = re.match(r"\(\?([imsU]+)\)", self._text)
        if flags:
            self._leading_flags(flags.group(1))
            self._at = flags.end()
        depth = 0
        while self._at < len(self._text):
            char = self._text[self._at]
            depth += (char == "(") - (char == ")")
            if depth < 0:
                raise RegexError(f"error parsing regexp: unexpected ): `{self._text}`")
            self._step()
        if depth:
            raise RegexError(f"error parsing regexp: missing closing ): `{self._text}`")
        return "".join(self._out), self._multiline

    def _leading_flags(self, letters: str) -> None:
        self._multiline = "m" in letters
        if "U" in letters:
            raise RegexError("error parsing regexp: the ungreedy flag is not supported here")
        python = "".join(letter for letter in "is" if letter in letters)
        if python:
            self._out.append(f"(?{python})")

    def _step(self) -> None:
        char = self._text[self._at]
        if char == "\\":
            self._escape()
        elif char == "[":
            self._class()
        elif char == "(":
            self._group()
        elif char == "$":
            self._emit("$" if self._multiline else r"\Z", 1)
        elif char in "*+?":
            self._repeat()
        elif char == "{":
            self._counted()
        else:
            self._emit(char, 1)

    def _emit(self, text: str, width: int) -> None:
        self._out.append(text)
        self._at += width

    def _repeat(self) -> None:
        match = re.compile(r"[*+?]\??").match(self._text, self._at)
        assert match is not None
        self._no_second_repeat(match.end())
        if not self._out or self._out[-1] in ("(", "|", "(?:"):
            raise RegexError(f"error parsing regexp: missing argument to repetition operator: `{match.group()}`")
        self._emit(match.group(), match.end() - self._at)

    def _no_second_repeat(self, after: int) -> None:
        second = re.compile(r"[*+?]\??|\{\d+(?:,\d*)?\}\??").match(self._text, after)
        if second:
            shown = self._text[self._at : second.end()]
            raise RegexError(f"error parsing regexp: invalid nested repetition operator: `{shown}`")

    def _counted(self) -> None:
        match = re.compile(r"\{(\d+)(?:,(\d*))?\}\??").match(self._text, self._at)
        if match is None:
            self._emit(r"\{", 1)
            return
        low, high = match.groups()
        if any(part and int(part) > _MAX_REPEAT for part in (low, high)) or (high and int(high) < int(low)):
            raise RegexError(f"error parsing regexp: invalid repeat count: `{match.group().removesuffix('?')}`")
        self._no_second_repeat(match.end())
        self._emit(match.group(), match.end() - self._at)

    def _group(self) -> None:
        rest = self._text[self._at :]
        if not rest.startswith("(?"):
            self._emit("(", 1)
            return
        name = re.match(r"\(\?P?<([A-Za-z0-9_]+)>", rest)
        if name:
            self._emit(f"(?P<{name.group(1)}>", name.end())
            return
        flags = re.match(r"\(\?([is]*)(-[is]+)?:", rest)
        if flags is None:
            kind = "named capture" if rest.startswith(("(?<", "(?P<")) else "or unsupported Perl syntax"
            shown = rest if kind == "named capture" else re.match(r"\(\?[a-zA-Z-]*.?", rest).group()  # type: ignore[union-attr]
            raise RegexError(f"error parsing regexp: invalid {kind}: `{shown}`")
        self._emit(flags.group(), flags.end())

    def _escape(self) -> None:
        if self._at + 1 >= len(self._text):
            raise RegexError("error parsing regexp: trailing backslash at end of expression: ``")
        code = self._text[self._at + 1]
        if code == "Q":
            self._quoted()
        elif code in _OUTSIDE:
            self._emit(_OUTSIDE[code], 2)
        elif code == "x":
            self._hex()
        elif code in _KEPT or not code.isalnum():
            self._emit("\\" + code if code in _KEPT else re.escape(code), 2)
        elif code in "01234567" and re.compile(r"[0-7]{2,3}").match(self._text, self._at + 1):
            self._octal()
        else:
            raise RegexError(f"error parsing regexp: invalid escape sequence: `\\{code}`")

    def _octal(self) -> None:
        match = re.compile(r"[0-7]{1,3}").match(self._text, self._at + 1)
        if match is None or (self._text[self._at + 1] != "0" and len(match.group()) < 3):
            raise RegexError("error parsing regexp: invalid escape sequence")
        self._emit(re.escape(chr(int(match.group(), 8))), 1 + len(match.group()))

    def _quoted(self) -> None:
        end = self._text.find("\\E", self._at + 2)
        stop = end if end >= 0 else len(self._text)
        self._out.append(re.escape(self._text[self._at + 2 : stop]))
        self._at = stop + 2

    def _hex(self) -> None:
        match = re.compile(r"\\x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})").match(self._text, self._at)
        if match is None:
            raise RegexError("error parsing regexp: invalid escape sequence: `\\x`")
        code = int(match.group(1) or match.group(2), 16)
        if code > 0x10FFFF:
            raise RegexError("error parsing regexp: invalid escape sequence")
        self._emit(re.escape(chr(code)), match.end() - self._at)

    def _class(self) -> None:
        start = self._at
        self._at += 1
        self._out.append("[")
        if self._text[self._at : self._at + 1] == "^":
            self._emit("^", 1)
        first = True
        while first or self._text[self._at : self._at + 1] != "]":
            if self._at >= len(self._text):
                raise RegexError(f"error parsing regexp: missing closing ]: `{self._text[start:]}`")
            self._class_item()
            first = False
        self._emit("]", 1)

    def _check_range(self, low: str) -> None:
        high = self._text[self._at + 2 : self._at + 3]
        if self._text[self._at + 1 : self._at + 2] == "-" and high not in ("", "]", "\\") and high < low:
            raise RegexError(f"error parsing regexp: invalid character class range: `{low}-{high}`")

    def _class_item(self) -> None:
        posix = re.compile(r"\[:(\^?)(\w+):\]").match(self._text, self._at)
        if posix:
            if posix.group(2) not in _POSIX or posix.group(1):
                raise RegexError("error parsing regexp: invalid character class range")
            self._emit(_POSIX[posix.group(2)], posix.end() - self._at)
            return
        char = self._text[self._at]
        if char != "\\":
            self._check_range(char)
            self._emit("\\" + char if char in "[]&~|" else char, 1)
            return
        code = self._text[self._at + 1 : self._at + 2]
        if code == "s":
            self._emit(r"\t\n\f\r ", 2)
        elif code == "x":
            self._hex()
        elif code and (code in "dDwWafnrtv" or not code.isalnum()):
            self._emit("\\" + code, 2)
        else:
            raise RegexError(f"error parsing regexp: invalid escape sequence: `\\{code}`")
