"""ResourceSlices as v1, and the problems that make one unusable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.advise.manifests.claims import is_quantity
from dranet.advise.manifests.objects import Object
from dranet.advise.manifests.versions import to_v1
from dranet.advise.manifests.yaml_nodes import FieldPath
from dranet.core.untyped import as_dict, get_path

SliceProblem = tuple[FieldPath, str]


def parse_slice(obj: Object) -> tuple[dict[str, Any], list[SliceProblem]]:
    """A slice as v1, and what is wrong with it."""
    raw = to_v1(obj.data)
    return raw, list(_problems(obj.name, raw["spec"]))


def _problems(name: str, spec: dict[str, Any]) -> Iterator[SliceProblem]:
    for steps in (("driver",), ("pool", "name")):
        if not get_path(spec, *steps):
            yield ("spec", *steps), f"ResourceSlice {name}: no spec.{'.'.join(steps)}"
    for i, entry in enumerate(spec.get("sharedCounters") or ()):
        if not entry.get("name"):
            yield ("spec", "sharedCounters", i), "a counter set without a name"
        yield from _quantity_problems(entry.get("counters"), ("spec", "sharedCounters", i, "counters"))
    for i, device in enumerate(spec.get("devices") or ()):
        yield from _device_problems(("spec", "devices", i), device)


def _device_problems(base: FieldPath, device: dict[str, Any]) -> Iterator[SliceProblem]:
    if not device.get("name"):
        yield base, "a device without a name"
    for key, value in (device.get("attributes") or {}).items():
        if len(value) != 1 or [] in value.values():
            yield (*base, "attributes", key), f"attribute {key} must have one of string, int, bool or version"
    for key, value in (device.get("capacity") or {}).items():
        if "value" not in value:
            yield (*base, "capacity", key), f"capacity {key} has no value"
    yield from _quantity_problems(device.get("capacity"), (*base, "capacity"))
    for i, taint in enumerate(device.get("taints") or ()):
        if not taint.get("key") or not taint.get("effect"):
            yield (*base, "taints", i), "a taint needs key and effect"
    for i, counter in enumerate(device.get("consumesCounters") or ()):
        if not counter.get("counterSet"):
            yield (*base, "consumesCounters", i), "consumesCounters needs a counterSet"
        yield from _quantity_problems(counter.get("counters"), (*base, "consumesCounters", i, "counters"))


def _quantity_problems(entries: Any, base: FieldPath) -> Iterator[SliceProblem]:
    for path, value in _quantities(entries, base):
        if not is_quantity(value):
            yield path, f"{value!r} is not a quantity such as 400G or 16Gi"


def _quantities(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    """Values of capacities or counters, and of their request policies."""
    for key, item in as_dict(value).items():
        if key in {"value", "default", "min", "max", "step"} and not isinstance(item, dict):
            yield (*path, key), item
        elif key == "validValues":
            yield from (((*path, key, i), one) for i, one in enumerate(item))
        else:
            yield from _quantities(item, (*path, key))
