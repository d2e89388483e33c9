"""Ignore comments: ``# dranet: ignore[rule]`` in a manifest, with the reason after it.

A comment after a value applies to its line. A comment on a separate line applies to the next line and everything
indented below it; above the first line of a document it applies to the whole document. Without brackets it applies to
all rules. JSON has no comments: use ``--disable`` there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from dranet.advise.manifests import Object

_COMMENT = re.compile(r"(?:^|\s)#\s*dranet:\s*ignore\b(?:\[(?P<rules>[^\]]*)\])?")


class Ignored(msgspec.Struct, frozen=True):
    """Lines of a file, counted from 1, and the rules that are ignored there; an empty set means all."""

    first: int
    last: int
    rules: frozenset[str]
    line: int
    column: int

    def covers(self, line: int, rule: str) -> bool:
        return self.first <= line <= self.last and (not self.rules or rule in self.rules)


def ignored_by_file(objects: Iterable[Object]) -> dict[str, tuple[Ignored, ...]]:
    """The ignore comments of every file."""
    sources = {obj.file: obj.source for obj in objects}
    # Splitting large files into lines is slow, and most files have no such comment.
    return {file: tuple(_ignored(source.lines)) for file, source in sources.items() if "dranet: ignore" in source.text}


def _ignored(lines: tuple[str, ...]) -> Iterator[Ignored]:
    for i, line in enumerate(lines):
        found = _COMMENT.search(line)
        if found is None:
            continue
        named = [name.strip() for name in (found["rules"] or "").split(",")]
        first, last = _covered_lines(lines, i) if line.lstrip().startswith("#") else (i, i)
        yield Ignored(first + 1, last + 1, frozenset(filter(None, named)), i + 1, found.start() + 1)


def _covered_lines(lines: tuple[str, ...], comment: int) -> tuple[int, int]:
    """First and last line that a comment on a separate line applies to."""
    start = next((i for i in range(comment + 1, len(lines)) if _has_content(lines[i])), comment)
    before = next((lines[i] for i in range(comment - 1, -1, -1) if _has_content(lines[i])), "---")
    whole = _is_separator(before) or _is_separator(lines[start])
    if whole:
        start = min(start + _is_separator(lines[start]), len(lines) - 1)
    last = start
    for i in range(start + 1, len(lines)):
        if _is_separator(lines[i]) or not (whole or _below(lines[i], lines[start])):
            break
        last = i
    return start, last


def _below(line: str, head: str) -> bool:
    """Whether a line belongs to the block that `head` opens. YAML allows list items at the indent of their key."""
    if not _has_content(line) or _indent(line) > _indent(head):
        return True
    item, under_item = (text.lstrip().startswith("- ") for text in (line, head))
    return _indent(line) == _indent(head) and item and not under_item


def _has_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _is_separator(line: str) -> bool:
    return line.startswith(("---", "..."))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
