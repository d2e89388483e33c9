"""JobSet and LeaderWorkerSet: sets of groups of pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import (
    FindObject,
    Made,
    MadeService,
    PodSet,
    count_of,
    join_notes,
    name_hash,
    numbered,
    pods_at,
    spec_of,
    suspended,
    template_hash,
    workload,
)
from dranet.advise.manifests.workload_kinds.builtin import index_labels, job_labels, job_note, job_pods, stateful_labels
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.untyped import as_dict, as_dicts, as_list, get_path

_LEADER_WORKER: FieldPath = ("spec", "leaderWorkerTemplate")
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"


@workload("jobset.x-k8s.io", "JobSet")
def job_set(obj: Object, find: FindObject) -> Iterator[Made]:
    yield from replicated_jobs(obj, obj, ("spec",), suspended(spec_of(obj)))


def replicated_jobs(obj: Object, source: Object, base: FieldPath, note: str = "") -> Iterator[PodSet | MadeService]:
    """The pods of the replicatedJobs below ``base`` of the source; they are named ``set-group-job-pod``."""
    if get_path(source.data, *base, "network", "enableDNSHostnames") is not False:
        yield MadeService(obj, {f"{_JOBSET}jobset-name": obj.name})
    in_order = get_path(source.data, *base, "startupPolicy", "startupPolicyOrder") == "InOrder"
    before: list[str] = []
    for i, one in enumerate(map(as_dict, as_list(get_path(source.data, *base, "replicatedJobs")))):
        role, where = str(one.get("name", i)), (*base, "replicatedJobs", i, "template", "spec")
        job = {"completionMode": "Indexed", **as_dict(get_path(source.data, *where))}
        jobs = numbered(f"{obj.name}-{role}", count_of(one.get("replicas"), 1))
        pods = {name: numbered(name, job_pods(job)) for name in jobs}
        labels = {pod: own for index, name in enumerate(jobs) for pod, own in _pods_of_job(obj, job, name, index, pods)}
        yield from pods_at(
            obj,
            (*where, "template", "spec"),
            tuple(labels),
            role,
            source=source,
            note=join_notes(note, job_note(job)),
            labels=_set_labels(obj, role, len(jobs)),
            pod_labels=labels,
            after=_dependencies(one, before[-1:] if in_order else []),
        )
        before.append(role)


def _dependencies(job: Mapping[str, Any], earlier: list[str]) -> tuple[tuple[str, str], ...]:
    """The roles that a replicated job waits for, each with the status it waits for."""
    named = [(str(one.get("name")), str(one.get("status") or "Ready")) for one in as_dicts(job.get("dependsOn"))]
    return (*named, *((role, "Ready") for role in earlier))


def _set_labels(obj: Object, role: str, replicas: int) -> dict[str, str]:
    return {
        f"{_JOBSET}jobset-name": obj.name,
        f"{_JOBSET}replicatedjob-name": role,
        f"{_JOBSET}replicatedjob-replicas": str(replicas),
        f"{_JOBSET}restart-attempt": "0",
    }


def _pods_of_job(
    obj: Object, job: Mapping[str, Any], name: str, index: int, pods: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The pods of one Job of the set, each with the labels that other Jobs of the set do not have."""
    of_job = {f"{_JOBSET}job-index": str(index), f"{_JOBSET}job-key": name_hash(obj.namespace, name)}
    indexes = index_labels(job, pods[name])
    for pod in pods[name]:
        yield pod, {**job_labels(name), **of_job, **indexes.get(pod, {})}


@workload("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
def leader_worker_set(obj: Object, find: FindObject) -> Iterator[Made]:
    """Groups of one leader (``set-group``) and its workers (``set-group-1`` and on)."""
    template = as_dict(spec_of(obj).get("leaderWorkerTemplate"))
    leaders = numbered(obj.name, count_of(spec_of(obj).get("replicas"), 1))
    # A set without a leaderTemplate creates the leader from the template of the workers.
    own = "leaderTemplate" if template.get("leaderTemplate") else "workerTemplate"
    set_labels = {f"{_LWS}name": obj.name, f"{_LWS}template-revision-hash": template_hash(template)}
    of_leaders = {f"{_LWS}name": obj.name, f"{_LWS}worker-index": "0"}
    yield from _group_services(obj, leaders)
    pod_labels = stateful_labels(leaders)
    for group, leader in enumerate(leaders):
        path = (*_LEADER_WORKER, own, "spec")
        labels = {**set_labels, f"{_LWS}worker-index": "0", **_group_labels(obj, group)}
        yield from pods_at(
            obj, path, (leader,), "leader",
            labels=labels, pod_labels={leader: pod_labels[leader]},
            selector={"matchLabels": of_leaders}, job=_group_name(leaders, group),
        )  # fmt: skip
    for group, leader in enumerate(leaders):
        workers = numbered(leader, count_of(template.get("size"), 1) - 1, 1)
        path = (*_LEADER_WORKER, "workerTemplate", "spec")
        pod_labels = {
            name: {**mine, f"{_LWS}worker-index": mine["apps.kubernetes.io/pod-index"]}
            for name, mine in stateful_labels(workers).items()
        }
        labels, chosen = {**set_labels, **_group_labels(obj, group)}, {f"{_LWS}name": obj.name}
        selector = {"matchLabels": {**chosen, **_group_labels(obj, group)}}
        if workers:
            yield from pods_at(
                obj, path, workers, "worker",
                labels=labels, pod_labels=pod_labels, selector=selector, job=_group_name(leaders, group),
                after=(("leader", "Ready"),) if spec_of(obj).get("startupPolicy") == "LeaderReady" else (),
            )  # fmt: skip


def _group_labels(obj: Object, group: int) -> dict[str, str]:
    key = name_hash(obj.namespace, f"{obj.name}-{group}")
    return {f"{_LWS}group-index": str(group), f"{_LWS}group-key": key}


def _group_name(leaders: tuple[str, ...], group: int) -> str:
    """Groups communicate among themselves only."""
    return f"group {group}" if len(leaders) > 1 else ""


def _group_services(obj: Object, leaders: tuple[str, ...]) -> Iterator[MadeService]:
    shared = {f"{_LWS}name": obj.name}
    if get_path(spec_of(obj), "networkConfig", "subdomainPolicy") != "UniquePerReplica":
        yield MadeService(obj, shared)
        return
    for group in range(len(leaders)):
        yield MadeService(obj, {**shared, f"{_LWS}group-index": str(group)})
