"""A Pod: itself."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.manifests.objects import Object
from dranet.manifests.workload_kinds.base import Lookup, Omitted, PodGroup, pods_at, workload


@workload("", "Pod")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    yield from pods_at(obj, ("spec",), (obj.name,))
