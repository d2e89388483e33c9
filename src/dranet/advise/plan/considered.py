"""What in the input could change a plan and was not considered: each thing by its name, and what it could change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dranet.advise.manifests import NEEDED_KINDS, Manifests
from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import Simulator
from dranet.core.untyped import as_dict, as_dicts, as_strings, get_path
from dranet.scheduler.releases import Gate

_BUILT_IN_PRIORITIES = {"system-cluster-critical", "system-node-critical"}
_QUEUE = "kueue.x-k8s.io/queue-name"
_ENFORCE = "pod-security.kubernetes.io/enforce"
_TERMS = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def unconsidered_objects(manifests: Manifests, pods: Iterable[PendingPod], simulator: Simulator) -> Iterator[str]:
    """A line for everything in these files that a cluster would take into account."""
    planned = list(pods)
    specs = list({id(pod.spec): pod for pod in planned}.values())
    yield from _recording(manifests)
    yield from _volumes(manifests, planned)
    yield from _missing_classes(manifests, specs)
    yield from _namespaces(manifests, specs, simulator)
    yield from _admission(manifests, planned)
    yield from _queues(manifests, planned)
    yield from _autoscalers(manifests, planned)
    yield from _rivals(manifests)
    yield from _devices(manifests, simulator)


def _recording(manifests: Manifests) -> Iterator[str]:
    """Kinds that an older recording, or one made by other means, does not have."""
    if not any(obj.kind == "Node" for obj in manifests.existing):
        return
    there = manifests.recorded_kinds or manifests.by_kind.keys()
    missing = [kind for kind in NEEDED_KINDS if kind not in there]
    if missing:
        yield f"the recording has no {', '.join(missing)}: `dranet record` writes all that a plan reads"


def _volumes(manifests: Manifests, pods: list[PendingPod]) -> Iterator[str]:
    workloads = {(pod.namespace, pod.workload) for pod in pods}
    for obj in manifests.by_kind.get("StatefulSet", ()):
        if (
            get_path(obj.data, "spec", "volumeClaimTemplates")
            and (obj.namespace, f"StatefulSet/{obj.name}") in workloads
        ):
            yield "volumes: where PersistentVolumes are, and how many a node takes"


def _missing_classes(manifests: Manifests, pods: list[PendingPod]) -> Iterator[str]:
    runtimes = {obj.name for obj in manifests.by_kind.get("RuntimeClass", ())}
    priorities = {obj.name for obj in manifests.by_kind.get("PriorityClass", ())} | _BUILT_IN_PRIORITIES
    for pod in pods:
        runtime, priority = pod.spec.get("runtimeClassName"), pod.spec.get("priorityClassName")
        if runtime and runtime not in runtimes and not manifests.knows("RuntimeClass"):
            yield (
                f"RuntimeClass {runtime} is not in the input: without it the API server refuses the pods; "
                "its overhead, nodeSelector and tolerations may change their nodes"
            )
        missing = priority and priority not in priorities and not manifests.knows("PriorityClass")
        if missing and pod.spec.get("priority") is None:
            yield (
                f"PriorityClass {priority} is not in the input: without it the API server refuses the pods; "
                "its value decides which pods are preempted"
            )


def _namespaces(manifests: Manifests, pods: list[PendingPod], simulator: Simulator) -> Iterator[str]:
    """Namespaces of running pods whose labels a namespaceSelector reads."""
    if not any(map(_selects_namespaces, pods)):
        return
    known = simulator.scheduler.namespaces
    others = {obj.namespace for obj in manifests.by_kind.get("Pod", ())} | {pod.namespace for pod in pods}
    for name in sorted(others - known.keys()):
        yield f"labels of namespace {name}: it is not in the input, and a namespaceSelector may select its pods"


def _selects_namespaces(pod: PendingPod) -> bool:
    affinity = as_dict(pod.spec.get("affinity"))
    kinds = [as_dict(affinity.get(kind)) for kind in ("podAffinity", "podAntiAffinity")]
    terms = [term for kind in kinds for name in _TERMS for term in as_dicts(kind.get(name))]
    return any(as_dict(term.get("podAffinityTerm") or term).get("namespaceSelector") for term in terms)


def _admission(manifests: Manifests, pods: list[PendingPod]) -> Iterator[str]:
    used = {pod.namespace for pod in pods}
    for obj in manifests.by_kind.get("Namespace", ()):
        level = as_strings(get_path(obj.data, "metadata", "labels")).get(_ENFORCE)
        if obj.name in used and level not in (None, "privileged"):
            yield f"Pod Security: namespace {obj.name} enforces {level}; the API server refuses pods that violate it"
    for obj in manifests.by_kind.get("ValidatingAdmissionPolicy", ()):
        yield f"ValidatingAdmissionPolicy {obj.name}: the API server may refuse objects that are planned here"


def _queues(manifests: Manifests, pods: list[PendingPod]) -> Iterator[str]:
    """Kueue restricts the nodes of a workload to those of the flavor that it chooses."""
    workloads = {(pod.namespace, pod.workload) for pod in pods}
    flavors = [
        f"{obj.name} ({', '.join(f'{key}={value}' for key, value in sorted(labels.items()))})"
        for obj in manifests.by_kind.get("ResourceFlavor", ())
        if (labels := as_strings(get_path(obj.data, "spec", "nodeLabels")))
    ]
    for obj in manifests.objects:
        queue = as_strings(get_path(obj.data, "metadata", "labels")).get(_QUEUE)
        if queue and (obj.namespace, f"{obj.kind}/{obj.name}") in workloads:
            chosen = f", and only on the nodes of the flavor it chooses: {', '.join(flavors)}" if flavors else ""
            yield f"Kueue: queue {queue} admits {obj.kind}/{obj.name} when it has quota{chosen}"


def _autoscalers(manifests: Manifests, pods: list[PendingPod]) -> Iterator[str]:
    workloads = {(pod.namespace, pod.workload) for pod in pods}
    for obj in manifests.by_kind.get("HorizontalPodAutoscaler", ()):
        target = as_dict(get_path(obj.data, "spec", "scaleTargetRef"))
        name, most = f"{target.get('kind')}/{target.get('name')}", get_path(obj.data, "spec", "maxReplicas")
        if (obj.namespace, name) in workloads:
            yield f"HorizontalPodAutoscaler {obj.name}: it may add pods to {name}, up to {most}"


def _rivals(manifests: Manifests) -> Iterator[str]:
    pending = [obj for obj in manifests.existing if obj.kind == "Pod" and _is_pending(obj.data)]
    if pending:
        names = ", ".join(obj.name for obj in pending[:3]) + (
            f" and {len(pending) - 3} more" if len(pending) > 3 else ""
        )
        yield f"pods of the cluster that are pending, and may take devices first: {names}"


def _is_pending(pod: Mapping[str, Any]) -> bool:
    return get_path(pod, "status", "phase") == "Pending" and not get_path(pod, "spec", "nodeName")


def _devices(manifests: Manifests, simulator: Simulator) -> Iterator[str]:
    for raw in manifests.slices:
        bound = [device for device in as_dicts(get_path(raw, "spec", "devices")) if device.get("bindingConditions")]
        if bound:
            driver = get_path(raw, "spec", "driver")
            yield f"binding conditions of devices of {driver}: a pod is bound only when its devices meet them"
    for obj in manifests.by_kind.get("DeviceTaintRule", ()):
        if not _rules_apply(simulator):
            yield f"DeviceTaintRule {obj.name}: this release ignores it unless the gate DRADeviceTaintRules is on"


def _rules_apply(simulator: Simulator) -> bool:
    return Gate.DEVICE_TAINT_RULES in simulator.cluster.kubernetes.gates
