"""Nodes for the scheduler, from Node objects where the input has them and from what is known of the machines otherwise.

A machine without a Node object has its host name and its GPUs, which a device plugin may offer as well as a DRA driver,
and its CPUs if its shape says so. What else it has is not known, and answers say that it was not considered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from dranet.model.untyped import at, mapping, texts
from dranet.predict.hardware import Hardware
from dranet.scheduling import NodeFacts, device_kinds, read_node
from dranet.scheduling.amounts import CPU, PODS
from dranet.scheduling.pods import HOST
from dranet.topology.machine import Machine

_NVIDIA = "gpu.nvidia.com"
USUAL_PODS = 110
"""A kubelet takes so many unless it is told otherwise."""


def nodes_of(
    hardware: Hardware, objects: Mapping[str, Mapping[str, Any]], asked: Iterable[str], backed: Collection[str]
) -> list[NodeFacts]:
    """Every machine as a node. ``objects`` are Node objects by name, ``asked`` all selectors and constraints that will
    be asked about: what they do not mention cannot tell the devices of two nodes apart. ``backed`` are the extended
    resources that classes stand for: where nothing says otherwise, no device plugin offers them."""
    partitions = _partitions(hardware)
    labels = {name: texts(at(objects.get(name), "metadata", "labels")) for name in hardware.machines}
    kinds = device_kinds(hardware.slices, labels, asked)
    found = [_facts(machine, objects.get(name), kinds[name], backed) for name, machine in hardware.machines.items()]
    return [
        replace(one, allocatable={**partitions.get(one.name, {}), **one.allocatable}) if one.open else one
        for one in found
    ]


def _partitions(hardware: Hardware) -> dict[str, dict[str, int]]:
    """By node, parts of GPUs as NVIDIA's driver publishes them, under the names its device plugin has for them."""
    found: dict[str, dict[str, int]] = {}
    for unit in hardware.units:
        attributes = mapping(unit.raw.get("attributes"))
        if unit.driver == _NVIDIA and at(attributes.get("type"), "string") == "mig":
            resource = f"{_NVIDIA.removeprefix('gpu.')}/mig-{at(attributes.get('profile'), 'string')}"
            counts = found.setdefault(unit.node, {})
            counts[resource] = counts.get(resource, 0) + 1
    return found


def _facts(machine: Machine, raw: Mapping[str, Any] | None, devices: str, backed: Collection[str]) -> NodeFacts:
    facts = (
        read_node(raw, devices=devices) if raw is not None else NodeFacts(machine.node, {}, open=True, devices=devices)
    )
    known_labels = bool(facts.labels)
    facts = replace(facts, name=machine.node, labels={HOST: machine.node, **facts.labels}, partial=not known_labels)
    return _with_what_the_machine_has(facts, machine, backed) if facts.open else facts


def _with_what_the_machine_has(facts: NodeFacts, machine: Machine, backed: Collection[str]) -> NodeFacts:
    counts: dict[str, int] = {}
    drivers: dict[str, str] = {}
    for gpu in machine.gpus:
        resource = f"{gpu.driver.removeprefix('gpu.')}/gpu"
        if resource not in facts.allocatable and resource not in backed:
            counts[resource] = counts.get(resource, 0) + 1
            drivers[resource] = gpu.driver
    cpus = sum(_size(text) for _, text in machine.cpus)
    known = {PODS: USUAL_PODS} | ({CPU: cpus * 1000} if cpus else {})
    vendors = tuple(sorted({f"{gpu.driver.removeprefix('gpu.')}/" for gpu in machine.gpus}))
    allocatable = {**known, **counts, **facts.allocatable}
    return replace(facts, allocatable=allocatable, claimed_from=drivers, complete=vendors)


def _size(cpus: str) -> int:
    """How many CPUs a list such as ``0-55,112-167`` names."""
    ends = [part.partition("-") for part in cpus.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)
