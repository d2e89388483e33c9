"""LeaderWorkerSet: groups of one leader (``set-group``) and its workers (``set-group-1`` and on)."""

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
    workload,
)
from dranet.manifests.yaml_nodes import FieldPath

_BASE: FieldPath = ("spec", "leaderWorkerTemplate")


@workload("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    template = mapping(spec_of(obj).get("leaderWorkerTemplate"))
    leaders = numbered(obj.name, count_of(spec_of(obj).get("replicas"), 1))
    workers = tuple(n for leader in leaders for n in numbered(leader, count_of(template.get("size"), 1) - 1, 1))
    # Without a template of its own the leader is made from the workers'.
    own = "leaderTemplate" if template.get("leaderTemplate") else "workerTemplate"
    yield from pods_at(obj, (*_BASE, own, "spec"), leaders, "leader")
    if workers:
        yield from pods_at(obj, (*_BASE, "workerTemplate", "spec"), workers, "worker")
