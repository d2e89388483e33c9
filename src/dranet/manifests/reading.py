"""Manifests as data that remembers where every field stands.

A finding without line and column is half a finding. So YAML is read as nodes, and each object keeps them beside its
plain data. JSON is read the same way, being YAML as far as positions go.

What would surprise: requests that stand alone, as documents like to show them, are read as those of a template named
after the file, and said to be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from dranet.manifests.yaml_nodes import (
    MAX_DEPTH,
    MAX_NODES,
    FieldPath,
    Loader,
    Mark,
    child_of,
    construct,
    expanded_size,
    find,
    is_null,
    mapping_around,
    mark_of,
    place_inside,
)
from dranet.model.errors import InvalidInput, NotFound, Problem

MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
_REQUEST_FIELDS = ("exactly", "firstAvailable", "deviceClassName")


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


def read_files(files: Iterable[str | Path]) -> tuple[list[Object], list[ReadProblem]]:
    """Objects of all files in order (``-`` is standard input, a folder its manifests), and all that is not one."""
    objects: list[Object] = []
    problems: list[ReadProblem] = []
    for file in (one for given in files for one in _expanded(str(given))):
        name = "<stdin>" if file == "-" else file
        found, wrong = read_text(_content(file), name)
        objects += found
        problems += wrong if found or wrong else [_nothing(name)]
    return objects, problems


def read_usable(files: Iterable[str | Path]) -> tuple[list[Object], list[ReadProblem]]:
    """Objects of all files and lesser problems; raises with every problem that no server would get past."""
    objects, problems = read_files(files)
    fatal = [Problem("", str(problem)) for problem in problems if problem.fatal]
    if fatal:
        raise InvalidInput(fatal)
    return objects, problems


def must_read(files: Iterable[str | Path]) -> list[Object]:
    """Objects of all files; raises with every problem that no server would get past."""
    return read_usable(files)[0]


def read_text(text: str, file: str) -> tuple[list[Object], list[ReadProblem]]:
    """Objects of one text: several documents, a List, or one object."""
    if text.lstrip()[:1] in {"{", "["}:
        text = text.replace("\t", " ")  # JSON may be indented with tabs, YAML may not
        quick = _read_json(text, file)
        if quick is not None:
            return quick, []
    lines = tuple(text.splitlines())
    objects: list[Object] = []
    problems: list[ReadProblem] = []
    try:
        for node in yaml.compose_all(text, Loader=Loader):
            if node is not None:
                _collect(node, file, lines, objects, problems)
    except yaml.YAMLError as error:
        problems.append(_yaml_problem(error, file))
    except RecursionError:
        problems.append(ReadProblem(file, Mark(1, 1), f"nested more than {MAX_DEPTH} levels deep"))
    return objects, problems


class _Twice(Exception):
    """A JSON object has a key twice: YAML's reader says where."""


def _read_json(text: str, file: str) -> list[Object] | None:
    """Objects of one JSON text, fast: a dump of a large cluster is megabytes. None for all that is not plain.

    What is not plain is read as YAML, which finds the mistake and its place.
    """
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError, _Twice):
        return None
    is_list = isinstance(data, dict) and isinstance(data.get("items"), list)
    items = data["items"] if is_list and str(data.get("kind") or "List").endswith("List") else [data]
    if not all(isinstance(item, dict) and _text(item.get("kind")) and _text(item.get("apiVersion")) for item in items):
        return None

    @cache
    def root() -> yaml.Node:
        node: yaml.Node = yaml.compose(text, Loader=Loader)
        return node

    def locate(i: int) -> yaml.Node:
        return root() if items[0] is data else find(root(), ("items", i))[1]

    lines = tuple(text.splitlines())
    return [Object(item, file, partial(locate, i), lines) for i, item in enumerate(items)]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Twice
    return made


def _expanded(file: str) -> list[str]:
    """A folder stands for the manifests in it, as kubectl takes it: by name, subfolders left out."""
    folder = Path(file)
    if file == "-" or not folder.is_dir():
        return [file]
    found = sorted(str(path) for path in folder.iterdir() if path.suffix in MANIFEST_SUFFIXES and path.is_file())
    if not found:
        raise InvalidInput(f"{file}: no {', '.join(MANIFEST_SUFFIXES)} file in this folder")
    return found


def _content(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"{file}: no such file") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidInput(f"{file}:{line}: this is not text in UTF-8 (byte {error.start}): save it as such") from error
    except OSError as error:
        raise InvalidInput(f"{file}: cannot be read: {error.strerror}") from error


def _collect(
    node: yaml.Node,
    file: str,
    lines: tuple[str, ...],
    objects: list[Object],
    problems: list[ReadProblem],
    depth: int = 0,
) -> None:
    if is_null(node):
        return
    if _are_requests(node):
        name = Path(file).stem if file != "<stdin>" else "requests"
        problems.append(_lone_requests(node, file, name))
        node = _template_around(node, name)
    if not isinstance(node, yaml.MappingNode):
        message = "a Kubernetes object was expected here: a mapping with apiVersion and kind"
        problems.append(ReadProblem(file, mark_of(node), message))
        return
    items, kind = child_of(node, "items"), child_of(node, "kind")
    listed = kind is None or str(kind[1].value).endswith("List")
    if items is not None and isinstance(items[1], yaml.SequenceNode) and listed and depth < MAX_DEPTH:
        for item in items[1].value:
            _collect(item, file, lines, objects, problems, depth + 1)
        return
    if expanded_size(node, {}, 0) > MAX_NODES:
        problems.append(ReadProblem(file, mark_of(node), "its aliases expand to more values than any object has"))
        return
    duplicates: list[tuple[FieldPath, Mark]] = []
    data = construct(node, (), duplicates)
    if not data.get("kind") or not data.get("apiVersion"):
        missing = "kind" if data.get("apiVersion") else "apiVersion and kind" if not data.get("kind") else "apiVersion"
        message = f"no {missing}: this is no Kubernetes object"
        fix = "write apiVersion and kind, or take the document out"
        problems.append(ReadProblem(file, mark_of(node), message, False, fix))
        return
    objects.append(Object(data, file, lambda: node, lines, tuple(duplicates)))


def _are_requests(node: yaml.Node) -> bool:
    """Whether this is a list of requests with no object around it."""
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        return False
    return all(child_of(item, "name") and any(child_of(item, key) for key in _REQUEST_FIELDS) for item in node.value)


def _template_around(requests: yaml.Node, name: str) -> yaml.Node:
    flat = all(child_of(item, "deviceClassName") for item in requests.value)
    spec = mapping_around({"devices": mapping_around({"requests": requests}, requests)}, requests)
    entries: dict[str, yaml.Node | str] = {
        "apiVersion": f"resource.k8s.io/{'v1beta1' if flat else 'v1'}",
        "kind": "ResourceClaimTemplate",
        "metadata": mapping_around({"name": name}, requests),
        "spec": mapping_around({"spec": spec}, requests),
    }
    return mapping_around(entries, requests)


def _lone_requests(node: yaml.Node, file: str, name: str) -> ReadProblem:
    message = f"requests with no object around them: read as those of a ResourceClaimTemplate {name!r}"
    fix = "put them below spec.spec.devices.requests of a ResourceClaimTemplate"
    return ReadProblem(file, mark_of(node), message, False, fix)


def _nothing(file: str) -> ReadProblem:
    return ReadProblem(file, Mark(1, 1), "no Kubernetes object in this file", False, "is this the right file?")


def _yaml_problem(error: yaml.YAMLError, file: str) -> ReadProblem:
    mark = getattr(error, "problem_mark", None)
    place = Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)
    said = [getattr(error, "context", None), getattr(error, "problem", None)]
    text = ", ".join(part for part in said if part) or str(error).replace("\n", " ")
    return ReadProblem(file, place, f"this is not YAML: {text}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
