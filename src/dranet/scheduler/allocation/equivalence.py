"""What the allocator cannot tell apart: devices, claims and nodes that get the same answer.

Devices that agree in everything a selector reads get the same result from it, so it runs once for all of them. Claims
whose selectors take the same devices of a node get the same answer there. Nodes whose devices agree in everything
that the given selectors and constraints mention give the same answers. Sets of devices are bit masks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from dranet.core.untyped import as_dict, name_of
from dranet.scheduler.allocation.candidates import NodeCandidates
from dranet.scheduler.allocation.selectors import DeviceInput, DeviceSelector, Read, SelectorCompiler

Mask = int
# A macro over all attributes reads names that its text does not mention.
_DYNAMIC = re.compile(r"(attributes|capacity)\s*(\[[^\]]*\])?\s*\.\s*(all|exists|exists_one|map|filter|transform\w*)\b")


class DeviceEquivalence:
    """A set of devices, and which of them selectors take."""

    def __init__(self, devices: Iterable[DeviceInput]) -> None:
        self._devices = list(devices)
        self.all: Mask = (1 << len(self._devices)) - 1
        self._groups: dict[object, list[tuple[Mask, DeviceInput]]] = {}

    def evaluate(self, among: Mask, selector: DeviceSelector) -> tuple[Mask, Mask]:
        """Of these devices, those the selector matches and those it fails on."""
        matched = failed = 0
        for group, device in self._group(among, selector.reads):
            result = selector.evaluate(device)
            matched |= group if result.matches else 0
            failed |= group if result.matches is None else 0
        return matched, failed

    def _group(self, among: Mask, reads: tuple[Read, ...] | None) -> list[tuple[Mask, DeviceInput]]:
        if (among, reads) not in self._groups:
            found: dict[object, tuple[Mask, DeviceInput]] = {}
            for number, device in enumerate(self._devices):
                if among >> number & 1:
                    values = None if reads is None or device.problem else device.key(reads)
                    key = number if values is None else values
                    mask, first = found.get(key, (0, device))
                    found[key] = (mask | 1 << number, first)
            self._groups[among, reads] = list(found.values())
        return self._groups[among, reads]


class ClaimEquivalence:
    """Descriptions of claims that are equal if the allocator's answers are equal, for one node and its equivalents.

    A description replaces the selectors of a request by the set of devices they take. Where a selector fails on a
    device it stays as text: the error contains it, and the search may or may not reach that device.
    """

    def __init__(
        self, node: NodeCandidates, classes: Mapping[str, Mapping[str, Any]], selectors: SelectorCompiler
    ) -> None:
        self._devices = DeviceEquivalence(device.input for device in node.candidates)
        self._classes = classes
        self._selectors = selectors
        self._by_class: dict[str, Mask | None] = {}

    def describe(self, spec: Mapping[str, Any]) -> str:
        """The description of a claim with this spec."""
        devices = spec.get("devices") or {}
        requests = [self._request(request) for request in devices.get("requests") or ()]
        return json.dumps({**spec, "devices": {**devices, "requests": requests}}, sort_keys=True, default=str)

    def _request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if alternatives := request.get("firstAvailable"):
            return {**request, "firstAvailable": [self._exact_request(one) for one in alternatives]}
        return {**request, "exactly": self._exact_request(request["exactly"])} if request.get("exactly") else request

    def _exact_request(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        matched = self._in_class(str(request.get("deviceClassName")))
        for selector in request.get("selectors") or ():
            matched = None if matched is None else self._matched(matched, selector)
        return request if matched is None else {**request, "selectors": f"{matched:x}"}

    def _in_class(self, name: str) -> Mask | None:
        """The devices of a class; None if the class is unknown or a selector fails."""
        if name not in self._by_class:
            matched: Mask | None = self._devices.all if name in self._classes else None
            for selector in (self._classes.get(name, {}).get("spec") or {}).get("selectors") or ():
                matched = None if matched is None else self._matched(matched, selector)
            self._by_class[name] = matched
        return self._by_class[name]

    def _matched(self, among: Mask, selector: Mapping[str, Any]) -> Mask | None:
        """The devices among these that a selector takes; None if it fails on one of them."""
        compiled = self._selectors.compile(str((selector.get("cel") or {}).get("expression", "")))
        matched, failed = self._devices.evaluate(among, compiled)
        return None if failed else matched


def device_signatures(
    slices: Iterable[Mapping[str, Any]], labels: Mapping[str, Mapping[str, str]], texts: Iterable[str]
) -> dict[str, str]:
    """For each node (``labels`` by name) a text that is equal for nodes with equivalent devices.

    ``texts`` are all selectors and constraints of later requests. Only attributes that they mention can differ.
    """
    everything = "\n".join(texts)
    visible = None if _DYNAMIC.search(everything) else _visible_names(set(re.findall(r"\w+", everything)))
    found: dict[str, list[object]] = {name: [] for name in labels}
    has_shared_slices = False
    for raw in slices:
        node = as_dict(raw.get("spec")).get("nodeName")
        has_shared_slices |= not node
        if node in found:
            found[node].append(_slice_key(raw, node, visible))
    if has_shared_slices:
        # The labels of a node then decide which slices it can use.
        for name, parts in found.items():
            parts.append(sorted(labels[name].items()))
    numbers: dict[bytes, int] = {}
    encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode
    return {name: f"#{numbers.setdefault(encode(parts), len(numbers))}" for name, parts in found.items()}


_VisibleNames = Callable[[tuple[str, ...]], tuple[str, ...]]
"""Of attribute names, those that a selector or constraint mentions."""


def _visible_names(words: set[str]) -> _VisibleNames:
    # Cached: a fleet has millions of attributes, but few sets of names.
    @lru_cache
    def visible(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if name.rpartition("/")[2] in words)

    return visible


def _slice_key(raw: Mapping[str, Any], node: str, visible: _VisibleNames | None) -> list[object]:
    spec = raw["spec"]
    pool = {**spec["pool"], "name": "" if spec["pool"].get("name") == node else spec["pool"].get("name")}
    devices = [device if visible is None else _visible_part(device, visible) for device in spec.get("devices") or ()]
    rest = {key: value for key, value in spec.items() if key not in {"devices", "pool", "nodeName"}}
    return [name_of(raw).replace(node, ""), rest, pool, devices]


def _visible_part(device: Mapping[str, Any], visible: _VisibleNames) -> dict[str, Any]:
    attributes = device.get("attributes") or {}
    return {**device, "attributes": {name: attributes[name] for name in visible(tuple(attributes))}}
