"""YAML nodes: values with their positions, found by path.

A CEL expression is text inside text. Folded, quoted and literal scalars each change it; `position_inside` walks both
texts side by side to find the position of a character of the expression in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import yaml

FieldPath = tuple[str | int, ...]
MAX_DEPTH = 100
"""Levels of nesting. The YAML parser recurses once per level, and deep input would exhaust the C stack."""
MAX_ALIASED = 100_000
"""Values that aliases and merge keys may add to a file. They multiply, so they are counted before they are expanded."""
MAX_NUMBER = 64
"""Characters of a number; a longer one stays text, because some YAML number formats take quadratic time."""

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEP_LINE = re.compile(rf"^[ ?:-]{{{MAX_DEPTH // 2}}}", re.MULTILINE)
"""A line that may be too deep: each level takes at least one column, except lists at the column of their key."""
_UNBOUNDED = 1 << 62
_NULL = "tag:yaml.org,2002:null"
_STRING = "tag:yaml.org,2002:str"
_MAPPING = "tag:yaml.org,2002:map"


class Mark(msgspec.Struct, frozen=True, order=True):
    """A position in a file, both counted from 1."""

    line: int
    column: int


def construct(node: yaml.Node, path: FieldPath, duplicates: list[tuple[FieldPath, Mark]]) -> Any:
    """The plain data of a node; keys that occur twice are added to ``duplicates``."""
    if isinstance(node, yaml.SequenceNode):
        return [construct(item, (*path, i), duplicates) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    made: dict[str, Any] = {}
    for key_node, value in _entries(node):
        key = str(_scalar(key_node)) if isinstance(key_node, yaml.ScalarNode) else repr(key_node.tag)
        if key in made:
            duplicates.append(((*path, key), mark_of(key_node)))
        made[key] = construct(value, (*path, key), duplicates)
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


_resolver: Any = yaml.resolver.Resolver()


@lru_cache(maxsize=100_000)
def plain_scalar(text: str) -> Any:
    """The value of a scalar without quotes and tag. Cached: manifests repeat few different values very often."""
    tag = _resolver.resolve(yaml.ScalarNode, text, (True, False))
    return text if tag == _STRING else _scalar(yaml.ScalarNode(tag, text))


def _scalar(node: yaml.ScalarNode) -> Any:
    """A scalar as Kubernetes reads it: dates stay text."""
    construct = _CONSTRUCTORS.get(node.tag)
    if construct is None or len(node.value) > MAX_NUMBER:
        return node.value
    try:
        return construct(node)
    except (ValueError, KeyError, OverflowError, yaml.YAMLError):
        return node.value


def too_deep(text: str) -> Mark | None:
    """The first position that is nested deeper than `MAX_DEPTH`, or None."""
    if text.count("[") + text.count("{") <= MAX_DEPTH and not _DEEP_LINE.search(text):
        return None  # nearly every file; only the rest is parsed event by event, which does not recurse
    depth = 0
    try:
        for event in yaml.parse(text, Loader=Loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                return Mark(event.start_mark.line + 1, event.start_mark.column + 1)
    except yaml.YAMLError:
        pass  # the caller composes the same text and reports the error
    return None


def aliased_size(root: yaml.Node) -> int:
    """How many values aliases and merge keys add to those in the text; counted without expanding them."""
    expanded: dict[int, int] = {}
    size = _expanded_size(root, expanded, 0)
    return size - len(expanded) if size <= _UNBOUNDED else _UNBOUNDED


def _expanded_size(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = _UNBOUNDED  # a node that contains itself, or is too deep
    if isinstance(node, yaml.ScalarNode):
        known[id(node)] = 1
    elif depth <= MAX_DEPTH:
        children = node.value if isinstance(node, yaml.SequenceNode) else [n for pair in node.value for n in pair]
        known[id(node)] = 1 + sum(_expanded_size(child, known, depth + 1) for child in children)
    return known[id(node)]


def find(node: yaml.Node, path: FieldPath) -> tuple[yaml.Node, yaml.Node]:
    """Key and value node of the field, or of its nearest existing parent."""
    key, value = node, node
    for step in path:
        child = child_of(value, step)
        if child is None:
            break
        key, value = child
    return key, value


def child_of(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Key and value node one step down, or None."""
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node, yaml.MappingNode):
        found = [(k, v) for k, v in _entries(node) if isinstance(k, yaml.ScalarNode) and str(_scalar(k)) == step]
        return found[-1] if found else None
    return None


def position_inside(node: yaml.ScalarNode, start: Mark, lines: tuple[str, ...], offset: int) -> Mark:
    """The position of a character of a scalar. Value and source text differ only in blanks at folds.

    ``start`` is the position of the node, counted from 0.
    """
    line, column = start.line, start.column
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
    """Skip the indentation and the line break that folding removed, unless the next character is a blank itself."""
    if not char or char.isspace():
        return line, column
    while line < len(lines) and (column >= len(lines[line]) or lines[line][column].isspace()):
        line, column = (line + 1, 0) if column >= len(lines[line]) else (line, column + 1)
    return line, column


def _is_escape(lines: tuple[str, ...], line: int, column: int, style: str | None) -> bool:
    pair = lines[line][column : column + 2] if line < len(lines) else ""
    return (style == '"' and pair[:1] == "\\") or (style == "'" and pair == "''")


def mark_of(node: yaml.Node) -> Mark:
    """The position of a node."""
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def is_null(node: yaml.Node) -> bool:
    """Whether a node is an empty document or ``null``."""
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def mapping_around(entries: dict[str, yaml.Node | str], at: yaml.Node) -> yaml.MappingNode:
    """A mapping that is not in the text; all its keys and texts have the position of ``at``."""
    begin, end = at.start_mark, at.end_mark

    def text(value: str) -> yaml.ScalarNode:
        return yaml.ScalarNode(_STRING, value, begin, begin)

    pairs = [(text(key), text(node) if isinstance(node, str) else node) for key, node in entries.items()]
    return yaml.MappingNode(_MAPPING, pairs, begin, end)


def dotted(path: FieldPath) -> str:
    """A path in the usual notation: ``spec.devices.requests[0].name``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
