"""JSON, read fast: a dump of a large cluster is megabytes, and YAML's reader takes minutes for it.

Only what is plain is read here; the rest is left to YAML, which finds the mistake and its place. Places are worked out
when somebody asks, by YAML too, from the text of the one object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from dranet.manifests.objects import Located, Object, locate_in
from dranet.manifests.source_text import SourceText, Span


class _Twice(Exception):
    """An object has a key twice: YAML's reader says where."""


def read_json(text: str, file: str) -> list[Object] | None:
    """Objects of one JSON text, or of several one after the other; None for all that is not plain."""
    try:
        return _objects(text, file)
    except (RecursionError, _Twice):
        return None
    except ValueError:
        return _several(text, file)


def _several(text: str, file: str) -> list[Object] | None:
    """The values that follow each other in one text."""
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
    except (ValueError, RecursionError, _Twice):
        return None
    return found


def _objects(text: str, file: str) -> list[Object] | None:
    return _of_value(json.loads(text, object_pairs_hook=_unique), SourceText(text), file, 0, len(text))


def _of_value(data: Any, source: SourceText, file: str, start: int, end: int) -> list[Object] | None:
    items = list_items(data)
    found = [data] if items is None else items
    if not all(isinstance(item, dict) and names_itself(item) for item in found):
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
    """Where each of the ``items`` of a List begins and ends; the text is known to be good JSON."""
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
    """Past the blanks."""
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def list_items(data: Any) -> list[Any] | None:
    """The items of a List, which say themselves what they are or are of the list's own kind; None for other objects."""
    if not isinstance(data, dict) or not isinstance(data.get("items"), list):
        return None
    kind = str(data.get("kind") or "List")
    if not kind.endswith("List"):
        return None
    defaults = inherited(kind, data.get("apiVersion"))
    return [{**defaults, **item} if isinstance(item, dict) else item for item in data["items"]]


def inherited(kind: str, version: Any) -> dict[str, str]:
    """What the items of a ``ResourceSliceList`` are where they do not say; a plain List tells nothing."""
    of_one_kind = kind != "List" and isinstance(version, str)
    return {"apiVersion": version, "kind": kind.removesuffix("List")} if of_one_kind else {}


def names_itself(item: dict[str, Any]) -> bool:
    """Whether it says what it is."""
    return all(isinstance(item.get(key), str) and item[key] for key in ("kind", "apiVersion"))


_ATTRIBUTES = ("string", "bool", "int", "version", "value")
_known_values: dict[tuple[str, type, Any], dict[str, Any]] = {}
_MOST_KNOWN = 100_000


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The mapping. That of an attribute's value is shared by all that are equal, and most are: a large cluster has
    millions of them, which would be most of the memory. Nothing that was read is ever changed."""
    if len(pairs) == 1 and pairs[0][0] in _ATTRIBUTES and pairs[0][1].__class__ in (str, bool, int):
        key, value = pairs[0]
        if len(_known_values) < _MOST_KNOWN:
            return _known_values.setdefault((key, value.__class__, value), {key: value})
        return _known_values.get((key, value.__class__, value)) or {key: value}
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Twice
    return made
