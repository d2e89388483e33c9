"""Kinds that are not registered: whatever looks like a pod template counts as one, and the plan notes that.

A pod spec is a mapping with a list of containers that have names. The nearest number of replicas above it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.workload_kinds.base import PodSet, count_of, numbered
from dranet.advise.manifests.yaml_nodes import MAX_DEPTH, FieldPath, dotted
from dranet.core.untyped import as_dict, as_list, get_path

_COUNTS = ("replicas", "parallelism", "count", "numReplicas", "size")


def guess_pods(obj: Object) -> Iterator[PodSet]:
    """The pods of every pod template in the object, named after the object and the position of the template."""
    found = list(_pod_specs(obj.data.get("spec"), ("spec",)))
    for path in found:
        role = "" if len(found) == 1 else _role(obj, path)
        count, where = _count(obj, path)
        names = numbered(f"{obj.name}-{role}" if role else obj.name, count)
        source = f"{count} by {dotted(where)}" if where else "1, because no field gives a number"
        note = f"kind {obj.kind} is not known here: pods found by the shape of {dotted(path)}, {source}"
        yield PodSet(obj, obj, path, names, as_dict(get_path(obj.data, *path)), role, note=note)


def _pod_specs(value: Any, path: FieldPath) -> Iterator[FieldPath]:
    if len(path) > MAX_DEPTH:
        return
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from _pod_specs(item, (*path, i))
    elif isinstance(value, dict) and _is_pod_spec(value):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _pod_specs(item, (*path, key))


def _is_pod_spec(value: dict[str, Any]) -> bool:
    containers = as_list(value.get("containers"))
    return bool(containers) and all(isinstance(as_dict(one).get("name"), str) for one in containers)


def _count(obj: Object, path: FieldPath) -> tuple[int, FieldPath]:
    for length in range(len(path) - 1, 0, -1):
        above = as_dict(get_path(obj.data, *path[:length]))
        for key in _COUNTS:
            if isinstance(above.get(key), int) and not isinstance(above[key], bool):
                return count_of(above[key], 1), (*path[:length], key)
    return 1, ()


def _role(obj: Object, path: FieldPath) -> str:
    """The name of the nearest list item above, else the last step that is not part of every template."""
    for length in range(len(path) - 1, 0, -1):
        name = as_dict(get_path(obj.data, *path[:length])).get("name")
        if isinstance(path[length - 1], int) and isinstance(name, str):
            return name.lower()
    steps = [str(step) for step in path if step not in {"spec", "template"}]
    return (steps[-1] if steps else "pod").lower()
