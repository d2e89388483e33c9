"""Kinds nobody told us about: what looks like a pod template is taken for one, and said to be a guess.

A pod spec is a mapping with a list of containers that have names. The nearest number of replicas above it is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.manifests.objects import Object
from dranet.manifests.plain_values import mapping, reach, sequence
from dranet.manifests.workload_kinds.base import PodGroup, count_of, numbered
from dranet.manifests.yaml_nodes import MAX_DEPTH, FieldPath, dotted

_COUNTS = ("replicas", "parallelism", "count", "numReplicas", "size")


def guessed_pods(obj: Object) -> Iterator[PodGroup]:
    """Every pod template in the object, with names made from the object's and the template's place."""
    found = list(_pod_specs(obj.data.get("spec"), ("spec",)))
    for path in found:
        role = "" if len(found) == 1 else _role(obj, path)
        count, where = _count(obj, path)
        names = numbered(f"{obj.name}-{role}" if role else obj.name, count)
        said = f"{count} by {dotted(where)}" if where else "1, as nothing says how many"
        note = f"kind {obj.kind} is not known here: pods found by the shape of {dotted(path)}, {said}"
        yield PodGroup(obj, path, names, mapping(reach(obj.data, path)), role, note=note)


def _pod_specs(value: Any, path: FieldPath) -> Iterator[FieldPath]:
    if len(path) > MAX_DEPTH:
        return
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _pod_specs(item, (*path, i))
    elif isinstance(value, dict) and _looks_like_a_pod(value):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _pod_specs(item, (*path, key))


def _looks_like_a_pod(value: dict[str, Any]) -> bool:
    containers = sequence(value.get("containers"))
    return bool(containers) and all(isinstance(mapping(one).get("name"), str) for one in containers)


def _count(obj: Object, path: FieldPath) -> tuple[int, FieldPath]:
    for length in range(len(path) - 1, 0, -1):
        above = mapping(reach(obj.data, path[:length]))
        for key in _COUNTS:
            if isinstance(above.get(key), int) and not isinstance(above[key], bool):
                return count_of(above[key], 1), (*path[:length], key)
    return 1, ()


def _role(obj: Object, path: FieldPath) -> str:
    """The name of the nearest list item above, else the last step that is not part of every template."""
    for length in range(len(path) - 1, 0, -1):
        name = mapping(reach(obj.data, path[:length])).get("name")
        if isinstance(path[length - 1], int) and isinstance(name, str):
            return name.lower()
    steps = [str(step) for step in path if step not in {"spec", "template"}]
    return (steps[-1] if steps else "pod").lower()
