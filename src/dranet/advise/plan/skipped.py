"""The objects of an input that are not in a plan, with the reason, and what was assumed about the others.

A workload that is missing without a word would look like one that fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from dranet.advise.manifests import Manifests, PodSet, Skipped, known_class_facts
from dranet.advise.plan.pending_pods import ADMIN_ACCESS_LABEL, PendingPod
from dranet.advise.plan.placement import Simulator
from dranet.core.untyped import as_dicts, get_path
from dranet.scheduler.claims import request_classes

_SAMPLED = 100
SHOWN = 12
"""Names on one line before the rest is only counted."""


def skipped_objects(manifests: Manifests, pods: Iterable[PendingPod]) -> tuple[Skipped, ...]:
    """Every object of the question that has no part in these pods."""
    planned = {(pod.namespace, pod.name) for pod in pods}
    workloads = {(pod.namespace, pod.workload) for pod in pods}
    named = {(spec.namespace, ref.template or ref.claim) for spec in manifests.pods for ref in spec.claims}
    left = list(manifests.skipped)
    for spec in manifests.pods:
        there = (spec.namespace, f"{spec.owner.kind}/{spec.owner.name}") in workloads
        if not (there if spec.per_node else any((spec.namespace, name) in planned for name in spec.names)):
            left.append(Skipped(spec.owner, _why(spec)))
    for claim in manifests.claims:
        alone = (claim.owner.namespace, f"{claim.owner.kind}/{claim.owner.name}") in workloads
        if not alone and (claim.owner.namespace, claim.owner.name) not in named:
            held = bool(claim.owner.data.get("status"))
            left.append(Skipped(claim.owner, "is allocated already" if held else "no pod names it"))
    return tuple(left)


def _why(spec: PodSet) -> str:
    role = f"{spec.role}: " if spec.role else ""
    if spec.placed:
        return role + ("placed already" if spec.node_name else f"has finished ({spec.phase})")
    if not spec.names:
        return f"{role}requests no pods, or they are in the input already"
    return f"{role}requests no device"


def assumptions(manifests: Manifests, pods: Collection[PendingPod]) -> tuple[Skipped, ...]:
    """What was assumed about the planned workloads and their claims."""
    workloads = {(pod.namespace, pod.workload) for pod in pods}
    noted = [
        Skipped(spec.owner, f"{spec.role}: {spec.note}" if spec.role else spec.note)
        for spec in manifests.pods
        if spec.note and (spec.namespace, f"{spec.owner.kind}/{spec.owner.name}") in workloads
    ]
    return tuple(dict.fromkeys([*noted, *_assumed_classes(manifests, pods)]))


def _assumed_classes(manifests: Manifests, pods: Collection[PendingPod]) -> Iterator[Skipped]:
    """Known classes that are not in the input, each once, with the first claim that names it."""
    written = {obj.name for obj in manifests.by_kind.get("DeviceClass", ())}
    used = {name for pod in pods for one in pod.claims for _, name in request_classes(one.claim)}
    facts = known_class_facts()
    taken = (used & manifests.classes.keys() & facts.keys()) - written
    for claim in manifests.all_claims:
        for name in sorted(taken & {request.device_class for request in claim.requests}):
            taken = taken - {name}
            yield Skipped(claim.owner, f"class {name} is not in the input; {facts[name].origin}")


def not_considered(pods: Iterable[PendingPod], simulator: Simulator) -> tuple[str, ...]:
    """What might change the placement of these pods and was not considered."""
    found = set(simulator.notes)
    for pod in pods:
        if any(
            "persistentVolumeClaim" in volume or "ephemeral" in volume for volume in as_dicts(pod.spec.get("volumes"))
        ):
            found.add("volumes: where PersistentVolumes are, and how many a node takes")
        other = pod.spec.get("schedulerName") or "default-scheduler"
        if other != "default-scheduler":
            found.add(f"scheduler {other}: its pods are planned as kube-scheduler would place them")
        if pod.namespace not in simulator.scheduler.namespaces and any(
            _asks_for_admin(one.claim) for one in pod.claims
        ):
            found.add(f"admin access: whether namespace {pod.namespace} has the label {ADMIN_ACCESS_LABEL}")
    if len(simulator.nodes) >= _SAMPLED:
        found.add(f"with {_SAMPLED} or more nodes kube-scheduler scores only some of them and picks the best of those")
    return tuple(sorted(found))


def _asks_for_admin(claim: Mapping[str, Any]) -> bool:
    requests = as_dicts(get_path(claim, "spec", "devices", "requests"))
    return any(get_path(request, "exactly", "adminAccess") is True for request in requests)


def skipped_lines(left: Iterable[Skipped]) -> Iterator[str]:
    """One line a file, kind and reason, with the names."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for one in left:
        groups.setdefault((one.owner.file, one.owner.kind, one.why), {})[one.owner.name] = None
    for (file, kind, why), found in groups.items():
        names = list(found)
        more = f" and {len(names) - SHOWN} more (-o json names them)" if len(names) > SHOWN else ""
        yield f"  {file}: {kind} {', '.join(names[:SHOWN])}{more}: {why}"


def skipped_json(left: Iterable[Skipped]) -> list[dict[str, str]]:
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
