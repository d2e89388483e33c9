"""What of the input is not in a plan, object by object with the reason, and what was assumed about the rest.

Silence is a wrong answer: a JobSet that nobody planned looks like one that fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from dranet.manifests.claim_views import World
from dranet.manifests.classes import FROM_WHERE
from dranet.manifests.workloads import LeftOut, PodSpec
from dranet.model.untyped import at, mappings
from dranet.predict.placing import Scheduler
from dranet.predict.pods_to_place import ADMIN, Pod
from dranet.scheduling.claims import class_names

SAMPLED = 100
SHOWN = 12
"""Names on one line before the rest is only counted."""


def not_planned(world: World, pods: Iterable[Pod]) -> tuple[LeftOut, ...]:
    """Every object the world asks about that has no part in these pods."""
    planned = {(pod.namespace, pod.name) for pod in pods}
    workloads = {(pod.namespace, pod.workload) for pod in pods}
    named = {(spec.namespace, ref.template or ref.claim) for spec in world.pods for ref in spec.claims}
    left = list(world.left_out)
    for spec in world.pods:
        there = (spec.namespace, f"{spec.owner.kind}/{spec.owner.name}") in workloads
        if not (there if spec.per_node else any((spec.namespace, name) in planned for name in spec.names)):
            left.append(LeftOut(spec.owner, _why(spec)))
    for claim in world.claims:
        alone = (claim.owner.namespace, f"{claim.owner.kind}/{claim.owner.name}") in workloads
        if not alone and (claim.owner.namespace, claim.owner.name) not in named:
            held = bool(claim.owner.data.get("status"))
            left.append(LeftOut(claim.owner, "holds its devices already" if held else "no pod names it"))
    return tuple(left)


def _why(spec: PodSpec) -> str:
    role = f"{spec.role}: " if spec.role else ""
    if spec.placed:
        return role + ("placed already" if spec.node_name else f"is over ({spec.phase})")
    if not spec.names:
        return f"{role}asks for no pods, or they are in the input already"
    return f"{role}asks for no device"


def assumed(world: World, pods: Collection[Pod]) -> tuple[LeftOut, ...]:
    """What was taken for granted about workloads that are planned, and about their claims."""
    workloads = {(pod.namespace, pod.workload) for pod in pods}
    noted = [
        LeftOut(spec.owner, f"{spec.role}: {spec.note}" if spec.role else spec.note)
        for spec in world.pods
        if spec.note and (spec.namespace, f"{spec.owner.kind}/{spec.owner.name}") in workloads
    ]
    return tuple(dict.fromkeys([*noted, *_classes_taken_for_granted(world, pods)]))


def _classes_taken_for_granted(world: World, pods: Collection[Pod]) -> Iterator[LeftOut]:
    """Each class once, beside the first claim that names it."""
    written = {obj.name for obj in world.by_kind.get("DeviceClass", ())}
    used = {name for pod in pods for one in pod.claims for _, name in class_names(one.claim)}
    taken = (used & world.classes.keys() & FROM_WHERE.keys()) - written
    for claim in world.all_claims:
        for name in sorted(taken & {request.device_class for request in claim.requests}):
            taken = taken - {name}
            yield LeftOut(claim.owner, f"class {name} is not in the input; {FROM_WHERE[name]}")


def not_considered(pods: Iterable[Pod], scheduler: Scheduler) -> tuple[str, ...]:
    """What might change where these pods go and was not looked at."""
    found = set(scheduler.notes)
    for pod in pods:
        if any(
            "persistentVolumeClaim" in volume or "ephemeral" in volume for volume in mappings(pod.spec.get("volumes"))
        ):
            found.add("volumes: where PersistentVolumes are, and how many a node takes")
        other = pod.spec.get("schedulerName") or "default-scheduler"
        if other != "default-scheduler":
            found.add(f"scheduler {other}: its pods are planned as kube-scheduler would place them")
        if pod.namespace not in scheduler.kube.namespaces and any(_asks_for_admin(one.claim) for one in pod.claims):
            found.add(f"admin access: whether namespace {pod.namespace} has the label {ADMIN}")
    if len(scheduler.nodes) >= SAMPLED:
        found.add(
            f"with {SAMPLED} nodes and more kube-scheduler looks at some of them only, and takes the best of those"
        )
    return tuple(sorted(found))


def _asks_for_admin(claim: Mapping[str, Any]) -> bool:
    requests = mappings(at(claim, "spec", "devices", "requests"))
    return any(at(request, "exactly", "adminAccess") is True for request in requests)


def left_out_lines(left: Iterable[LeftOut]) -> Iterator[str]:
    """One line a file, kind and reason, with the names."""
    alike: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in left:
        alike.setdefault((one.owner.file, one.owner.kind, one.why), {})[one.owner.name] = None
    for (file, kind, why), found in alike.items():
        names = list(found)
        more = f" and {len(names) - SHOWN} more (-o json names them)" if len(names) > SHOWN else ""
        yield f"  {file}: {kind} {', '.join(names[:SHOWN])}{more}: {why}"


def left_out_json(left: Iterable[LeftOut]) -> list[dict[str, str]]:
    """The same for programs, every object by itself."""
    return [
        {
            "file": one.owner.file,
            "kind": one.owner.kind,
            "namespace": one.owner.namespace,
            "name": one.owner.name,
            "why": one.why,
        }
        for one in left
    ]
