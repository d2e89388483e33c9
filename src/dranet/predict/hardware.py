"""The machines a manifest is to run on, as rules and plans ask about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from dranet.manifests.workload_kinds.compute_domain import DRIVER
from dranet.topology.machine import Machine, machine_of_shape, machines_of_slices
from dranet.topology.shape import Shape
from dranet.topology.shape_devices import shape_slices

RACK_WIDE = ("GB200", "GB300")
"""Products whose NVLink reaches over a whole rack."""


class Unit(msgspec.Struct, frozen=True):
    """One device of one node, as its slice (v1) has it."""

    node: str
    driver: str
    name: str
    raw: Mapping[str, Any]
    alike: int = 1
    """How many such devices there are, each on a node of its own."""


@dataclass(frozen=True)
class Hardware:
    """Slices in v1 shape and the machines they describe."""

    slices: tuple[dict[str, Any], ...]
    machines: Mapping[str, Machine]
    alike: Mapping[str, int] = field(default_factory=dict)
    """By node, how many it stands for, where that is not only itself (`alike_nodes`)."""

    @cached_property
    def units(self) -> list[Unit]:
        """Every device of every node, in slice order."""
        return [
            Unit(node, spec.get("driver", ""), device.get("name", ""), device, self.alike.get(node, 1))
            for spec in (s.get("spec") or {} for s in self.slices)
            for node in [spec.get("nodeName", "")]
            for device in spec.get("devices") or ()
        ]

    @cached_property
    def published(self) -> dict[str, frozenset[str]]:
        """By driver, every attribute any of its devices has, fully qualified."""
        found: dict[str, set[str]] = {}
        for unit in self.units:
            names = found.setdefault(unit.driver, set())
            names.update(qualified(unit.driver, key) for key in unit.raw.get("attributes") or {})
        return {driver: frozenset(names) for driver, names in found.items()}


def qualified(driver: str, name: str) -> str:
    """A bare attribute name belongs to its driver's domain."""
    return name if "/" in name else f"{driver}/{name}"


def hardware_of_slices(slices: Iterable[dict[str, Any]]) -> Hardware:
    """Machines as their slices show them."""
    found = tuple(slices)
    return Hardware(found, machines_of_slices(found))


def hardware_of_shapes(nodes: Iterable[tuple[str, Shape, int]]) -> Hardware:
    """Nodes made of shapes: name, shape and index of each."""
    slices: list[dict[str, Any]] = []
    machines: dict[str, Machine] = {}
    for name, shape, index in nodes:
        slices += [*shape_slices(shape, name, index), *_channels(shape, name)]
        machines[name] = machine_of_shape(shape, name)
    return Hardware(tuple(slices), machines)


def _channels(shape: Shape, node: str) -> list[dict[str, Any]]:
    """What NVIDIA's driver publishes beside the GPUs of a machine whose NVLink reaches over a rack: the daemon and the
    channel that pods of a ComputeDomain hold. No shape records it, since no card and no GPU is in it."""
    names = (str(shape.gpu_kind(gpu).attributes.get("productName", "")) for gpu in shape.gpus)
    if not any(product in name for name in names for product in RACK_WIDE):
        return []
    devices = [
        {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
        for kind in ("channel", "daemon")
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    metadata = {"name": f"{node}-{DRIVER}"}
    return [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}]
