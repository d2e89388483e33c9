"""Kubernetes objects that know the position of every field in their file.

Positions are computed only when a caller asks: most objects of a large file are never reported.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import msgspec
import yaml

from dranet.advise.manifests.yaml_nodes import FieldPath, Loader, Mark, find, position_inside


class SourceText:
    """The text of a file; all its objects share it."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The lines, without line ends."""
        return tuple(self.text.splitlines())

    def position(self, index: int) -> tuple[int, int]:
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
    """The part of a text that is one object."""

    source: SourceText
    start: int
    end: int
    pad: int = 0
    """Blanks before the first line, so that a block keeps its indentation."""

    @property
    def text(self) -> str:
        return " " * self.pad + self.source.text[self.start : self.end]

    @property
    def origin(self) -> tuple[int, int]:
        """The offset of the part in the file: lines, and columns of its first line."""
        line, column = self.source.position(self.start)
        return line, column - self.pad


class ReadProblem(msgspec.Struct, frozen=True):
    """Something in a file that is not a usable object."""

    file: str
    mark: Mark
    message: str
    fatal: bool = True
    """False for what a server never receives, such as a document without a kind."""
    fix: str = "correct the file here"
    unrendered: bool = False
    """Whether another tool has to render the file first; ``fix`` is the command."""

    def __str__(self) -> str:
        command = f"; render it: {self.fix}" if self.unrendered else ""
        return f"{self.file}:{self.mark.line}:{self.mark.column}: {self.message}{command}"


class Located(msgspec.Struct, frozen=True):
    """A YAML node, and the offset of its text in the file: lines, and columns of its first line."""

    node: yaml.Node
    line: int = 0
    column: int = 0

    def mark(self, mark: yaml.Mark) -> Mark:
        """A position in the node as a position in the file, counted from 1."""
        return Mark(mark.line + self.line + 1, mark.column + (self.column if mark.line == 0 else 0) + 1)


def locate_in(span: Span) -> Callable[[], Located]:
    """Parse the part of a file that is one object again, once, for its positions."""

    @cache
    def located() -> Located:
        return Located(yaml.compose(span.text, Loader=Loader), *span.origin)

    return located


class Object(msgspec.Struct, frozen=True, eq=False):
    """One Kubernetes object and the file it came from."""

    data: dict[str, Any]
    file: str
    locate: Callable[[], Located]
    """Returns the positions of the object's fields."""
    source: SourceText
    """The file's text."""
    duplicates: tuple[tuple[FieldPath, Mark], ...] = ()

    def __repr__(self) -> str:
        return f"{self.kind}/{self.name} of {self.file}"  # the default would print the whole file

    @property
    def lines(self) -> tuple[str, ...]:
        """The file's lines."""
        return self.source.lines

    @property
    def kind(self) -> str:
        """``Pod``, ``ResourceClaim``, ..."""
        return _text(self.data.get("kind"))

    @property
    def api_version(self) -> str:
        """``resource.k8s.io/v1``, ..."""
        return _text(self.data.get("apiVersion"))

    @property
    def name(self) -> str:
        """``metadata.name``, else ``generateName``, else ``(no name)``."""
        metadata = self.data.get("metadata")
        values = metadata if isinstance(metadata, dict) else {}
        return _text(values.get("name") or values.get("generateName")) or "(no name)"

    @property
    def namespace(self) -> str:
        """``metadata.namespace``, by default ``default``."""
        metadata = self.data.get("metadata")
        return _text(metadata.get("namespace") if isinstance(metadata, dict) else None) or "default"

    def at(self, path: FieldPath) -> Mark:
        """The position of the field; of its nearest existing parent if there is no such field."""
        located = self.locate()
        return located.mark(find(located.node, path)[0].start_mark)

    def position(self, path: FieldPath) -> str:
        """The position of the field as ``file:line:column``."""
        mark = self.at(path)
        return f"{self.file}:{mark.line}:{mark.column}"

    def value_at(self, path: FieldPath) -> Mark:
        """The position of the field's value."""
        located = self.locate()
        return located.mark(find(located.node, path)[1].start_mark)

    def inside(self, path: FieldPath, line: int, column: int) -> Mark:
        """The position in the file of line and column (from 1) of a text value."""
        located = self.locate()
        node = find(located.node, path)[1]
        if not isinstance(node, yaml.ScalarNode):
            return located.mark(node.start_mark)
        before = node.value.split("\n")[: max(line - 1, 0)]
        offset = sum(len(text) + 1 for text in before) + max(column - 1, 0)
        start = located.mark(node.start_mark)
        return position_inside(node, Mark(start.line - 1, start.column - 1), self.lines, min(offset, len(node.value)))

    def block(self, path: FieldPath) -> list[str]:
        """The lines of the field in the file, with its key."""
        located = self.locate()
        key, value = find(located.node, path)
        first, last = located.mark(key.start_mark).line - 1, located.mark(value.end_mark).line - 1
        if value.end_mark.column == 0 and last > first:
            last -= 1
        found = list(self.lines[first : last + 1])
        while found and (not found[-1].strip() or found[-1].lstrip().startswith("#")):
            found.pop()
        return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
