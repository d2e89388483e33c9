"""Manifests as data that remembers where every field stands.

A finding without line and column is half a finding. So YAML is read as nodes, and each object keeps them beside its
plain data. JSON is read the same way, being YAML as far as positions go.

What would surprise: a CEL expression is text inside text. Folded, quoted and literal scalars each change it on the way
in; `Object.inside` walks both texts side by side to find where a character of the expression stands in the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from dranet.model.errors import InvalidInput, NotFound, Problem

FieldPath = tuple[str | int, ...]
MANIFEST_SUFFIXES = (".yaml", ".yml", ".json")
MAX_DEPTH = 100
MAX_NODES = 2_000_000
"""More values than any real dump has: aliases that multiply are refused before they are expanded."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A place in a file, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """Something in a file that is no usable object."""

    file: str
    mark: Mark
    message: str
    fatal: bool = True
    """False for what a server would never see, such as a document without a kind."""

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
        return _mark(_find(self.node, path)[0])

    def value_at(self, path: FieldPath) -> Mark:
        """Where the field's value begins."""
        return _mark(_find(self.node, path)[1])

    def inside(self, path: FieldPath, line: int, column: int) -> Mark:
        """Where line and column (from 1) of a text value stand in the file."""
        node = _find(self.node, path)[1]
        if not isinstance(node, yaml.ScalarNode):
            return _mark(node)
        before = node.value.split("\n")[: max(line - 1, 0)]
        offset = sum(len(text) + 1 for text in before) + max(column - 1, 0)
        return _inside(node, self.lines, min(offset, len(node.value)))

    def block(self, path: FieldPath) -> list[str]:
        """The lines the field takes in the file, key and all."""
        key, value = _find(self.node, path)
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
        found, wrong = read_text(_content(file), "<stdin>" if file == "-" else file)
        objects += found
        problems += wrong
    return objects, problems


def must_read(files: Iterable[str | Path]) -> list[Object]:
    """Objects of all files; raises with every problem that no server would get past."""
    objects, problems = read_files(files)
    fatal = [Problem("", str(problem)) for problem in problems if problem.fatal]
    if fatal:
        raise InvalidInput(fatal)
    return objects


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
        for node in yaml.compose_all(text, Loader=_Loader):
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
        node: yaml.Node = yaml.compose(text, Loader=_Loader)
        return node

    def locate(i: int) -> yaml.Node:
        return root() if items[0] is data else _find(root(), ("items", i))[1]

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
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file}: cannot be read as UTF-8 text: {error}") from error


def _collect(
    node: yaml.Node,
    file: str,
    lines: tuple[str, ...],
    objects: list[Object],
    problems: list[ReadProblem],
    depth: int = 0,
) -> None:
    if isinstance(node, yaml.ScalarNode) and node.tag == _NULL:
        return
    if not isinstance(node, yaml.MappingNode):
        message = "a Kubernetes object was expected here: a mapping with apiVersion and kind"
        problems.append(ReadProblem(file, _mark(node), message))
        return
    items, kind = _child(node, "items"), _child(node, "kind")
    listed = kind is None or str(kind[1].value).endswith("List")
    if items is not None and isinstance(items[1], yaml.SequenceNode) and listed and depth < MAX_DEPTH:
        for item in items[1].value:
            _collect(item, file, lines, objects, problems, depth + 1)
        return
    if _expanded_size(node, {}, 0) > MAX_NODES:
        problems.append(ReadProblem(file, _mark(node), "its aliases expand to more values than any object has"))
        return
    duplicates: list[tuple[FieldPath, Mark]] = []
    data = _construct(node, (), duplicates)
    if not data.get("kind") or not data.get("apiVersion"):
        missing = "kind" if data.get("apiVersion") else "apiVersion and kind" if not data.get("kind") else "apiVersion"
        problems.append(ReadProblem(file, _mark(node), f"no {missing}: this is no Kubernetes object", fatal=False))
        return
    objects.append(Object(data, file, lambda: node, lines, tuple(duplicates)))


def _construct(node: yaml.Node, path: FieldPath, duplicates: list[tuple[FieldPath, Mark]]) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_construct(item, (*path, i), duplicates) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    made: dict[str, Any] = {}
    for key_node, value in _entries(node):
        key = str(_scalar(key_node)) if isinstance(key_node, yaml.ScalarNode) else repr(key_node.tag)
        if key in made:
            duplicates.append(((*path, key), _mark(key_node)))
        made[key] = _construct(value, (*path, key), duplicates)
    return made


def _entries(node: yaml.Node) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """The entries of a mapping, those of merge keys (``<<``) first, so that its own override them."""
    own = []
    for key, value in node.value:
        if key.tag != "tag:yaml.org,2002:merge":
            own.append((key, value))
            continue
        names = {k.value for k, _ in node.value if isinstance(k, yaml.ScalarNode)}
        for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
            if isinstance(source, yaml.MappingNode):
                yield from ((k, v) for k, v in _entries(source) if k.value not in names)
    yield from own


_scalars = yaml.constructor.SafeConstructor()
_CONSTRUCTORS = {
    _NULL: lambda node: None,
    "tag:yaml.org,2002:bool": _scalars.construct_yaml_bool,
    "tag:yaml.org,2002:int": _scalars.construct_yaml_int,
    "tag:yaml.org,2002:float": _scalars.construct_yaml_float,
}


def _scalar(node: yaml.ScalarNode) -> Any:
    """A plain value as Kubernetes sees it: dates stay text."""
    construct = _CONSTRUCTORS.get(node.tag)
    if construct is None:
        return node.value
    try:
        return construct(node)
    except (ValueError, KeyError, OverflowError, yaml.YAMLError):
        return node.value


def _expanded_size(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    if isinstance(node, yaml.ScalarNode):
        return 1
    if depth > MAX_DEPTH:
        return MAX_NODES + 1
    if id(node) not in known:
        known[id(node)] = MAX_NODES + 1  # a node that contains itself
        children = node.value if isinstance(node, yaml.SequenceNode) else [n for pair in node.value for n in pair]
        known[id(node)] = 1 + sum(_expanded_size(child, known, depth + 1) for child in children)
    return known[id(node)]


def _find(node: yaml.Node, path: FieldPath) -> tuple[yaml.Node, yaml.Node]:
    """Key and value node of the field, or of its nearest existing parent."""
    key, value = node, node
    for step in path:
        child = _child(value, step)
        if child is None:
            break
        key, value = child
    return key, value


def _child(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node, yaml.MappingNode):
        found = [(k, v) for k, v in _entries(node) if isinstance(k, yaml.ScalarNode) and str(_scalar(k)) == step]
        return found[-1] if found else None
    return None


def _inside(node: yaml.ScalarNode, lines: tuple[str, ...], offset: int) -> Mark:
    """Walk the value and its source together up to ``offset``; blanks at folds differ, all else is alike."""
    line, column = node.start_mark.line, node.start_mark.column
    if node.style in {"|", ">"}:
        line, column = line + 1, 0
    elif node.style in {"'", '"'}:
        column += 1
    for char in node.value[:offset]:
        line, column = _skip_blanks(lines, line, column, char)
        if char == "\n" and node.style == "|":
            line, column = line + 1, 0
        elif not char.isspace() or (line < len(lines) and column < len(lines[line])):
            column += 2 if _is_escape(lines, line, column, node.style) else 1
    line, column = _skip_blanks(lines, line, column, node.value[offset : offset + 1])
    return Mark(line + 1, column + 1)


def _skip_blanks(lines: tuple[str, ...], line: int, column: int, char: str) -> tuple[int, int]:
    """Past the indentation and the line break that folding took out, if the next character is not one itself."""
    if not char or char.isspace():
        return line, column
    while line < len(lines) and (column >= len(lines[line]) or lines[line][column].isspace()):
        line, column = (line + 1, 0) if column >= len(lines[line]) else (line, column + 1)
    return line, column


def _is_escape(lines: tuple[str, ...], line: int, column: int, style: str | None) -> bool:
    pair = lines[line][column : column + 2] if line < len(lines) else ""
    return (style == '"' and pair[:1] == "\\") or (style == "'" and pair == "''")


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _yaml_problem(error: yaml.YAMLError, file: str) -> ReadProblem:
    mark = getattr(error, "problem_mark", None)
    place = Mark(mark.line + 1, mark.column + 1) if mark is not None else Mark(1, 1)
    said = [getattr(error, "context", None), getattr(error, "problem", None)]
    text = ", ".join(part for part in said if part) or str(error).replace("\n", " ")
    return ReadProblem(file, place, f"this is not YAML: {text}")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
