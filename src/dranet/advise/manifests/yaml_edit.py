"""Change single fields of a YAML or JSON document and leave the rest of its text as it is, comments and order included.

A function takes the text of one document and returns the new text. Positions come from PyYAML's nodes; a library that
rewrites the whole document would also change indentation, quotes and line lengths.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from dranet.advise.manifests.yaml_nodes import FieldPath, Loader, child_of, find

_DOCUMENT = re.compile(r"^(?=---(?:\s|$))", re.MULTILINE)
_PLAIN_KEY = re.compile(r"[A-Za-z][\w./-]*")


def remove(text: str, path: FieldPath) -> str:
    """Without the field or list item, and without the parents that would be empty then."""
    root = yaml.compose(text, Loader=Loader)
    if _existing(root, path) < len(path):
        return text
    while len(path) > 1 and len(find(root, path[:-1])[1].value) == 1:
        path = path[:-1]
    parent = find(root, path[:-1])[1]
    found = child_of(parent, path[-1])
    if found is None:
        return text
    if isinstance(parent, yaml.CollectionNode) and parent.flow_style:
        return _without_flow_entry(text, parent, *found)
    return _without_block_entry(text, parent, *found)


def put(text: str, path: FieldPath, value: Any) -> str:
    """With this value at the path, which must not be a block collection yet; parents are added as needed."""
    root = yaml.compose(text, Loader=Loader)
    depth = _existing(root, path)
    node = find(root, path[:depth])[1]
    for step in reversed(path[depth + 1 :]):
        value = [value] if isinstance(step, int) else {step: value}
    if depth < len(path) and isinstance(node, yaml.MappingNode):
        return _with_entry(text, node, str(path[depth]), value)
    if depth < len(path) and isinstance(node, yaml.SequenceNode):
        return _with_item(text, node, value)
    if depth < len(path):
        value = [value] if isinstance(path[depth], int) else {path[depth]: value}
    return _replaced(text, node, value)


def append(text: str, path: FieldPath, item: Any) -> str:
    """With one more item at the end of a list, which is added if there is none."""
    node = find(yaml.compose(text, Loader=Loader), path)[1]
    exists = _existing(yaml.compose(text, Loader=Loader), path) == len(path)
    if exists and isinstance(node, yaml.SequenceNode):
        return _with_item(text, node, item)
    return put(text, path, [item])


def _existing(root: yaml.Node, path: FieldPath) -> int:
    """How many steps of the path exist."""
    node = root
    for depth, step in enumerate(path):
        child = child_of(node, step)
        if child is None:
            return depth
        node = child[1]
    return len(path)


def _without_flow_entry(text: str, parent: yaml.Node, key: yaml.Node, value: yaml.Node) -> str:
    """From the end of the entry before it, or up to the start of the next one."""
    first, last = _index(text, key.start_mark), _index(text, value.end_mark)
    starts = [_index(text, entry.start_mark) for entry in _keys(parent)]
    ends = [_index(text, entry.end_mark) for entry in _values(parent)]
    before = [end for end in ends if end <= first]
    if before:
        return text[: max(before)] + text[last:]
    after = [start for start in starts if start >= last]
    return text[:first] + text[min(after, default=last) :]


def _without_block_entry(text: str, parent: yaml.Node, key: yaml.Node, value: yaml.Node) -> str:
    lines = text.splitlines(keepends=True)
    first, column = key.start_mark.line, key.start_mark.column
    if isinstance(parent, yaml.SequenceNode):
        column = parent.start_mark.column
    if lines[first][:column].strip():
        # The first field of a list item stands behind its dash: the next field takes its place.
        after = [entry.start_mark for entry in _keys(parent) if entry.start_mark.line > first]
        return text[: _index(text, key.start_mark)] + text[_index(text, after[0]) :]
    return "".join([*lines[:first], *lines[_last_line(value, lines) + 1 :]])


def _with_entry(text: str, node: yaml.MappingNode, key: str, value: Any) -> str:
    if node.flow_style:
        return _inserted_in_flow(text, node, f"{_flow_key(text, key)}: {_flow(text, value)}")
    return _inserted(text, node, node.value[0][0].start_mark.column, {key: value})


def _with_item(text: str, node: yaml.SequenceNode, item: Any) -> str:
    if node.flow_style:
        return _inserted_in_flow(text, node, _flow(text, item))
    return _inserted(text, node, node.start_mark.column, [item])


def _inserted(text: str, node: yaml.Node, column: int, value: Any) -> str:
    """A block with this indentation below the last line of the node."""
    lines = text.splitlines(keepends=True)
    last = _last_line(node, lines)
    if not lines[last].endswith("\n"):
        lines[last] += "\n"
    block = yaml.safe_dump(value, sort_keys=False, width=1 << 20).splitlines(keepends=True)
    return "".join([*lines[: last + 1], *(" " * column + line for line in block), *lines[last + 1 :]])


def _inserted_in_flow(text: str, node: yaml.Node, entry: str) -> str:
    ends = [_index(text, child.end_mark) for child in _values(node)]
    if ends:
        return f"{text[: max(ends)]}, {entry}{text[max(ends) :]}"
    inside = _index(text, node.end_mark) - 1
    return text[:inside] + entry + text[inside:]


def _replaced(text: str, node: yaml.Node, value: Any) -> str:
    first, last = _index(text, node.start_mark), _index(text, node.end_mark)
    gap = " " if first == last and text[first - 1 : first] == ":" else ""
    return text[:first] + gap + _flow(text, value) + text[last:]


def _flow(text: str, value: Any) -> str:
    """On one line: JSON in JSON, else YAML."""
    if _is_json(text):
        return json.dumps(value)
    made = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 20)
    return made.removesuffix("...\n").strip()


def _flow_key(text: str, key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) and not _is_json(text) else json.dumps(key)


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in {"{", "["}


def _keys(node: yaml.Node) -> list[yaml.Node]:
    return [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else list(node.value)


def _values(node: yaml.Node) -> list[yaml.Node]:
    return [value for _, value in node.value] if isinstance(node, yaml.MappingNode) else list(node.value)


def _last_line(node: yaml.Node, lines: list[str]) -> int:
    """The last line with content of the node; PyYAML ends a block only where the next token starts."""
    end = node.end_mark
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        return max(_last_line(child, lines) for child in (*_keys(node), *_values(node)))
    last = end.line - 1 if end.column == 0 and end.line > node.start_mark.line else end.line
    while last > node.start_mark.line and not lines[last].strip():
        last -= 1
    return int(last)


def _index(text: str, mark: yaml.Mark) -> int:
    """The offset of a mark in the text."""
    start = 0
    for _ in range(mark.line):
        start = text.index("\n", start) + 1
    return start + int(mark.column)


def rename(text: str, path: FieldPath, name: str) -> str:
    """With another name for the field."""
    key = find(yaml.compose(text, Loader=Loader), path)[0]
    quote = text[_index(text, key.start_mark)]
    made = json.dumps(name) if quote == '"' else f"'{name}'" if quote == "'" else name
    return text[: _index(text, key.start_mark)] + made + text[_index(text, key.end_mark) :]


def path_at(text: str, line: int, column: int) -> FieldPath | None:
    """The field or list item that starts at a position, both counted from 1; the outermost if there are several."""
    waiting: list[tuple[FieldPath, yaml.Node]] = [((), yaml.compose(text, Loader=Loader))]
    while waiting:
        path, node = waiting.pop(0)
        entries: list[tuple[str | int, yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.MappingNode):
            entries = [(str(key.value), key, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            entries = [(i, item, item) for i, item in enumerate(node.value)]
        for step, key, value in entries:
            if (key.start_mark.line + 1, key.start_mark.column + 1) == (line, column):
                return (*path, step)
            waiting.append(((*path, step), value))
    return None


def split_documents(text: str) -> list[str]:
    """The documents of a file; each keeps its ``---`` line, so that joining them gives the file."""
    return [part for part in _DOCUMENT.split(text) if part]
