"""Job: as many pods at once as its parallelism says, and never more than are left to complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.manifests.objects import Object
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


def job_pods(spec: dict[str, Any]) -> int:
    """Pods that run at the same time."""
    parallel = count_of(spec.get("parallelism"), 1)
    return min(parallel, count_of(spec.get("completions"), parallel))


def job_note(spec: dict[str, Any]) -> str:
    """What is to be known of a Job beside its pods: those that come later, and whether it is held back."""
    later = count_of(spec.get("completions"), 0) - job_pods(spec)
    said = [f"{later} more pods follow as these complete"] if later > 0 else []
    return "; ".join([*said, *filter(None, [suspended(spec)])])


@workload("batch", "Job")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    spec = spec_of(obj)
    yield from pods_at(obj, ("spec", "template", "spec"), numbered(obj.name, job_pods(spec)), note=job_note(spec))
