"""JobSet and LeaderWorkerSet: sets of groups of pods."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import (
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
from dranet.advise.manifests.workload_kinds.builtin import job_note, job_pods
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.untyped import as_dict, as_list, get_path

_LEADER_WORKER: FieldPath = ("spec", "leaderWorkerTemplate")


@workload("jobset.x-k8s.io", "JobSet")
def job_set(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    yield from replicated_jobs(obj, obj, ("spec",), suspended(spec_of(obj)))


def replicated_jobs(obj: Object, source: Object, base: FieldPath, note: str = "") -> Iterator[PodSet]:
    """The pods of the replicatedJobs below ``base`` of the source; they are named ``set-group-job-pod``."""
    for i, one in enumerate(map(as_dict, as_list(get_path(source.data, *base, "replicatedJobs")))):
        role, where = str(one.get("name", i)), (*base, "replicatedJobs", i, "template", "spec")
        job = as_dict(get_path(source.data, *where))
        names = tuple(
            pod
            for index in range(count_of(one.get("replicas"), 1))
            for pod in numbered(f"{obj.name}-{role}-{index}", job_pods(job))
        )
        notes = join_notes(note, job_note(job))
        yield from pods_at(obj, (*where, "template", "spec"), names, role, source=source, note=notes)


@workload("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
def leader_worker_set(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    """Groups of one leader (``set-group``) and its workers (``set-group-1`` and on)."""
    template = as_dict(spec_of(obj).get("leaderWorkerTemplate"))
    leaders = numbered(obj.name, count_of(spec_of(obj).get("replicas"), 1))
    workers = tuple(n for leader in leaders for n in numbered(leader, count_of(template.get("size"), 1) - 1, 1))
    # A set without a leaderTemplate creates the leader from the template of the workers.
    own = "leaderTemplate" if template.get("leaderTemplate") else "workerTemplate"
    yield from pods_at(obj, (*_LEADER_WORKER, own, "spec"), leaders, "leader")
    if workers:
        yield from pods_at(obj, (*_LEADER_WORKER, "workerTemplate", "spec"), workers, "worker")
