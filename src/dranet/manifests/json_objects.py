"""JSON, read fast: a dump of a large cluster is megabytes, and YAML's reader takes minutes for it.

Only what is plain is read here; the rest is left to YAML, which finds the mistake and its place. Places are worked out
when somebody asks, by YAML too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import yaml

from dranet.manifests.objects import Object
from dranet.manifests.yaml_nodes import Loader, find
from dranet.model.errors import InvalidInput

MAX_VALUES = 10_000
"""Values one after another: finding places takes each of them as long as all before it."""


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
    """Values that follow each other, as `jq` writes them."""
    lines = tuple(text.splitlines())
    objects: list[Object] = []
    try:
        for count, (data, padded) in enumerate(_values(text)):
            found = _found(data, file, padded, lines)
            if found is None:
                return None
            if count == MAX_VALUES:
                raise InvalidInput(
                    f"{file}: more than {MAX_VALUES:,} JSON values one after another; make a List of them"
                )
            objects += found
    except (ValueError, RecursionError, _Twice):
        return None
    return objects


def _values(text: str) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Each value, and its text moved to where it stands by blanks before it: made when asked for, being as long as
    everything before it."""
    decoder, start = json.JSONDecoder(object_pairs_hook=_unique), len(text) - len(text.lstrip())
    while start < len(text):
        data, end = decoder.raw_decode(text, start)
        yield data, partial(_padded, text, start, end)
        while end < len(text) and text[end].isspace():
            end += 1
        start = end


def _padded(text: str, start: int, end: int) -> str:
    last_line = text.rfind("\n", 0, start) + 1
    return "\n" * text.count("\n", 0, start) + " " * (start - last_line) + text[start:end]


def _objects(text: str, file: str) -> list[Object] | None:
    data = json.loads(text, object_pairs_hook=_unique)
    return _found(data, file, lambda: text, tuple(text.splitlines()))


def _found(data: Any, file: str, text: Callable[[], str], lines: tuple[str, ...]) -> list[Object] | None:
    items = list_items(data)
    found = [data] if items is None else items
    if not all(isinstance(item, dict) and _names_itself(item) for item in found):
        return None

    @cache
    def root() -> yaml.Node:
        node: yaml.Node = yaml.compose(text(), Loader=Loader)
        return node

    def locate(i: int) -> yaml.Node:
        return root() if items is None else find(root(), ("items", i))[1]

    return [Object(item, file, partial(locate, i), lines) for i, item in enumerate(found)]


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


def _names_itself(item: dict[str, Any]) -> bool:
    return all(isinstance(item.get(key), str) and item[key] for key in ("kind", "apiVersion"))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Twice
    return made
