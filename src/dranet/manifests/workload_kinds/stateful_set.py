"""StatefulSet: pods with an ordinal, which need not begin at 0."""

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


@workload("apps", "StatefulSet")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    spec = spec_of(obj)
    first = count_of(mapping(spec.get("ordinals")).get("start"), 0)
    yield from pods_at(obj, ("spec", "template", "spec"), numbered(obj.name, count_of(spec.get("replicas"), 1), first))
