"""Workloads of Kubernetes itself: Pod, the kinds of ``apps``, Job and CronJob."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    template_hash,
    workload,
)
from dranet.core.untyped import as_dict, get_path

_TEMPLATE = ("spec", "template", "spec")
_CRON_JOB = ("spec", "jobTemplate", "spec")
_TEMPLATE_HASH = "pod-template-hash"
_REVISION = "controller-revision-hash"


@workload("", "Pod")
def pod(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    yield from pods_at(obj, ("spec",), (obj.name,))


@workload("apps", "ReplicaSet")
@workload("", "ReplicationController")
def replica_set(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    selector = as_dict(spec_of(obj).get("selector"))
    selector = selector if obj.kind == "ReplicaSet" else {"matchLabels": selector}
    names = numbered(obj.name, count_of(spec_of(obj).get("replicas"), 1))
    yield from pods_at(obj, _TEMPLATE, names, selector=selector)


@workload("apps", "Deployment")
def deployment(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    """The pods of the ReplicaSet that the controller creates, whose hash tells them from those of earlier ones."""
    label = {_TEMPLATE_HASH: template_hash(spec_of(obj).get("template"))}
    selector = as_dict(spec_of(obj).get("selector"))
    selector = {**selector, "matchLabels": {**as_dict(selector.get("matchLabels")), **label}}
    names = numbered(obj.name, count_of(spec_of(obj).get("replicas"), 1))
    yield from pods_at(obj, _TEMPLATE, names, labels=label, selector=selector)


@workload("apps", "StatefulSet")
def stateful_set(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    spec = spec_of(obj)
    first = count_of(as_dict(spec.get("ordinals")).get("start"), 0)
    names = numbered(obj.name, count_of(spec.get("replicas"), 1), first)
    yield from pods_at(
        obj,
        _TEMPLATE,
        names,
        labels={_REVISION: template_hash(spec.get("template"))},
        pod_labels=stateful_labels(names),
        selector=as_dict(spec.get("selector")),
        in_order=spec.get("podManagementPolicy") != "Parallel",
    )


def stateful_labels(names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """By pod name, what a StatefulSet writes into its labels."""
    return {
        name: {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": name.rpartition("-")[2]}
        for name in names
    }


@workload("apps", "DaemonSet")
def daemon_set(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    labels = {_REVISION: template_hash(spec_of(obj).get("template"))}
    yield from pods_at(obj, _TEMPLATE, numbered(obj.name, 1), per_node=True, labels=labels)


def job_pods(spec: dict[str, Any]) -> int:
    """Pods of a Job that run at the same time: its parallelism, but not more than are left to complete."""
    parallel = count_of(spec.get("parallelism"), 1)
    return min(parallel, count_of(spec.get("completions"), parallel))


def job_note(spec: dict[str, Any]) -> str:
    """The pods of a Job that start later, and whether the Job is suspended."""
    later = count_of(spec.get("completions"), 0) - job_pods(spec)
    return join_notes(f"{later} more pods follow as these complete" if later > 0 else "", suspended(spec))


def job_labels(name: str) -> dict[str, str]:
    """What the Job controller adds to the labels of all pods of a Job."""
    return {"batch.kubernetes.io/job-name": name, "job-name": name}


def index_labels(spec: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """By pod name, the completion index of the pods of an Indexed Job."""
    if spec.get("completionMode") != "Indexed":
        return {}
    return {name: {"batch.kubernetes.io/job-completion-index": name.rpartition("-")[2]} for name in names}


@workload("batch", "Job")
def job(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    spec, names = spec_of(obj), numbered(obj.name, job_pods(spec_of(obj)))
    yield from pods_at(
        obj,
        _TEMPLATE,
        names,
        note=job_note(spec),
        labels=job_labels(obj.name),
        pod_labels=index_labels(spec, names),
    )


@workload("batch", "CronJob")
def cron_job(obj: Object, find: FindObject) -> Iterator[PodSet | Skipped]:
    """The pods of one run. The real Job name contains the time of the run, which is not known here."""
    run = as_dict(get_path(obj.data, *_CRON_JOB))
    held = "suspended: planned as if its next run were due" if spec_of(obj).get("suspend") is True else ""
    note = join_notes("one run is planned", job_note(run), held)
    names = numbered(obj.name, job_pods(run))
    yield from pods_at(
        obj,
        (*_CRON_JOB, "template", "spec"),
        names,
        note=note,
        labels=job_labels(obj.name),
        pod_labels=index_labels(run, names),
    )
