"""CronJob: the pods of one run; the job's name has the time in it, which no plan knows."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping, reach
from dranet.manifests.workload_kinds.base import Lookup, Omitted, PodGroup, numbered, pods_at, spec_of, workload
from dranet.manifests.workload_kinds.job import job_note, job_pods

_JOB = ("spec", "jobTemplate", "spec")


@workload("batch", "CronJob")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    job = mapping(reach(obj.data, _JOB))
    notes = ["one run of it is planned", job_note(job)]
    if spec_of(obj).get("suspend") is True:
        notes.append("suspended: planned as if its time had come")
    note = "; ".join(filter(None, notes))
    yield from pods_at(obj, (*_JOB, "template", "spec"), numbered(obj.name, job_pods(job)), note=note)
