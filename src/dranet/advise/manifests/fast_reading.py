"""Fast readers for plain JSON and plain YAML; everything else goes to the slow reader, which reports mistakes.

Composing YAML nodes takes most of the time of a large file (measured: 1.1 s per MB, against 0.24 s here), and only
positions need nodes. So JSON is decoded directly, YAML data comes straight from the parser's events, and the nodes of
an object are composed from its own text when a position is asked for. Not plain: anchors, tags, merge keys, documents
that are not objects, keys that occur twice in JSON, and every mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
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

from dranet.advise.manifests.objects import Located, Object, SourceText, Span, locate_in
from dranet.advise.manifests.yaml_nodes import MAX_DEPTH, FieldPath, Loader, Mark, plain_scalar


class _DuplicateKey(Exception):
    """A JSON object has a key twice; the slow reader reports the position."""


def read_json(text: str, file: str) -> list[Object] | None:
    """Objects of one or several JSON values in a text; None if the text is not plain."""
    try:
        return _objects(text, file)
    except (RecursionError, _DuplicateKey):
        return None
    except ValueError:
        return _several(text, file)


def _several(text: str, file: str) -> list[Object] | None:
    decoder, start, found = json.JSONDecoder(object_pairs_hook=_unique), _skip(text, 0), []
    source = SourceText(text)
    try:
        while start < len(text):
            data, end = decoder.raw_decode(text, start)
            objects = _of_value(data, source, file, start, end)
            if objects is None:
                return None
            found += objects
            start = _skip(text, end)
    except (ValueError, RecursionError, _DuplicateKey):
        return None
    return found


def _objects(text: str, file: str) -> list[Object] | None:
    return _of_value(json.loads(text, object_pairs_hook=_unique), SourceText(text), file, 0, len(text))


def _of_value(data: Any, source: SourceText, file: str, start: int, end: int) -> list[Object] | None:
    items = list_items(data)
    found = [data] if items is None else items
    if not all(isinstance(item, dict) and has_type(item) for item in found):
        return None
    if items is None:
        return [Object(data, file, locate_in(Span(source, start, end)), source)]

    @cache
    def spans() -> list[Span]:
        return [Span(source, *ends) for ends in _item_ends(source.text, start)]

    return [Object(item, file, partial(_locate_item, spans, i), source) for i, item in enumerate(found)]


def _locate_item(spans: Callable[[], list[Span]], i: int) -> Located:
    return locate_in(spans()[i])()


def _item_ends(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each of the ``items`` of a List; the text is valid JSON."""
    decoder = json.JSONDecoder()
    at = _skip(text, _skip(text, start) + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)  # past the colon
        if key == "items":
            break
        _, at = decoder.raw_decode(text, at)
        at = _skip(text, at)
        at = _skip(text, at + (text[at] == ","))
    at = _skip(text, at + 1)
    while text[at] != "]":
        _, end = decoder.raw_decode(text, at)
        yield at, end
        at = _skip(text, end)
        at = _skip(text, at + (text[at] == ","))


_BLANKS = re.compile(r"[ \t\n\r]*")


def _skip(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def list_items(data: Any) -> list[Any] | None:
    """The items of a List, with the kind of a typed list filled in; None for other objects."""
    if not isinstance(data, dict) or not isinstance(data.get("items"), list):
        return None
    kind = str(data.get("kind") or "List")
    if not kind.endswith("List"):
        return None
    defaults = inherited(kind, data.get("apiVersion"))
    return [{**defaults, **item} if isinstance(item, dict) else item for item in data["items"]]


def inherited(kind: str, version: Any) -> dict[str, str]:
    """apiVersion and kind of the items of a typed list such as ``ResourceSliceList``; nothing for a plain List."""
    of_one_kind = kind != "List" and isinstance(version, str)
    return {"apiVersion": version, "kind": kind.removesuffix("List")} if of_one_kind else {}


def has_type(item: dict[str, Any]) -> bool:
    """Whether an object has apiVersion and kind."""
    return all(isinstance(item.get(key), str) and item[key] for key in ("kind", "apiVersion"))


_ATTRIBUTE_KEYS = ("string", "bool", "int", "version", "value")
_interned: dict[tuple[str, type, Any], dict[str, Any]] = {}
_MAX_INTERNED = 100_000


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping without duplicate keys. Equal attribute values share one mapping: a large cluster has millions of them,
    and they would take most of the memory. Callers never change what was read."""
    if len(pairs) == 1 and pairs[0][0] in _ATTRIBUTE_KEYS and pairs[0][1].__class__ in (str, bool, int):
        key, value = pairs[0]
        if len(_interned) < _MAX_INTERNED:
            return _interned.setdefault((key, value.__class__, value), {key: value})
        return _interned.get((key, value.__class__, value)) or {key: value}
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _DuplicateKey
    return made


_Duplicates = tuple[tuple[FieldPath, Mark], ...]


class _NotPlain(Exception):
    """The slow reader must read this text."""


def read_plain_yaml(text: str, file: str) -> list[Object] | None:
    """Objects of a text that contains only plain Kubernetes objects and Lists of them; else None."""
    try:
        return list(_YamlReader(text, file).objects())
    except (_NotPlain, yaml.YAMLError, RecursionError):
        return None


class _YamlReader:
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

    def _object(self, data: dict[str, Any], start: Any, end: Any, duplicates: _Duplicates) -> Object:
        if not has_type(data):
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
