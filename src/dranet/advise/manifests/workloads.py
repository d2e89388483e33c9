"""Expand workloads into the pods that their controllers create, with the claims of each pod.

`workload_kinds` knows the kinds. Pods of a cluster have a status: those that already have a node are not placed again.
Objects without pods are listed with the reason, because a missing entry would look like a pod that fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests.controllers import (
    Key,
    RunningPods,
    controller_key,
    reconcile,
    with_autoscaled_replicas,
)
from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.recordings import RECORDING
from dranet.advise.manifests.workload_kinds import KINDS, FindObject, Made, MadeService, PodSet, Skipped, group_of
from dranet.advise.manifests.workload_kinds.unknown import guess_pods
from dranet.core.untyped import as_dict, as_dicts

_PODLESS = {
    "ResourceClaim",
    "ResourceClaimTemplate",
    "DeviceClass",
    "ResourceSlice",
    "Node",
    "ComputeDomain",
    "PodGroup",
    "Topology",
    RECORDING,
}
"""Kinds without pods that a plan uses: they are not reported as skipped."""
_FINISHED = {"Complete", "Completed", "Succeeded", "Failed", "Finished"}


def pod_sets(objects: Iterable[Object]) -> list[PodSet]:
    """The pods of all objects, in the order of the objects."""
    return expand_workloads(objects).pods


class Expanded(msgspec.Struct, frozen=True):
    """What controllers make of objects, in the order of the objects."""

    pods: list[PodSet]
    skipped: list[Skipped]
    """The objects without pods."""
    services: list[MadeService]


def expand_workloads(objects: Iterable[Object], others: Iterable[Object] = ()) -> Expanded:
    """The pods and Services of all objects, and the objects without pods.

    ``others`` exist in the cluster: they are only looked up. Pods that run are not created a second time.
    """
    planned = with_autoscaled_replicas(with_generated_names(objects), others)
    owned = _OwnedObjects(planned, others)
    known = {(obj.kind, obj.namespace, obj.name): obj for obj in (*others, *planned)}

    def find(kind: str, namespace: str, name: str) -> Object | None:
        return known.get((kind, "default" if kind.startswith("Cluster") else namespace, name))

    made = [one for obj in planned for one in _expand(obj, owned, find)]
    return Expanded(
        [one for one in made if isinstance(one, PodSet)],
        [one for one in made if isinstance(one, Skipped)],
        [one for one in made if isinstance(one, MadeService)],
    )


def with_generated_names(objects: Iterable[Object]) -> list[Object]:
    """Objects with the names that the API server generates for those with only a ``generateName``.

    The real names end in random letters: numbers stand for them, so that each object keeps an identity of its own.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    found = []
    for obj in objects:
        metadata = as_dict(obj.data.get("metadata"))
        if metadata.get("generateName") and not metadata.get("name"):
            key = (obj.kind, obj.namespace, obj.name)
            named = {**metadata, "name": f"{obj.name}{counts[key]}"}
            counts[key] += 1
            obj = replace(obj, data={**obj.data, "metadata": named})
        found.append(obj)
    return found


def _expand(obj: Object, owned: _OwnedObjects, find: FindObject) -> Iterator[Made]:
    if obj.kind in _PODLESS:
        return
    if condition := _finished_condition(obj) or _finished_condition(owned.running.recorded(obj)):
        yield Skipped(obj, f"has finished ({condition})")
        return
    if child := owned.child(obj):
        yield Skipped(obj, f"{child.kind} {child.name}, which it created, is planned instead")
        return
    kind = KINDS.get((group_of(obj), obj.kind))
    found = list(kind(obj, find) if kind else guess_pods(obj))
    if not found:
        yield Skipped(obj, _no_pods(obj, known=kind is not None))
    for one in found:
        yield reconcile(one, owned.running) if isinstance(one, PodSet) else one


def _finished_condition(obj: Object | None) -> str:
    """The condition that marks a workload as finished, if it has one."""
    if obj is None:
        return ""
    conditions = as_dicts(as_dict(obj.data.get("status")).get("conditions"))
    found = [c["type"] for c in conditions if c.get("type") in _FINISHED and c.get("status") == "True"]
    return str(found[0]) if found and obj.kind != "Pod" else ""


def _no_pods(obj: Object, *, known: bool) -> str:
    group = group_of(obj)
    if known:
        return "it has no pod template"
    builtin = "." not in group or (group.endswith(".k8s.io") and not group.endswith(".x-k8s.io"))
    return "creates no pods" if builtin else "unknown kind without anything that looks like a pod template"


class _OwnedObjects:
    """Objects that another object of the input controls."""

    def __init__(self, objects: list[Object], others: Iterable[Object]) -> None:
        self.running = RunningPods((*(obj for obj in objects if obj.kind == "Pod"), *others))
        self._workloads: dict[Key, Object] = {}
        for obj in objects:
            key = controller_key(obj)
            if key and obj.kind not in {"Pod", "Workload"} and (group_of(obj), obj.kind) in KINDS:
                self._workloads.setdefault(key, obj)

    def child(self, obj: Object) -> Object | None:
        """A workload that this one controls."""
        return self._workloads.get((obj.kind, obj.namespace, obj.name))
