"""YAML, read fast: values straight from the parser's events, with no node for every scalar.

Composing nodes takes most of the time of reading a large file, and they are only needed for places. So the events give
the plain data and where each object begins and ends; its nodes are made when a place is asked for. Whatever is not
plain (anchors, tags, merge keys, documents that are no object, mistakes) is left to the slow way, which says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
)

from dranet.manifests.json_objects import inherited, list_items, names_itself
from dranet.manifests.objects import Object, locate_in
from dranet.manifests.source_text import SourceText, Span
from dranet.manifests.yaml_nodes import MAX_DEPTH, FieldPath, Loader, Mark, plain_scalar

Duplicates = tuple[tuple[FieldPath, Mark], ...]


class _NotPlain(Exception):
    """Something the slow way must look at."""


def read_plain_yaml(text: str, file: str) -> list[Object] | None:
    """Objects of a text that is nothing but plain Kubernetes objects and Lists of them; else None."""
    try:
        return list(_Reader(text, file).objects())
    except (_NotPlain, yaml.YAMLError, RecursionError):
        return None


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self._source, self._file = SourceText(text), file
        self._events: Iterator[Any] = yaml.parse(text, Loader=Loader)
        self._path: list[str | int] = []
        self._duplicates: list[tuple[FieldPath, Mark]] = []
        self._items: list[tuple[Any, Any]] = []
        """Begin and end of each of the document's ``items``."""

    def objects(self) -> Iterator[Object]:
        for event in self._events:
            if event.__class__ is DocumentStartEvent:
                yield from self._document(next(self._events))

    def _document(self, event: Any) -> Iterator[Object]:
        self._duplicates, self._items = [], []
        start = event.start_mark
        data = self._value(event)
        if data is None:
            return
        if not isinstance(data, dict):
            raise _NotPlain
        kind = str(data.get("kind") or "List")
        if isinstance(data.get("items"), list) and kind.endswith("List"):
            yield from self._list(data, inherited(kind, data.get("apiVersion") or None))
        else:
            yield self._object(data, start, self._end, tuple(self._duplicates))

    def _list(self, data: dict[str, Any], defaults: dict[str, str]) -> Iterator[Object]:
        for i, (item, (start, end)) in enumerate(zip(data["items"], self._items, strict=True)):
            if not isinstance(item, dict) or list_items(item) is not None:
                raise _NotPlain
            mine = tuple((path[2:], mark) for path, mark in self._duplicates if path[:2] == ("items", i))
            yield self._object({**defaults, **item}, start, end, mine)

    def _object(self, data: dict[str, Any], start: Any, end: Any, duplicates: Duplicates) -> Object:
        if not names_itself(data):
            raise _NotPlain
        span = Span(self._source, start.index, end.index, start.column)
        return Object(data, self._file, locate_in(span), self._source, duplicates)

    def _value(self, event: Any) -> Any:
        self._end = event.end_mark
        kind = event.__class__
        if kind is AliasEvent or event.anchor is not None:
            raise _NotPlain
        if kind is ScalarEvent:
            return self._scalar(event)
        if event.tag is not None or len(self._path) > MAX_DEPTH:
            raise _NotPlain
        return self._mapping() if kind is MappingStartEvent else self._sequence()

    def _scalar(self, event: Any) -> Any:
        if event.implicit[0]:
            return plain_scalar(event.value)
        if event.tag is not None:
            raise _NotPlain
        return event.value

    def _mapping(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        events, path = self._events, self._path
        event: Any
        for event in events:
            if event.__class__ is MappingEndEvent:
                self._end = event.end_mark
                return made
            if event.__class__ is not ScalarEvent or event.anchor is not None or event.value == "<<":
                raise _NotPlain
            key = str(self._scalar(event))
            path.append(key)
            if key in made:
                self._duplicates.append((tuple(path), _mark(event)))
            made[key] = self._value(next(events))
            path.pop()
        raise _NotPlain

    def _sequence(self) -> list[Any]:
        made: list[Any] = []
        path, top = self._path, self._path == ["items"]
        for event in self._events:
            if event.__class__ is SequenceEndEvent:
                self._end = event.end_mark
                return made
            path.append(len(made))
            made.append(self._value(event))
            path.pop()
            if top:
                self._items.append((event.start_mark, self._end))
        raise _NotPlain


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)
