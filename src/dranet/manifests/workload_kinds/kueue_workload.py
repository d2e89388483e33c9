"""Kueue's Workload: a copy of what another object will run. It makes no pods itself.

It is planned where it stands alone, as in a recording of a queue; where its owner is among the files, the owner is.
"""

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
    workload,
)


@workload("kueue.x-k8s.io", "Workload")
def pods(obj: Object, look: Lookup) -> Iterator[PodGroup | Omitted]:
    for raw in sequence(reach(obj.data, ("metadata", "ownerReferences"))):
        owner = mapping(raw)
        if look(str(owner.get("kind")), obj.namespace, str(owner.get("name"))) is not None:
            yield Omitted(f"a copy of {owner.get('kind')} {owner.get('name')}, which is planned itself")
            return
    for i, raw in enumerate(sequence(spec_of(obj).get("podSets"))):
        one = mapping(raw)
        role = str(one.get("name") or "main")
        names = numbered(f"{obj.name}-{role}", count_of(one.get("count"), 1))
        note = "planned as if its queue had admitted it"
        yield from pods_at(obj, ("spec", "podSets", i, "template", "spec"), names, role, note=note)
