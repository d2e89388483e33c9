"""Queueing systems: Volcano's Job and Kueue's Workload.

A Workload is a copy of another object, whose pods it admits. It is planned only where its owner is not among the files,
as in a recording of a queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import (
    FindObject,
    Made,
    MadeService,
    Skipped,
    count_of,
    numbered,
    pods_at,
    spec_of,
    workload,
)
from dranet.core.untyped import as_dict, as_list, get_path


@workload("batch.volcano.sh", "Job")
def volcano_job(obj: Object, find: FindObject) -> Iterator[Made]:
    """Tasks with replicas: ``job-task-index``."""
    spec = spec_of(obj)
    volcano = "Volcano's scheduler places these pods: planned as kube-scheduler would, one after the other"
    note = volcano if spec.get("schedulerName", "volcano") == "volcano" else ""
    common = {"volcano.sh/job-name": obj.name, "volcano.sh/job-namespace": obj.namespace}
    if "svc" in as_dict(spec.get("plugins")):
        yield MadeService(obj, common)
    for i, one in enumerate(map(as_dict, as_list(spec.get("tasks")))):
        role = str(one.get("name") or f"default{i}")
        names = numbered(f"{obj.name}-{role}", count_of(one.get("replicas"), 1))
        labels = {
            **common,
            "volcano.sh/task-spec": role,
            "volcano.sh/queue-name": str(spec.get("queue") or "default"),
        }
        indexes = {name: {"volcano.sh/task-index": str(n)} for n, name in enumerate(names)}
        path = ("spec", "tasks", i, "template", "spec")
        yield from pods_at(obj, path, names, role, note=note, labels=labels, pod_labels=indexes)


@workload("kueue.x-k8s.io", "Workload")
def kueue_workload(obj: Object, find: FindObject) -> Iterator[Made]:
    for owner in map(as_dict, as_list(get_path(obj.data, "metadata", "ownerReferences"))):
        if find(str(owner.get("kind")), obj.namespace, str(owner.get("name"))) is not None:
            yield Skipped(obj, f"a copy of {owner.get('kind')} {owner.get('name')}, which is planned itself")
            return
    for i, one in enumerate(map(as_dict, as_list(spec_of(obj).get("podSets")))):
        role = str(one.get("name") or "main")
        names = numbered(f"{obj.name}-{role}", count_of(one.get("count"), 1))
        note = "planned as if its queue had admitted it"
        yield from pods_at(obj, ("spec", "podSets", i, "template", "spec"), names, role, note=note)
