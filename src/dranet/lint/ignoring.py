"""Ignore comments: ``# dranet: ignore[rule]`` in a manifest, with the reason after it.

A comment behind something speaks of its line. A comment on a line of its own speaks of what comes next: the line, and
all that is indented below it; above the first line of a document it speaks of the whole document. Without brackets all
rules are meant. JSON has no comments: use ``--disable`` there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from dranet.manifests.objects import Object

_COMMENT = re.compile(r"(?:^|\s)#\s*dranet:\s*ignore\b(?:\[(?P<rules>[^\]]*)\])?")


class Ignored(msgspec.Struct, frozen=True):
    """Lines of a file, counted from 1, and the rules that are not to speak of them; none means all."""

    first: int
    last: int
    rules: frozenset[str]
    line: int
    column: int

    def covers(self, line: int, rule: str) -> bool:
        """Whether it silences this rule on this line."""
        return self.first <= line <= self.last and (not self.rules or rule in self.rules)


def ignored_by_file(objects: Iterable[Object]) -> dict[str, tuple[Ignored, ...]]:
    """The ignore comments of every file; most have none, and are not split into lines to find that out."""
    sources = {obj.file: obj.source for obj in objects}
    return {file: tuple(_ignored(source.lines)) for file, source in sources.items() if "dranet: ignore" in source.text}


def _ignored(lines: tuple[str, ...]) -> Iterator[Ignored]:
    for i, line in enumerate(lines):
        found = _COMMENT.search(line)
        if found is None:
            continue
        named = [name.strip() for name in (found["rules"] or "").split(",")]
        first, last = _reach(lines, i) if line.lstrip().startswith("#") else (i, i)
        yield Ignored(first + 1, last + 1, frozenset(filter(None, named)), i + 1, found.start() + 1)


def _reach(lines: tuple[str, ...], comment: int) -> tuple[int, int]:
    """First and last line that a comment on a line of its own speaks of."""
    start = next((i for i in range(comment + 1, len(lines)) if _says_something(lines[i])), comment)
    before = next((lines[i] for i in range(comment - 1, -1, -1) if _says_something(lines[i])), "---")
    whole = _ends_document(before) or _ends_document(lines[start])
    if whole:
        start = min(start + _ends_document(lines[start]), len(lines) - 1)
    last = start
    for i in range(start + 1, len(lines)):
        if _ends_document(lines[i]) or not (whole or _below(lines[i], lines[start])):
            break
        last = i
    return start, last


def _below(line: str, head: str) -> bool:
    """Whether a line belongs to the block that the other opens; items of a list may stand right under their key."""
    if not _says_something(line) or _indent(line) > _indent(head):
        return True
    item, under_item = (text.lstrip().startswith("- ") for text in (line, head))
    return _indent(line) == _indent(head) and item and not under_item


def _says_something(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _ends_document(line: str) -> bool:
    return line.startswith(("---", "..."))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
