"""The machines that manifests are planned on: their slices and devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

from dranet.advise.manifests import COMPUTE_DOMAIN_DRIVER
from dranet.machines.machine import Machine, machine_of_shape, machines_of_slices
from dranet.machines.shape import Shape
from dranet.machines.shape_devices import shape_slices

RACK_WIDE = ("GB200", "GB300")
"""Products whose NVLink connects a whole rack."""


class PublishedDevice(msgspec.Struct, frozen=True):
    """A device in a slice (v1) of a node."""

    node: str
    driver: str
    name: str
    raw: Mapping[str, Any]
    nodes: int = 1
    """How many nodes have this device: more than one where the node stands for others (`distinct_nodes`)."""


@dataclass(frozen=True)
class Hardware:
    """Slices as v1, and the machines they describe."""

    slices: tuple[dict[str, Any], ...]
    machines: Mapping[str, Machine]
    node_counts: Mapping[str, int] = field(default_factory=dict)
    """By node, how many equal nodes it stands for (`distinct_nodes`)."""
    shaped: bool = False
    """Whether machines come from shapes, which do not have everything that drivers publish there."""

    @cached_property
    def devices(self) -> list[PublishedDevice]:
        """Every device of every node, in slice order."""
        return [
            PublishedDevice(node, spec.get("driver", ""), device.get("name", ""), device, self.node_counts.get(node, 1))
            for spec in (s.get("spec") or {} for s in self.slices)
            for node in [spec.get("nodeName", "")]
            for device in spec.get("devices") or ()
        ]

    @cached_property
    def published(self) -> dict[str, frozenset[str]]:
        """By driver, every attribute of its devices, fully qualified."""
        found: dict[str, set[str]] = {}
        for device in self.devices:
            names = found.setdefault(device.driver, set())
            names.update(qualified(device.driver, key) for key in device.raw.get("attributes") or {})
        return {driver: frozenset(names) for driver, names in found.items()}

    @cached_property
    def attribute_names(self) -> frozenset[str]:
        """Every attribute and capacity of any device, fully qualified."""
        capacities = {
            qualified(device.driver, key) for device in self.devices for key in device.raw.get("capacity") or {}
        }
        return frozenset(capacities).union(*self.published.values())


def qualified(driver: str, name: str) -> str:
    """A bare attribute name belongs to its driver's domain."""
    return name if "/" in name else f"{driver}/{name}"


def hardware_of_slices(slices: Iterable[dict[str, Any]]) -> Hardware:
    """The machines that slices describe."""
    found = tuple(slices)
    return Hardware(found, machines_of_slices(found))


def hardware_of_shapes(nodes: Iterable[tuple[str, Shape, int]]) -> Hardware:
    """Nodes of machine shapes, from the name, shape and index of each."""
    slices: list[dict[str, Any]] = []
    machines: dict[str, Machine] = {}
    for name, shape, index in nodes:
        slices += [*shape_slices(shape, name, index), *_channels(shape, name)]
        machines[name] = machine_of_shape(shape, name)
    return Hardware(tuple(slices), machines, shaped=True)


def _channels(shape: Shape, node: str) -> list[dict[str, Any]]:
    """The slice that NVIDIA's driver publishes on machines with rack-wide NVLink: the daemon and the channel devices of
    ComputeDomains. Shapes contain only GPUs and NICs."""
    names = (str(shape.gpu_kind(gpu).attributes.get("productName", "")) for gpu in shape.gpus)
    if not any(product in name for name in names for product in RACK_WIDE):
        return []
    devices = [
        {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
        for kind in ("channel", "daemon")
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": COMPUTE_DOMAIN_DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    metadata = {"name": f"{node}-{COMPUTE_DOMAIN_DRIVER}"}
    return [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}]
