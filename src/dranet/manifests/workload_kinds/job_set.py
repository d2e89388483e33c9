"""JobSet: several groups of Jobs, each Job with its own pods: ``set-group-job-pod``."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping, reach, sequence
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
from dranet.manifests.workload_kinds.job import job_note, job_pods
from dranet.manifests.yaml_nodes import FieldPath


@workload("jobset.x-k8s.io", "JobSet")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    yield from replicated_jobs(obj, obj.name, ("spec",), suspended(spec_of(obj)))


def replicated_jobs(source: Object, name: str, base: FieldPath, note: str = "") -> Iterator[PodGroup]:
    """The pods of the replicatedJobs below ``base``, for a JobSet of this name."""
    for i, raw in enumerate(sequence(reach(source.data, (*base, "replicatedJobs")))):
        one = mapping(raw)
        role, where = str(one.get("name", i)), (*base, "replicatedJobs", i, "template", "spec")
        job = mapping(reach(source.data, where))
        names = tuple(
            pod
            for index in range(count_of(one.get("replicas"), 1))
            for pod in numbered(f"{name}-{role}-{index}", job_pods(job))
        )
        said = "; ".join(filter(None, [note, job_note(job)]))
        yield from pods_at(source, (*where, "template", "spec"), names, role, note=said)
