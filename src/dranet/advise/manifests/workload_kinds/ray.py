"""Ray: RayCluster, and RayJob and RayService, which create one: a head, and workers of several groups.

A RayJob also has a pod that submits the job. The operator writes its spec where the job has no submitterPodTemplate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import (
    MAX_REPLICAS,
    FindObject,
    PodSet,
    Skipped,
    count_of,
    join_notes,
    numbered,
    pods_at,
    spec_of,
    suspended,
    workload,
)
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.untyped import as_dict, as_list, get_path

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
"""The operator's default for submitterPodTemplate."""


@workload("ray.io", *_CLUSTER)
def ray_cluster(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    base = _CLUSTER[obj.kind]
    cluster, note = as_dict(get_path(obj.data, *base)), suspended(spec_of(obj))
    yield from pods_at(
        obj, (*base, "headGroupSpec", "template", "spec"), (f"{obj.name}-head",), "head",
        note=note, labels=_labels(obj, "head", "headgroup"),
    )  # fmt: skip
    for i, group in enumerate(map(as_dict, as_list(cluster.get("workerGroupSpecs")))):
        role = f"{group.get('groupName', i)}-worker"
        names = numbered(f"{obj.name}-{role}", _workers(group))
        path = (*base, "workerGroupSpecs", i, "template", "spec")
        labels = _labels(obj, "worker", str(group.get("groupName", i)))
        notes = join_notes(note, _autoscaler_note(cluster, group))
        yield from pods_at(obj, path, names, role, note=notes, labels=labels)
    if obj.kind == "RayJob" and spec_of(obj).get("submissionMode", "K8sJobMode") == "K8sJobMode" and cluster:
        yield _submitter(obj, note)


def _labels(obj: Object, node_type: str, group: str) -> dict[str, str]:
    """What the operator adds. The RayCluster of a RayJob or RayService has a random name, which is not known here."""
    named = {"ray.io/cluster": obj.name, "ray.io/identifier": f"{obj.name}-{node_type}"}
    return {
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": node_type,
        "ray.io/group": group,
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
        **(named if obj.kind == "RayCluster" else {}),
    }


def _workers(group: dict[str, Any]) -> int:
    least = count_of(group.get("minReplicas"), 0)
    wanted = max(least, count_of(group.get("replicas"), least or 1))
    replicas = min(wanted, count_of(group.get("maxReplicas"), MAX_REPLICAS))
    return min(replicas * count_of(group.get("numOfHosts"), 1), MAX_REPLICAS)


def _autoscaler_note(cluster: dict[str, Any], group: dict[str, Any]) -> str:
    most = count_of(group.get("maxReplicas"), 0)
    grows = cluster.get("enableInTreeAutoscaling") is True and most > _workers(group)
    return f"its autoscaler may add workers, up to {most}" if grows else ""


def _submitter(obj: Object, note: str) -> PodSet:
    path: FieldPath = ("spec", "submitterPodTemplate", "spec")
    written = get_path(obj.data, *path)
    spec = written if isinstance(written, dict) else _SUBMITTER
    return PodSet(obj, obj, path, (f"{obj.name}-submitter",), spec, "submitter", note=note)
