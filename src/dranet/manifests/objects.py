"""A Kubernetes object that remembers where every field of it stands, and what in a file is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from dranet.manifests.yaml_nodes import FieldPath, Mark, find, mark_of, place_inside


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """Something in a file that is no usable object."""

    file: str
    mark: Mark
    message: str
    fatal: bool = True
    """False for what a server would never see, such as a document without a kind."""
    fix: str = "correct the file here"

    def __str__(self) -> str:
        return f"{self.file}:{self.mark.line}:{self.mark.column}: {self.message}"


@dataclass(frozen=True, slots=True, eq=False)
class Object:
    """One Kubernetes object and the file it came from."""

    data: dict[str, Any]
    file: str
    locate: Callable[[], yaml.Node] = field(repr=False)
    """Gives the object's node; places in JSON are worked out only when somebody asks."""
    lines: tuple[str, ...] = field(repr=False)
    """The file's lines."""
    duplicates: tuple[tuple[FieldPath, Mark], ...] = ()

    @property
    def node(self) -> yaml.Node:
        """The object as YAML sees it, with all its places."""
        return self.locate()

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
        return mark_of(find(self.node, path)[0])

    def value_at(self, path: FieldPath) -> Mark:
        """Where the field's value begins."""
        return mark_of(find(self.node, path)[1])

    def inside(self, path: FieldPath, line: int, column: int) -> Mark:
        """Where line and column (from 1) of a text value stand in the file."""
        node = find(self.node, path)[1]
        if not isinstance(node, yaml.ScalarNode):
            return mark_of(node)
        before = node.value.split("\n")[: max(line - 1, 0)]
        offset = sum(len(text) + 1 for text in before) + max(column - 1, 0)
        return place_inside(node, self.lines, min(offset, len(node.value)))

    def block(self, path: FieldPath) -> list[str]:
        """The lines the field takes in the file, key and all."""
        key, value = find(self.node, path)
        last = value.end_mark.line
        if value.end_mark.column == 0 and last > key.start_mark.line:
            last -= 1
        found = list(self.lines[key.start_mark.line : last + 1])
        while found and (not found[-1].strip() or found[-1].lstrip().startswith("#")):
            found.pop()
        return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
