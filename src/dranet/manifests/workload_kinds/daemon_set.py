"""DaemonSet: one pod on every node."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.manifests.objects import Object
from dranet.manifests.workload_kinds.base import Lookup, Omitted, PodGroup, numbered, pods_at, workload


@workload("apps", "DaemonSet")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    yield from pods_at(obj, ("spec", "template", "spec"), numbered(obj.name, 1), per_node=True)
