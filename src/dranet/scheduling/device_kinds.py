"""Which nodes have devices that are alike: the allocator is asked once for all of them.

Two nodes are alike when everything the claims at hand could look at is equal but the node's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dranet.model.untyped import mapping, name_of

_DYNAMIC = re.compile(r"(attributes|capacity)\s*(\[[^\]]*\])?\s*\.\s*(all|exists|exists_one|map|filter|transform\w*)\b")


def device_kinds(
    slices: Iterable[Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]], texts: Iterable[str]
) -> dict[str, str]:
    """For each node (``labels`` by name) a text that is equal for nodes that are alike, as far as ``texts``, all
    selectors and constraints that will be asked about, can tell."""
    everything = "\n".join(texts)
    seen = None if _DYNAMIC.search(everything) else _seen_of(set(re.findall(r"\w+", everything)))
    found: dict[str, list[object]] = {name: [] for name in labels}
    reachable_from_several = False
    for raw in slices:
        node = mapping(raw.get("spec")).get("nodeName")
        reachable_from_several |= not node
        if node in found:
            found[node].append(_kind(raw, node, seen))
    if reachable_from_several:
        # Labels then decide which slices a node sees.
        for name, parts in found.items():
            parts.append(sorted(labels[name].items()))
    numbers: dict[bytes, int] = {}
    encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode
    return {name: f"#{numbers.setdefault(encode(parts), len(numbers))}" for name, parts in found.items()}


Seen = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Of names of attributes, those that some selector or constraint names."""


def _seen_of(words: set[str]) -> Seen:
    """A fleet has millions of attributes and few sets of their names."""

    @lru_cache
    def seen(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name.rpartition("/")[2] in words)

    return seen


def _kind(raw: Mapping[str, Any], node: str, seen: Seen | None) -> list[object]:
    spec = raw["spec"]
    pool = {**spec["pool"], "name": "" if spec["pool"].get("name") == node else spec["pool"].get("name")}
    devices = [device if seen is None else _visible(device, seen) for device in spec.get("devices") or ()]
    rest = {key: value for key, value in spec.items() if key not in {"devices", "pool", "nodeName"}}
    return [name_of(raw).replace(node, ""), rest, pool, devices]


def _visible(device: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
    """A device without the attributes that no selector or constraint names."""
    attributes = device.get("attributes") or {}
    return {**device, "attributes": {name: attributes[name] for name in seen(tuple(attributes))}}
