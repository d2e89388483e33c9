"""The jobs of Kubeflow's training operator, one kind a framework: ``job-role-index``."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping
from dranet.manifests.workload_kinds.base import (
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

_ROLES = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}


@workload("kubeflow.org", *_ROLES)
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    key, spec = _ROLES[obj.kind], spec_of(obj)
    note = suspended(mapping(spec.get("runPolicy")))
    for role, raw in mapping(spec.get(key)).items():
        names = numbered(f"{obj.name}-{role.lower()}", count_of(mapping(raw).get("replicas"), 1))
        yield from pods_at(obj, ("spec", key, role, "template", "spec"), names, role.lower(), note=note)
