"""The cluster as it stands before anything is planned: nodes, pods that run, claims that hold devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.manifests.claim_views import World
from dranet.manifests.workloads import mapping, pod_specs, sequence
from dranet.model.untyped import at, mappings, texts
from dranet.predict.hardware import Hardware
from dranet.predict.node_facts import nodes_of
from dranet.predict.placing import Result, Scheduler, allocation_of
from dranet.predict.pods_to_place import controller_of
from dranet.predict.quotas import Quotas
from dranet.predict.request_drivers import texts_of
from dranet.scheduling import Scheduler as KubeScheduler
from dranet.scheduling import TraitsReader
from dranet.scheduling.claims import extended_classes
from dranet.topology.machine import Machine

_DEVICE = ("driver", "pool", "device")


def with_nodes(world: World, hardware: Hardware) -> Hardware:
    """The hardware and all Node objects of the files: devices may also be reachable from nodes that have none."""
    bare = {obj.name: Machine(obj.name, (), ()) for obj in world.by_kind.get("Node", ())}
    return Hardware(
        hardware.slices, {**hardware.machines, **{k: v for k, v in bare.items() if k not in hardware.machines}}
    )


def scheduler_of(world: World, hardware: Hardware, kubernetes: tuple[int, int] = (1, 36)) -> Scheduler:
    """A scheduler over this hardware with the world's classes, the pods that run there and what claims hold."""
    backed = extended_classes(world.classes)
    nodes = nodes_of(hardware, {obj.name: obj.data for obj in world.by_kind.get("Node", ())}, texts_of(world), backed)
    pools = {at(raw, "spec", "pool", "name"): at(raw, "spec", "nodeName") for raw in hardware.slices}
    kube = KubeScheduler(
        nodes,
        slices=hardware.slices,
        classes=world.classes.values(),
        allocated={key: allocation_of(results, _node(results, pools)) for key, results in held_claims(world).items()},
        namespaces={obj.name: texts(at(obj.data, "metadata", "labels")) for obj in world.by_kind.get("Namespace", ())},
        version=".".join(map(str, kubernetes)),
    )
    priorities, runtimes, services = ([obj.data for obj in world.by_kind.get(kind, ())] for kind in _NAMED_BY_PODS)
    reader = TraitsReader(priorities, runtimes, services)
    _run(world, kube, reader)
    quotas = Quotas(obj.data for obj in world.by_kind.get("ResourceQuota", ()))
    return Scheduler(kube, reader, quotas, set(quotas.notes), _users(world))


def _users(world: World) -> dict[tuple[str, str], str]:
    """By claim, the pod it is reserved for."""
    found: dict[tuple[str, str], str] = {}
    for obj in world.by_kind.get("ResourceClaim", ()):
        for user in mappings(at(obj.data, "status", "reservedFor"))[:1]:
            found[obj.namespace, obj.name] = str(user.get("name"))
    return found


_NAMED_BY_PODS = ("PriorityClass", "RuntimeClass", "Service")


def _run(world: World, kube: KubeScheduler, reader: TraitsReader) -> None:
    """Pods that have a node already take their part of it."""
    for spec in pod_specs(world.everything) if world.background else world.pods:
        if spec.placed and spec.node_name and spec.phase not in {"Succeeded", "Failed"}:
            labels = texts(spec.metadata.get("labels"))
            controller = controller_of(world, spec.owner)
            kube.running(
                spec.node_name, reader.read(spec.spec, namespace=spec.namespace, labels=labels, controller=controller)
            )


def _node(results: tuple[Result, ...], pools: Mapping[Any, Any]) -> str | None:
    return next((pools[result["pool"]] for result in results if pools.get(result["pool"])), None)


def allocated_results(world: World) -> list[Result]:
    """The devices that claims in the files already hold."""
    return [result for results in held_claims(world).values() for result in results]


def held_claims(world: World) -> dict[tuple[str, str], tuple[Result, ...]]:
    """By namespace and name, every allocated claim with its devices."""
    found: dict[tuple[str, str], tuple[Result, ...]] = {}
    for claim in world.all_claims:
        allocation = mapping(mapping(claim.owner.data.get("status")).get("allocation"))
        raw = map(mapping, sequence(mapping(allocation.get("devices")).get("results")))
        results = tuple({"request": "", **result} for result in raw if all(_is_text(result, key) for key in _DEVICE))
        if results:
            found[claim.owner.namespace, claim.owner.name] = results
    return found


def _is_text(of: Mapping[str, Any], key: str) -> bool:
    return isinstance(of.get(key), str)
