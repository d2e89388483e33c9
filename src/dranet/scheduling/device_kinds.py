"""Which nodes have devices that are alike: the allocator is asked once for all of them.

Two nodes are alike when everything the claims at hand could look at is equal but the node's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from dranet.model.untyped import mapping, name_of

_DYNAMIC = re.compile(r"(attributes|capacity)\s*(\[[^\]]*\])?\s*\.\s*(all|exists|exists_one|map|filter|transform\w*)\b")


def device_kinds(
    slices: Iterable[Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]], texts: Iterable[str]
) -> dict[str, str]:
    """For each node (``labels`` by name) a text that is equal for nodes that are alike, as far as ``texts``, all
    selectors and constraints that will be asked about, can tell."""
    everything = "\n".join(texts)
    words = None if _DYNAMIC.search(everything) else set(re.findall(r"\w+", everything))
    found: dict[str, list[object]] = {name: [] for name in labels}
    reachable_from_several = False
    for raw in slices:
        node = mapping(raw.get("spec")).get("nodeName")
        reachable_from_several |= not node
        if node in found:
            found[node].append(_kind(raw, node, words))
    if reachable_from_several:
        # Labels then decide which slices a node sees.
        for name, parts in found.items():
            parts.append(sorted(labels[name].items()))
    numbers: dict[str, int] = {}
    texts_of = {name: json.dumps(parts, sort_keys=True, default=str) for name, parts in found.items()}
    return {name: f"#{numbers.setdefault(text, len(numbers))}" for name, text in texts_of.items()}


def _kind(raw: Mapping[str, Any], node: str, words: set[str] | None) -> list[object]:
    spec = raw["spec"]
    pool = {**spec["pool"], "name": "" if spec["pool"].get("name") == node else spec["pool"].get("name")}
    devices = [device if words is None else _visible(device, words) for device in spec.get("devices") or ()]
    rest = {key: value for key, value in spec.items() if key not in {"devices", "pool", "nodeName"}}
    return [name_of(raw).replace(node, ""), rest, pool, devices]


def _visible(device: Mapping[str, Any], words: set[str]) -> dict[str, Any]:
    """A device without the attributes that no selector or constraint names."""
    attributes = device.get("attributes") or {}
    kept = {name: value for name, value in attributes.items() if name.rpartition("/")[2] in words}
    return {**device, "attributes": kept}
