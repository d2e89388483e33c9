"""What controllers do with a workload whose pods, or some of them, run already: which stay, which go, which are new.

Pods belong to a workload by their controller references, never by their names alone. A pod that completed, failed or is
being deleted does not count as running: its controller creates another one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds import PodSet
from dranet.advise.manifests.workload_kinds.base import Rollout, count_of, spec_of
from dranet.core.untyped import as_dict, as_dicts, as_strings, get_path

Key = tuple[str, str, str]
"""Kind, namespace and name."""
_SET_LABELS = {
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "TrainJob": "jobset.sigs.k8s.io/jobset-name",
    "LeaderWorkerSet": "leaderworkerset.sigs.k8s.io/name",
}
"""Labels that name the workload on pods whose direct owner is a Job or StatefulSet in between."""
_DEFAULTED = {
    "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "restartPolicy", "dnsPolicy",
    "terminationGracePeriodSeconds", "schedulerName", "protocol", "creationTimestamp", "serviceAccount",
    "serviceAccountName", "nodeName", "tolerations", "volumes", "volumeMounts", "enableServiceLinks", "priority",
    "preemptionPolicy", "defaultMode", "apiVersion", "successThreshold", "failureThreshold", "periodSeconds",
    "timeoutSeconds", "hostname", "subdomain", "overhead", "allocationMode", "operator", "nodeTaintsPolicy",
    "nodeAffinityPolicy", "annotations", "labels", "name",
}  # fmt: skip
"""Fields that the API server or a controller writes: a file without them means the same pod template."""


class RunningPods:
    """The pods of an input by the workload they belong to."""

    def __init__(self, objects: Iterable[Object]) -> None:
        every = list(objects)
        self._objects = {(obj.kind, obj.namespace, obj.name): obj for obj in every}
        self._pods: dict[Key, list[Object]] = {}
        for obj in every:
            if obj.kind == "Pod":
                for key in self._owners(obj):
                    self._pods.setdefault(key, []).append(obj)

    def of(self, owner: Object) -> list[Object]:
        """The workload's pods, in any state."""
        return self._pods.get((owner.kind, owner.namespace, owner.name), [])

    def pod(self, namespace: str, name: str) -> Object | None:
        """The pod of this name."""
        return self._objects.get(("Pod", namespace, name))

    def orphans(self, pods: PodSet) -> list[Object]:
        """Pods without a controller that have the names of these: a StatefulSet adopts them."""
        found = [self.pod(pods.namespace, name) for name in pods.names] if pods.owner.kind == "StatefulSet" else []
        return [pod for pod in found if pod is not None and controller_key(pod) is None]

    def recorded(self, obj: Object) -> Object | None:
        """The object of the cluster that this one changes."""
        found = self._objects.get((obj.kind, obj.namespace, obj.name))
        return found if found is not obj else None

    def replica_set(self, pod: Object) -> Object | None:
        """The ReplicaSet of a pod, if it is in the input."""
        key = controller_key(pod)
        return self._objects.get(key) if key else None

    def _owners(self, pod: Object) -> Iterable[Key]:
        key, seen = controller_key(pod), set[Key]()
        labels = as_strings(get_path(pod.data, "metadata", "labels"))
        yield "Pod", pod.namespace, pod.name
        for kind, label in _SET_LABELS.items():
            if label in labels:
                yield kind, pod.namespace, labels[label]
        while key and key not in seen:
            seen.add(key)
            yield key
            known = self._objects.get(key)
            # A recording without ReplicaSets: their names are the Deployment's and the hash of the template.
            base = key[2].removesuffix(f"-{labels.get('pod-template-hash', '')}")
            fallback = ("Deployment", key[1], base) if key[0] == "ReplicaSet" and base != key[2] else None
            key = controller_key(known) if known else fallback


def with_autoscaled_replicas(objects: Iterable[Object], others: Iterable[Object]) -> list[Object]:
    """Workloads with at least the replicas that their HorizontalPodAutoscaler keeps; 0 replicas switch it off."""
    planned = list(objects)
    least: dict[Key, int] = {}
    for obj in (*others, *planned):
        if obj.kind == "HorizontalPodAutoscaler":
            target = as_dict(spec_of(obj).get("scaleTargetRef"))
            key = (str(target.get("kind")), obj.namespace, str(target.get("name")))
            least[key] = count_of(spec_of(obj).get("minReplicas"), 1)
    return [_with_replicas(obj, least.get((obj.kind, obj.namespace, obj.name), 0)) for obj in planned]


def _with_replicas(obj: Object, least: int) -> Object:
    written = count_of(spec_of(obj).get("replicas"), 1)
    if written == 0 or written >= least:
        return obj
    return replace(obj, data={**obj.data, "spec": {**spec_of(obj), "replicas": least}})


def controller_key(obj: Object) -> Key | None:
    """The controller of an object."""
    for ref in as_dicts(get_path(obj.data, "metadata", "ownerReferences")):
        if ref.get("controller") is True:
            return str(ref.get("kind")), obj.namespace, str(ref.get("name"))
    return None


def is_active(pod: Object) -> bool:
    """Whether a controller counts the pod: it has not finished and is not being deleted."""
    phase = get_path(pod.data, "status", "phase")
    return phase not in {"Succeeded", "Failed"} and not get_path(pod.data, "metadata", "deletionTimestamp")


def reconcile(pods: PodSet, running: RunningPods) -> PodSet:
    """The pods that the controller creates, given those that run."""
    owner = pods.owner
    if owner.kind == "Pod":
        return _single_pod(pods, running)
    mine = [pod for pod in running.of(owner) if _is_of_set(pod, pods)]
    mine += running.orphans(pods)
    if pods.per_node:
        return _daemon_pods(pods, [pod for pod in mine if is_active(pod)], running)
    if owner.kind == "StatefulSet":
        return _stateful_pods(pods, mine, running)
    active = [pod for pod in mine if is_active(pod)]
    if owner.kind == "Deployment" and active and _template_changed(pods, active, running):
        return replace(pods, replaced=tuple(pod.name for pod in active), rollout=_deployment_rollout(owner))
    return _missing(pods, mine, active)


def _single_pod(pods: PodSet, running: RunningPods) -> PodSet:
    there = running.pod(pods.namespace, pods.owner.name)
    placed = there is not None and there is not pods.owner and bool(get_path(there.data, "spec", "nodeName"))
    return replace(pods, names=(), kept=(pods.owner.name,)) if placed else pods


def _is_of_set(pod: Object, pods: PodSet) -> bool:
    """Whether a pod of the workload belongs to this of its sets: by name, else by the prefix of random names."""
    base = pods.names[0].rpartition("-")[0] if pods.names else pods.owner.name
    return pod.name in pods.names or pod.name.startswith(f"{base}-")


def _missing(pods: PodSet, mine: list[Object], active: list[Object]) -> PodSet:
    """The pods that are not there yet. A Job also counts those that succeeded."""
    done = [pod for pod in mine if get_path(pod.data, "status", "phase") == "Succeeded"]
    counted = active + (done if pods.owner.kind != "ReplicaSet" and _is_batch(pods.owner) else [])
    names = list(pods.names)
    spare = []
    for pod in counted:
        stands_for = pod.name if pod.name in names else pod.name.rpartition("-")[0]
        if stands_for in names:
            names.remove(stands_for)
        else:
            spare.append(pod)
    absent = names[: max(len(names) - len(spare), 0)]
    surplus = _surplus(active, len(spare) - len(names)) if not _is_batch(pods.owner) else []
    kept = tuple(pod.name for pod in active if pod not in surplus)
    return replace(pods, names=tuple(absent), kept=kept, removed=tuple(pod.name for pod in surplus))


def _is_batch(owner: Object) -> bool:
    return owner.kind in {"Job", "CronJob", "JobSet", "TrainJob", "MPIJob"}


def _surplus(active: list[Object], count: int) -> list[Object]:
    """The pods that a scale-down removes: unscheduled ones first, then those that share a node, then the newest."""
    per_node: dict[str, int] = {}
    for pod in active:
        per_node[_node(pod)] = per_node.get(_node(pod), 0) + 1
    newest = sorted(
        active, key=lambda pod: str(get_path(pod.data, "metadata", "creationTimestamp") or ""), reverse=True
    )
    order = sorted(newest, key=lambda pod: (bool(_node(pod)), -per_node[_node(pod)]))
    return order[: max(count, 0)]


def _created(pod: Object) -> str:
    return str(get_path(pod.data, "metadata", "creationTimestamp") or "")


def _node(pod: Object) -> str:
    return str(get_path(pod.data, "spec", "nodeName") or "")


def _stateful_pods(pods: PodSet, mine: list[Object], running: RunningPods) -> PodSet:
    """Missing pods in order; then an update replaces the others, the highest ordinal first."""
    there = {pod.name: pod for pod in mine}
    active = {name for name, pod in there.items() if is_active(pod)}
    gone = tuple(name for name in there if name not in pods.names and name in active)
    missing = [name for name in pods.names if name not in active]
    strategy = as_dict(spec_of(pods.owner).get("updateStrategy"))
    changed = [there[name] for name in pods.names if name in active and controller_key(there[name])]
    updated: list[str] = []
    if changed and strategy.get("type") != "OnDelete" and _template_changed(pods, changed, running):
        least = count_of(get_path(strategy, "rollingUpdate", "partition"), 0)
        updated = [name for name in reversed(pods.names) if name in active and int(name.rpartition("-")[2]) >= least]
    # A pod that is being deleted keeps its name, node and devices until it is gone.
    blocked = [name for name in missing if name in there]
    return replace(
        pods,
        names=(*missing, *updated),
        kept=tuple(name for name in pods.names if name in active and name not in updated),
        replaced=tuple(updated),
        removed=gone,
        rollout=Rollout(each=True) if updated or blocked else None,
    )


def _daemon_pods(pods: PodSet, active: list[Object], running: RunningPods) -> PodSet:
    """Nodes that have no pod of the DaemonSet yet; an update replaces the others node by node."""
    by_node = {_daemon_node(pod): pod.name for pod in active}
    update = get_path(pods.owner.data, "spec", "updateStrategy", "type") != "OnDelete"
    if active and update and _template_changed(pods, active, running):
        return replace(pods, replaced=tuple(by_node.values()), rollout=Rollout(each=True), on_nodes=by_node)
    return replace(pods, kept=tuple(by_node.values()), on_nodes=by_node)


def _daemon_node(pod: Object) -> str:
    """The node of a DaemonSet's pod, also while it is pending: its controller names the node in the affinity."""
    path = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    for term in as_dicts(get_path(pod.data, "spec", *path)):
        for field in as_dicts(term.get("matchFields")):
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return _node(pod)


def _deployment_rollout(owner: Object) -> Rollout:
    strategy, replicas = as_dict(spec_of(owner).get("strategy")), count_of(spec_of(owner).get("replicas"), 1)
    if strategy.get("type") == "Recreate":
        return Rollout(surge=0, unavailable=replicas, at_once=True)
    rolling = as_dict(strategy.get("rollingUpdate"))
    surge = _share(rolling.get("maxSurge", "25%"), replicas, math.ceil)
    unavailable = _share(rolling.get("maxUnavailable", "25%"), replicas, math.floor)
    return Rollout(surge=surge, unavailable=unavailable if surge or unavailable else 1)


def _share(value: Any, replicas: int, rounded: Any) -> int:
    """A number of pods, or a percentage of the replicas."""
    if isinstance(value, str) and value.endswith("%") and value[:-1].isdigit():
        return int(rounded(replicas * int(value[:-1]) / 100))
    return count_of(value, 0)


def _template_changed(pods: PodSet, active: list[Object], running: RunningPods) -> bool:
    """Whether the pod template differs from the one the pods were made from, as far as the input shows that one."""
    recorded = running.recorded(pods.owner)
    template = as_dict(get_path(pods.owner.data, *pods.path[:-1]))
    if recorded is not None:
        return not _within(template, as_dict(get_path(recorded.data, *pods.path[:-1])))
    made = running.replica_set(active[0]) if pods.owner.kind == "Deployment" else None
    before = as_dict(get_path(made.data, "spec", "template", "spec")) if made else as_dict(active[0].data.get("spec"))
    return not _within(as_dict(template.get("spec")), before)


def _within(wanted: Any, there: Any) -> bool:
    """Whether a field of a file says the same as that of the cluster, which also has what the API server writes."""
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        extra = [key for key in there if key not in wanted and key not in _DEFAULTED and there[key] not in _EMPTY]
        return not extra and all(_within(value, there.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(there, list):
        return len(wanted) == len(there) and all(_within(a, b) for a, b in zip(wanted, there, strict=True))
    return bool(wanted == there or str(wanted) == str(there) or (wanted in _EMPTY and there in _EMPTY))


_EMPTY: tuple[Any, ...] = (None, {}, [], "", 0, False)
