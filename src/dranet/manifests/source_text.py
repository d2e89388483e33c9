"""A file's text, and which line and column a character of it stands in; worked out when somebody asks."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

import msgspec


class SourceText:
    """One text; all objects of a file share it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Its lines, without their ends."""
        return tuple(self.text.splitlines())

    def place(self, index: int) -> tuple[int, int]:
        """Line and column of a character, both counted from 0."""
        line = bisect_right(self._starts, index) - 1
        return line, index - self._starts[line]

    @cached_property
    def _starts(self) -> list[int]:
        starts, found = [0], self.text.find("\n")
        while found >= 0:
            starts.append(found + 1)
            found = self.text.find("\n", found + 1)
        return starts


class Span(msgspec.Struct, frozen=True):
    """A part of a text that is one object."""

    source: SourceText
    start: int
    end: int
    pad: int = 0
    """Blanks to put before its first line, so that a block keeps its indentation."""

    @property
    def text(self) -> str:
        """The part itself."""
        return " " * self.pad + self.source.text[self.start : self.end]

    @property
    def origin(self) -> tuple[int, int]:
        """What is to be added to lines, and to columns of the first line, of places in the part."""
        line, column = self.source.place(self.start)
        return line, column - self.pad
