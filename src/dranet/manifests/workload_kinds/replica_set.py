"""ReplicaSet, its predecessor ReplicationController, and Deployment, which makes one ReplicaSet at a time."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.manifests.objects import Object
from dranet.manifests.workload_kinds.base import (
    Lookup,
    Omitted,
    PodGroup,
    count_of,
    numbered,
    pods_at,
    spec_of,
    workload,
)


@workload("apps", "ReplicaSet", "Deployment")
@workload("", "ReplicationController")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    names = numbered(obj.name, count_of(spec_of(obj).get("replicas"), 1))
    yield from pods_at(obj, ("spec", "template", "spec"), names)
