"""A Kubernetes object that remembers where every field of it stands, and what in a file is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import yaml

from dranet.manifests.source_text import SourceText, Span
from dranet.manifests.yaml_nodes import FieldPath, Loader, Mark, find, place_inside


class ReadProblem(msgspec.Struct, frozen=True):
    """Something in a file that is no usable object."""

    file: str
    mark: Mark
    message: str
    fatal: bool = True
    """False for what a server would never see, such as a document without a kind."""
    fix: str = "correct the file here"

    def __str__(self) -> str:
        return f"{self.file}:{self.mark.line}:{self.mark.column}: {self.message}"


class Located(msgspec.Struct, frozen=True):
    """A node of YAML, and where its text begins in the file: lines, and columns of its first line, are counted on."""

    node: yaml.Node
    line: int = 0
    column: int = 0

    def mark(self, mark: yaml.Mark) -> Mark:
        """A place of the node as a place of the file, counted from 1."""
        return Mark(mark.line + self.line + 1, mark.column + (self.column if mark.line == 0 else 0) + 1)


def locate_in(span: Span) -> Callable[[], Located]:
    """Reads the part of a file that is an object again, once, for its places."""

    @cache
    def located() -> Located:
        return Located(yaml.compose(span.text, Loader=Loader), *span.origin)

    return located


class Object(msgspec.Struct, frozen=True, eq=False):
    """One Kubernetes object and the file it came from."""

    data: dict[str, Any]
    file: str
    locate: Callable[[], Located]
    """Gives the object's places; they are worked out only when somebody asks."""
    source: SourceText
    """The file's text."""
    duplicates: tuple[tuple[FieldPath, Mark], ...] = ()

    def __repr__(self) -> str:
        return f"{self.kind}/{self.name} of {self.file}"  # not the whole file, as it would be field by field

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
        """Its name, or ``(no name)``."""
        metadata = self.data.get("metadata")
        values = metadata if isinstance(metadata, dict) else {}
        return _text(values.get("name") or values.get("generateName")) or "(no name)"

    @property
    def namespace(self) -> str:
        """Its namespace; where none is written, ``default``."""
        metadata = self.data.get("metadata")
        return _text(metadata.get("namespace") if isinstance(metadata, dict) else None) or "default"

    def at(self, path: FieldPath) -> Mark:
        """Where the field stands; the nearest existing parent if it does not."""
        located = self.locate()
        return located.mark(find(located.node, path)[0].start_mark)

    def value_at(self, path: FieldPath) -> Mark:
        """Where the field's value begins."""
        located = self.locate()
        return located.mark(find(located.node, path)[1].start_mark)

    def inside(self, path: FieldPath, line: int, column: int) -> Mark:
        """Where line and column (from 1) of a text value stand in the file."""
        located = self.locate()
        node = find(located.node, path)[1]
        if not isinstance(node, yaml.ScalarNode):
            return located.mark(node.start_mark)
        before = node.value.split("\n")[: max(line - 1, 0)]
        offset = sum(len(text) + 1 for text in before) + max(column - 1, 0)
        start = located.mark(node.start_mark)
        return place_inside(node, Mark(start.line - 1, start.column - 1), self.lines, min(offset, len(node.value)))

    def block(self, path: FieldPath) -> list[str]:
        """The lines the field takes in the file, key and all."""
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
