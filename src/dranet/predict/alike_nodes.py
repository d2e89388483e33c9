"""One node of each kind: most nodes of a cluster are alike, and what holds for one holds for all of them.

Two nodes are alike when everything the texts at hand could look at is equal but the node's name, when their machines
are, and when their devices have attributes of the same names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from dranet.predict.hardware import Hardware
from dranet.scheduling import device_kinds

ALWAYS = ("ifName", "rdmaDevice")
"""Attributes that are looked at whatever the selectors say: lint compares names in manifests with them."""


def one_of_each_kind(hardware: Hardware, texts: Iterable[str]) -> Hardware:
    """The first node of each kind, which stands for so many; slices of no node in particular stay."""
    kinds = device_kinds(hardware.slices, {node: {} for node in hardware.machines}, [*texts, *ALWAYS])
    names = _attribute_names(hardware)
    first: dict[object, str] = {}
    count: dict[str, int] = {}
    for node, machine in hardware.machines.items():
        chosen = first.setdefault((kinds[node], names[node], replace(machine, node="")), node)
        count[chosen] = count.get(chosen, 0) + 1
    kept = tuple(raw for raw in hardware.slices if _node(raw) in count or _node(raw) not in hardware.machines)
    return Hardware(kept, {node: hardware.machines[node] for node in count}, count)


def _node(raw: dict[str, Any]) -> str:
    return str(raw["spec"].get("nodeName") or "")


def _attribute_names(hardware: Hardware) -> dict[str, frozenset[str]]:
    sets: dict[str, set[tuple[str, ...]]] = {node: set() for node in hardware.machines}
    for raw in hardware.slices:
        if (mine := sets.get(_node(raw))) is not None:
            mine.update(tuple(device.get("attributes") or ()) for device in raw["spec"].get("devices") or ())
    return {node: frozenset(name for names in found for name in names) for node, found in sets.items()}
