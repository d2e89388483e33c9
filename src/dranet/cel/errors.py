"""What goes wrong with an expression, and where.

Compile-time problems are collected as issues and rendered the way cel-go prints them, because that text is what a
person sees in a Kubernetes event. Run-time problems are values (`Err`) while an expression is being evaluated, since
`&&`, `||` and the quantifiers absorb them; only at the very end does one become an exception.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from dranet.core.errors import DranetError

_MAX_SNIPPET = 16384
_MAX_ISSUES = 100


class Issue(msgspec.Struct, frozen=True):
    """One problem at a position in the source: line from 1, column from 0, as the parser counts."""

    line: int
    column: int
    message: str


class Source:
    """The text of an expression with its line structure."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def location(self, offset: int) -> tuple[int, int]:
        """Line (from 1) and column (from 0) of an offset; nowhere, and anywhere in an empty text, is column -1."""
        if offset < 0 or not self.text:
            return 1, -1
        line = min(bisect_right(self._starts, offset), len(self.lines))
        return line, offset - self._starts[line - 1]


def _pointer(snippet: str, column: int) -> str:
    marks = "".join("．" if len(char.encode()) > 1 else "." for char in snippet[: max(column, 0)])
    rest = snippet[max(column, 0) :]
    return marks + ("＾" if rest and len(rest[0].encode()) > 1 else "^")


def render_issue(issue: Issue, source: Source) -> str:
    """In cel-go's layout: position, line and a caret below the column. Long lines are left out, as there."""
    text = f"ERROR: <input>:{issue.line}:{issue.column + 1}: {issue.message}"
    if source.text and 1 <= issue.line <= len(source.lines):
        snippet = source.lines[issue.line - 1].replace("\t", " ")
        if len(snippet.encode()) <= _MAX_SNIPPET:
            text += f"\n | {snippet}\n | {_pointer(snippet, issue.column)}"
    return text


def render_issues(issues: Sequence[Issue], source: Source) -> str:
    """All issues in source order, one block each."""
    shown = sorted(issues[:_MAX_ISSUES], key=lambda issue: (issue.line, issue.column))
    blocks = [render_issue(issue, source) for issue in shown]
    if len(issues) > _MAX_ISSUES:
        blocks.append(f"{len(issues) - _MAX_ISSUES} more errors were truncated")
    return "\n".join(blocks)


class CelError(DranetError):
    """Everything the CEL engine raises."""


class CelCompileError(CelError):
    """An expression that cannot be compiled; `issues` holds every problem, `line`/`column` (from 1) the first."""

    def __init__(self, issues: Sequence[Issue], source: Source) -> None:
        ordered = sorted(issues, key=lambda issue: (issue.line, issue.column))
        self.issues: tuple[Issue, ...] = tuple(ordered)
        self.source = source
        self.line = ordered[0].line
        self.column = ordered[0].column + 1
        self.message = ordered[0].message
        super().__init__(render_issues(issues, source))


class CelSyntaxError(CelCompileError):
    """The text does not follow the grammar."""


class CelTypeError(CelCompileError):
    """The text parses but its types, names or literals do not fit the environment."""


class CelProgramError(CelError):
    """A checked expression whose constant parts already fail (`int("0x10")`)."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class CelEvaluationError(CelError):
    """The expression failed on these bindings."""

    def __init__(self, message: str, cost: int | None = None) -> None:
        self.message = message
        self.cost = cost
        super().__init__(message)


class EvaluationAborted(BaseException):
    """Ends an evaluation past `&&` and `||`, where cel-go would panic or cancel; never seen outside the engine."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class CostLimitExceeded(EvaluationAborted):
    """The cost limit was passed."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Err:
    """An error as a value during evaluation."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"Err({self.message!r})"


NO_SUCH_OVERLOAD = Err("no such overload")
