"""Workloads of Kubernetes itself: Pod, the kinds of ``apps``, Job and CronJob."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
from dranet.core.untyped import as_dict, get_path

_TEMPLATE = ("spec", "template", "spec")
_CRON_JOB = ("spec", "jobTemplate", "spec")


@workload("", "Pod")
def pod(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    yield from pods_at(obj, ("spec",), (obj.name,))


@workload("apps", "ReplicaSet", "Deployment")
@workload("", "ReplicationController")
def replica_set(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    yield from pods_at(obj, _TEMPLATE, numbered(obj.name, count_of(spec_of(obj).get("replicas"), 1)))


@workload("apps", "StatefulSet")
def stateful_set(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    spec = spec_of(obj)
    first = count_of(as_dict(spec.get("ordinals")).get("start"), 0)
    yield from pods_at(obj, _TEMPLATE, numbered(obj.name, count_of(spec.get("replicas"), 1), first))


@workload("apps", "DaemonSet")
def daemon_set(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    yield from pods_at(obj, _TEMPLATE, numbered(obj.name, 1), per_node=True)


def job_pods(spec: dict[str, Any]) -> int:
    """Pods of a Job that run at the same time: its parallelism, but not more than are left to complete."""
    parallel = count_of(spec.get("parallelism"), 1)
    return min(parallel, count_of(spec.get("completions"), parallel))


def job_note(spec: dict[str, Any]) -> str:
    """The pods of a Job that start later, and whether the Job is suspended."""
    later = count_of(spec.get("completions"), 0) - job_pods(spec)
    return join_notes(f"{later} more pods follow as these complete" if later > 0 else "", suspended(spec))


@workload("batch", "Job")
def job(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    spec = spec_of(obj)
    yield from pods_at(obj, _TEMPLATE, numbered(obj.name, job_pods(spec)), note=job_note(spec))


@workload("batch", "CronJob")
def cron_job(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    """The pods of one run. The real Job name contains the time of the run, which is not known here."""
    run = as_dict(get_path(obj.data, *_CRON_JOB))
    held = "suspended: planned as if its next run were due" if spec_of(obj).get("suspend") is True else ""
    note = join_notes("one run is planned", job_note(run), held)
    yield from pods_at(obj, (*_CRON_JOB, "template", "spec"), numbered(obj.name, job_pods(run)), note=note)
