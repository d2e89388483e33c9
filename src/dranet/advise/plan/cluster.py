"""Build the simulated cluster from manifests and hardware: nodes, running pods, allocated claims.

A machine without a Node object has its host name, its GPUs, which a device plugin may offer as well as a DRA driver,
and its CPUs if its shape lists them. Everything else about it is unknown, and answers list what was not considered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from dranet.advise.manifests import Manifests, pod_sets
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.pending_pods import controller_of
from dranet.advise.plan.placement import DeviceResult, RunningPod, Simulator, allocation_of, device_result
from dranet.advise.plan.quotas import Quotas
from dranet.advise.plan.selectors import selector_texts
from dranet.core.untyped import as_dict, as_dicts, as_list, as_strings, get_path
from dranet.machines.machine import Machine
from dranet.scheduler import Node, PodInfoReader, device_signatures, read_node
from dranet.scheduler import Scheduler as KubeScheduler
from dranet.scheduler.claims import extended_classes
from dranet.scheduler.pods import HOSTNAME_LABEL
from dranet.scheduler.releases import Gate, as_release
from dranet.scheduler.resources import CPU, PODS
from dranet.scheduler.taints import with_taint_rules

_DEVICE = ("driver", "pool", "device")


def add_bare_nodes(manifests: Manifests, hardware: Hardware) -> Hardware:
    """The hardware and all Node objects: nodes without devices may reach devices of the network."""
    bare = {obj.name: Machine(obj.name, (), ()) for obj in manifests.by_kind.get("Node", ())}
    nodes = {**hardware.machines, **{k: v for k, v in bare.items() if k not in hardware.machines}}
    if bare and not hardware.shaped:
        # A slice outlives its node for a while: where Nodes are listed, only these exist.
        nodes = {name: machine for name, machine in nodes.items() if name in bare}
    return dataclasses.replace(hardware, machines=nodes)


def build_simulator(manifests: Manifests, hardware: Hardware, kubernetes: tuple[int, int] = (1, 36)) -> Simulator:
    """A simulator of this hardware with the classes, running pods and allocated claims of the manifests."""
    release = as_release(kubernetes)
    if Gate.DEVICE_TAINT_RULES in release.gates:
        rules = [obj.data for obj in manifests.by_kind.get("DeviceTaintRule", ())]
        slices = tuple(with_taint_rules(hardware.slices, rules))
        hardware = dataclasses.replace(hardware, slices=slices)
    backed = extended_classes(manifests.classes)
    nodes = _build_nodes(
        hardware, {obj.name: obj.data for obj in manifests.by_kind.get("Node", ())}, selector_texts(manifests), backed
    )
    pools = {get_path(raw, "spec", "pool", "name"): get_path(raw, "spec", "nodeName") for raw in hardware.slices}
    kube = KubeScheduler(
        nodes,
        slices=hardware.slices,
        classes=manifests.classes.values(),
        allocated={
            key: allocation_of(results, _node_of(results, pools))
            for key, results in allocated_claims(manifests).items()
        },
        namespaces={
            obj.name: as_strings(get_path(obj.data, "metadata", "labels"))
            for obj in manifests.by_kind.get("Namespace", ())
        },
        version=release,
    )
    priorities, runtimes = ([obj.data for obj in manifests.by_kind.get(kind, ())] for kind in _NAMED_BY_PODS)
    reader = PodInfoReader(priorities, runtimes, manifests.services)
    running = _add_running_pods(manifests, kube, reader)
    quotas = Quotas(obj.data for obj in manifests.by_kind.get("ResourceQuota", ()))
    notes = {*quotas.notes, *release.notes}
    return Simulator(kube, reader, quotas, notes, _first_users(manifests), running)


def _first_users(manifests: Manifests) -> dict[tuple[str, str], str]:
    """By claim, the first pod that it is reserved for."""
    found: dict[tuple[str, str], str] = {}
    for obj in manifests.by_kind.get("ResourceClaim", ()):
        for user in as_dicts(get_path(obj.data, "status", "reservedFor"))[:1]:
            found[obj.namespace, obj.name] = str(user.get("name"))
    return found


_NAMED_BY_PODS = ("PriorityClass", "RuntimeClass")


def _add_running_pods(
    manifests: Manifests, scheduler: KubeScheduler, reader: PodInfoReader
) -> dict[tuple[str, str], RunningPod]:
    """Pods that are being deleted are among them: they hold their node and devices until they are gone."""
    found: dict[tuple[str, str], RunningPod] = {}
    for spec in pod_sets(obj for obj in manifests.all_objects if obj.kind == "Pod"):
        if spec.placed and spec.node_name and spec.phase not in {"Succeeded", "Failed"}:
            controller = controller_of(manifests, spec)
            info = reader.read(spec.spec, namespace=spec.namespace, labels=spec.labels, controller=controller)
            claims = [(spec.namespace, str(ref.generated or ref.claim)) for ref in spec.claims]
            held = tuple(key for key in claims if key in scheduler.claims.allocated)
            metadata = [{"metadata": {"namespace": space, "name": name}} for space, name in held]
            scheduler.add_running_pod(spec.node_name, info, metadata)
            found[spec.namespace, spec.owner.name] = RunningPod(info, spec.node_name, held)
    return found


def _node_of(results: tuple[DeviceResult, ...], pools: Mapping[Any, Any]) -> str | None:
    return next((pools[result.pool] for result in results if pools.get(result.pool)), None)


def allocated_devices(manifests: Manifests) -> list[DeviceResult]:
    """The devices of all allocated claims."""
    return [result for results in allocated_claims(manifests).values() for result in results]


def allocated_claims(manifests: Manifests) -> dict[tuple[str, str], tuple[DeviceResult, ...]]:
    """The devices of every allocated claim, by namespace and name."""
    found: dict[tuple[str, str], tuple[DeviceResult, ...]] = {}
    finished = _finished_pods(manifests)
    for claim in manifests.all_claims:
        users = [str(one.get("name")) for one in as_dicts(get_path(claim.owner.data, "status", "reservedFor"))]
        if users and all((claim.owner.namespace, user) in finished for user in users):
            continue  # the controller deallocates a claim whose pods have all finished
        allocation = as_dict(as_dict(claim.owner.data.get("status")).get("allocation"))
        raw = map(as_dict, as_list(as_dict(allocation.get("devices")).get("results")))
        results = tuple(device_result(one) for one in raw if all(isinstance(one.get(key), str) for key in _DEVICE))
        if results:
            found[claim.owner.namespace, claim.owner.name] = results
    return found


def _finished_pods(manifests: Manifests) -> set[tuple[str, str]]:
    return {
        (obj.namespace, obj.name)
        for obj in manifests.by_kind.get("Pod", ())
        if get_path(obj.data, "status", "phase") in {"Succeeded", "Failed"}
    }


_NVIDIA = "gpu.nvidia.com"
_DEFAULT_MAX_PODS = 110
"""The kubelet's default of maxPods."""


def _build_nodes(
    hardware: Hardware, objects: Mapping[str, Mapping[str, Any]], texts: Iterable[str], backed: Collection[str]
) -> list[Node]:
    """Every machine as a node. ``objects`` are Node objects by name. ``texts`` are all selectors and constraints:
    attributes that they do not mention cannot tell the devices of two nodes apart. ``backed`` are the extended
    resources of DeviceClasses: unless a Node object lists them, no device plugin offers them."""
    partitions = _partitions(hardware)
    labels = {name: as_strings(get_path(objects.get(name), "metadata", "labels")) for name in hardware.machines}
    kinds = device_signatures(hardware.slices, labels, texts)
    found = [_build_node(one, objects.get(name), kinds[name], backed) for name, one in hardware.machines.items()]
    return [
        replace(one, allocatable={**partitions.get(one.name, {}), **one.allocatable})
        if one.allocatable_partial
        else one
        for one in found
    ]


def _partitions(hardware: Hardware) -> dict[str, dict[str, int]]:
    """By node, the MIG devices that NVIDIA's driver publishes, under the resource names of its device plugin."""
    found: dict[str, dict[str, int]] = {}
    for device in hardware.devices:
        attributes = as_dict(device.raw.get("attributes"))
        if device.driver == _NVIDIA and get_path(attributes.get("type"), "string") == "mig":
            resource = f"{_NVIDIA.removeprefix('gpu.')}/mig-{get_path(attributes.get('profile'), 'string')}"
            counts = found.setdefault(device.node, {})
            counts[resource] = counts.get(resource, 0) + 1
    return found


def _build_node(machine: Machine, raw: Mapping[str, Any] | None, devices: str, backed: Collection[str]) -> Node:
    node = (
        read_node(raw, device_signature=devices)
        if raw is not None
        else Node(machine.node, {}, allocatable_partial=True, device_signature=devices)
    )
    known_labels = bool(node.labels)
    node = replace(
        node, name=machine.node, labels={HOSTNAME_LABEL: machine.node, **node.labels}, labels_partial=not known_labels
    )
    return _with_machine_resources(node, machine, backed) if node.allocatable_partial else node


def _with_machine_resources(node: Node, machine: Machine, backed: Collection[str]) -> Node:
    counts: dict[str, int] = {}
    drivers: dict[str, str] = {}
    for gpu in machine.gpus:
        resource = f"{gpu.driver.removeprefix('gpu.')}/gpu"
        if resource not in node.allocatable and resource not in backed:
            counts[resource] = counts.get(resource, 0) + 1
            drivers[resource] = gpu.driver
    cpus = sum(_size(text) for _, text in machine.cpus)
    known = {PODS: _DEFAULT_MAX_PODS} | ({CPU: cpus * 1000} if cpus else {})
    vendors = tuple(sorted({f"{gpu.driver.removeprefix('gpu.')}/" for gpu in machine.gpus}))
    allocatable = {**known, **counts, **node.allocatable}
    return replace(node, allocatable=allocatable, backing_drivers=drivers, complete_prefixes=vendors)


def _size(cpus: str) -> int:
    """How many CPUs a list such as ``0-55,112-167`` names."""
    ends = [part.partition("-") for part in cpus.split(",") if part]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends)


_ALWAYS_COMPARED = ("ifName", "rdmaDevice")
"""Attributes that tell nodes apart even if no selector reads them: lint compares names in manifests with them."""


def distinct_nodes(hardware: Hardware, texts: Iterable[str]) -> Hardware:
    """One node for all that are equal, with their number; slices without a node stay.

    Nodes are equal when all attributes that the texts mention, their machines and their attribute names are equal."""
    kinds = device_signatures(hardware.slices, {node: {} for node in hardware.machines}, [*texts, *_ALWAYS_COMPARED])
    names = _attribute_names(hardware)
    first: dict[object, str] = {}
    count: dict[str, int] = {}
    for node, machine in hardware.machines.items():
        chosen = first.setdefault((kinds[node], names[node], replace(machine, node="")), node)
        count[chosen] = count.get(chosen, 0) + 1
    kept = tuple(
        raw for raw in hardware.slices if _slice_node(raw) in count or _slice_node(raw) not in hardware.machines
    )
    return Hardware(kept, {node: hardware.machines[node] for node in count}, count, hardware.shaped)


def _slice_node(raw: dict[str, Any]) -> str:
    return str(raw["spec"].get("nodeName") or "")


def _attribute_names(hardware: Hardware) -> dict[str, frozenset[str]]:
    sets: dict[str, set[tuple[str, ...]]] = {node: set() for node in hardware.machines}
    for raw in hardware.slices:
        if (mine := sets.get(_slice_node(raw))) is not None:
            mine.update(tuple(device.get("attributes") or ()) for device in raw["spec"].get("devices") or ())
    return {node: frozenset(name for names in found for name in names) for node, found in sets.items()}
