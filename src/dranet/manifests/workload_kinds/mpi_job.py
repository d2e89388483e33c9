"""MPIJob: a launcher, which is a Job, and workers with an index."""

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


@workload("kubeflow.org", "MPIJob")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    spec = spec_of(obj)
    note = suspended(mapping(spec.get("runPolicy")))
    for role, raw in mapping(spec.get("mpiReplicaSpecs")).items():
        name, count = f"{obj.name}-{role.lower()}", count_of(mapping(raw).get("replicas"), 1)
        names = (name,) * min(count, 1) if role == "Launcher" else numbered(name, count)
        path = ("spec", "mpiReplicaSpecs", role, "template", "spec")
        yield from pods_at(obj, path, names, role.lower(), note=note)
