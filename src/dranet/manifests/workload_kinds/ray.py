"""RayCluster, and RayJob and RayService, which make one: a head, and workers of several groups.

A RayJob also has a pod that submits the job; the operator writes its spec where nobody else does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping, reach, sequence
from dranet.manifests.workload_kinds.base import (
    MAX_REPLICAS,
    Lookup,
    Omitted,
    PodGroup,
    count_of,
    numbered,
    pods_at,
    spec_of,
    suspended,
    workload,
)
from dranet.manifests.yaml_nodes import FieldPath

_CLUSTER: dict[str, FieldPath] = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
}
_SUBMITTER = {
    "containers": [
        {
            "name": "ray-job-submitter",
            "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
        }
    ]
}
"""What the operator asks for where the job names no submitterPodTemplate."""


@workload("ray.io", *_CLUSTER)
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    base = _CLUSTER[obj.kind]
    cluster, note = mapping(reach(obj.data, base)), suspended(spec_of(obj))
    yield from pods_at(obj, (*base, "headGroupSpec", "template", "spec"), (f"{obj.name}-head",), "head", note=note)
    for i, raw in enumerate(sequence(cluster.get("workerGroupSpecs"))):
        one = mapping(raw)
        role = f"{one.get('groupName', i)}-worker"
        names = numbered(f"{obj.name}-{role}", _workers(one))
        path = (*base, "workerGroupSpecs", i, "template", "spec")
        yield from pods_at(obj, path, names, role, note=_note(cluster, one, note))
    if obj.kind == "RayJob" and spec_of(obj).get("submissionMode", "K8sJobMode") == "K8sJobMode" and cluster:
        yield _submitter(obj, note)


def _workers(group: dict[str, Any]) -> int:
    least = count_of(group.get("minReplicas"), 0)
    wanted = max(least, count_of(group.get("replicas"), least or 1))
    replicas = min(wanted, count_of(group.get("maxReplicas"), MAX_REPLICAS))
    return min(replicas * count_of(group.get("numOfHosts"), 1), MAX_REPLICAS)


def _note(cluster: dict[str, Any], group: dict[str, Any], note: str) -> str:
    most = count_of(group.get("maxReplicas"), 0)
    grows = cluster.get("enableInTreeAutoscaling") is True and most > _workers(group)
    return "; ".join(filter(None, [note, f"its autoscaler may add workers, up to {most}" if grows else ""]))


def _submitter(obj: Object, note: str) -> PodGroup:
    path: FieldPath = ("spec", "submitterPodTemplate", "spec")
    written = reach(obj.data, path)
    spec = written if isinstance(written, dict) else _SUBMITTER
    return PodGroup(obj, path, (f"{obj.name}-submitter",), spec, "submitter", note=note)
