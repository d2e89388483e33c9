"""What is in use on a node, and which nodes are alike.

Most nodes of a cluster are alike, so the allocator is asked once for each kind of node in each state of use. Two nodes
are alike when everything the claims at hand could look at is equal but the node's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dranet.allocation.nodes import Node, selector_matches
from dranet.manifests.workloads import mapping
from dranet.predict.hardware import Hardware
from dranet.topology.machine import DeviceId

HOST_NAME = "kubernetes.io/hostname"
_DYNAMIC = re.compile(r"(attributes|capacity)\s*(\[[^\]]*\])?\s*\.\s*(all|exists|exists_one|map|filter|transform\w*)\b")


@dataclass(slots=True)
class NodeState:
    """What is in use on one node."""

    name: str
    order: int
    kind: str
    """Equal for nodes that are alike."""
    gpus: dict[str, int]
    """GPUs a device plugin would offer, by resource name."""
    labels: Mapping[str, str]
    counted: frozenset[str] = frozenset()
    """Resources whose GPUs were counted from slices: claims take from the same GPUs."""
    cordoned: bool = False
    """Nothing new is scheduled there; what runs there stays."""
    taken: frozenset[DeviceId] = frozenset()
    plugin_used: tuple[tuple[str, int], ...] = ()
    pods: int = 0
    key: tuple[object, ...] = ()
    """Nodes with equal keys give equal answers."""

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """To be called after any change."""
        self.key = (self.kind, self.taken, self.plugin_used, self.cordoned)

    def matches(self, terms: Iterable[Mapping[str, Any]]) -> bool:
        """Whether a node selector allows the node. Of a node without known labels only the host name is asked."""
        if not self.labels:
            terms = [_about_the_name(term) for term in terms]
            if not all(any(term.values()) for term in terms):
                return True
        node = Node(self.name, {HOST_NAME: self.name, **self.labels})
        return selector_matches({"nodeSelectorTerms": list(terms)}, node)

    def plugin_free(self, resource: str) -> int | None:
        """GPUs left for a device plugin; None where nothing is known about them."""
        if resource not in self.gpus:
            return None
        driver = f"gpu.{resource.removesuffix('/gpu')}"
        claimed = sum(device[0] == driver for device in self.taken) if resource in self.counted else 0
        return self.gpus[resource] - dict(self.plugin_used).get(resource, 0) - claimed


def _about_the_name(term: Mapping[str, Any]) -> dict[str, Any]:
    named = [one for one in term.get("matchExpressions") or () if one.get("key") == HOST_NAME]
    return {"matchExpressions": named, "matchFields": term.get("matchFields") or ()}


def kinds_of_nodes(hardware: Hardware, texts: list[str]) -> dict[str, str]:
    """For each node a text that is equal for nodes that are alike, as far as ``texts`` can tell."""
    everything = "\n".join(texts)
    blind = not _DYNAMIC.search(everything)
    words = set(re.findall(r"\w+", everything))
    found: dict[str, list[object]] = {name: [] for name in hardware.machines}
    for raw in hardware.slices:
        spec = raw["spec"]
        node = spec.get("nodeName")
        if node in found:
            pool = {**spec["pool"], "name": "" if spec["pool"].get("name") == node else spec["pool"].get("name")}
            devices = [_visible(device, words) if blind else device for device in spec.get("devices") or ()]
            rest = {k: v for k, v in spec.items() if k not in {"devices", "pool", "nodeName"}}
            order = raw["metadata"].get("name", "").replace(node, "")
            found[node].append([order, rest, pool, devices])
    return {name: json.dumps(parts, sort_keys=True, default=str) for name, parts in found.items()}


def _visible(device: Mapping[str, Any], words: set[str]) -> dict[str, Any]:
    """A device without the attributes that no selector or constraint names."""
    attributes = device.get("attributes") or {}
    kept = {name: value for name, value in attributes.items() if name.rpartition("/")[2] in words}
    return {**device, "attributes": kept}


def node_facts(
    hardware: Hardware, name: str, raw: Mapping[str, Any]
) -> tuple[dict[str, int], frozenset[str], Mapping[str, str]]:
    """GPUs for device plugins (from the Node object, else as the slices show them: which ones), and labels."""
    labels = mapping(mapping(raw.get("metadata")).get("labels"))
    allocatable = mapping(mapping(raw.get("status")).get("allocatable"))
    gpus = {key: int(value) for key, value in allocatable.items() if key.endswith("/gpu") and str(value).isdecimal()}
    counted = set()
    for gpu in hardware.machines[name].gpus:
        resource = f"{gpu.driver.removeprefix('gpu.')}/gpu"
        if resource not in allocatable:
            gpus[resource] = gpus.get(resource, 0) + 1
            counted.add(resource)
    return gpus, frozenset(counted), {str(key): str(value) for key, value in labels.items()}
