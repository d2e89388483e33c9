"""Volcano's Job: tasks with replicas, ``job-task-index``; Volcano's own scheduler places them, all or none."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping, sequence
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

_NOTE = "Volcano's scheduler places these pods: planned as kube-scheduler would, one after the other"


@workload("batch.volcano.sh", "Job")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    spec = spec_of(obj)
    note = _NOTE if spec.get("schedulerName", "volcano") == "volcano" else ""
    for i, raw in enumerate(sequence(spec.get("tasks"))):
        one = mapping(raw)
        role = str(one.get("name") or f"default{i}")
        names = numbered(f"{obj.name}-{role}", count_of(one.get("replicas"), 1))
        yield from pods_at(obj, ("spec", "tasks", i, "template", "spec"), names, role, note=note)
