"""Decides which slices to write so that a node's pool reaches the desired state. Pure functions.

kube-scheduler uses only the slices of the highest generation, and only if as many exist as each of them states. So one
changed slice is replaced in place (one atomic write), missing slices are created, and every other change is written as
a new generation, which stays invisible until it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Object = dict[str, Any]


class Accepted(msgspec.Struct, frozen=True):
    """What a server stored for what was sent: old servers drop unknown fields, and all normalise quantities."""

    sent: Sequence[Object]
    stored: Sequence[Object]


class PoolWrites(msgspec.Struct, frozen=True):
    """Slices to write at ``generation``, then slices to delete."""

    generation: int
    writes: tuple[Object, ...] = ()
    deletes: tuple[Object, ...] = ()

    @property
    def done(self) -> bool:
        """Whether there is nothing to write."""
        return not self.writes and not self.deletes


def plan_writes(
    desired: Sequence[Object],
    observed: Mapping[str, Object],
    accepted: Mapping[str, Accepted],
    known_generation: int = 0,
) -> PoolWrites:
    """The next writes towards ``desired`` (any generation), given all slices of this pool on the server."""
    top = max([known_generation, *map(generation_of, observed.values())])
    names = {name_of(item) for item in desired}
    missing = [item for item in desired if name_of(item) not in observed]
    changed = [
        item
        for item in desired
        if name_of(item) in observed and not is_current(item, observed[name_of(item)], accepted.get(name_of(item)), top)
    ]
    stale = tuple(observed[name] for name in sorted(observed) if name not in names)
    visible = [item for item in changed if generation_of(observed[name_of(item)]) == top]
    alone = len(changed) == 1 and not missing and not stale
    if any(generation_of(item) == top for item in stale) or (visible and not alone):
        top, writes = top + 1, list(desired)
    else:
        writes = [item for item in desired if item in missing or item in changed]
    return PoolWrites(max(top, 1), tuple(_at(item, max(top, 1)) for item in writes), stale)


def is_current(desired: Object, stored: Object, accepted: Accepted | None, generation: int) -> bool:
    """Whether the stored slice has the desired content at this generation."""
    pool = stored["spec"]["pool"]
    if pool.get("generation") != generation or pool.get("resourceSliceCount") != _count(desired):
        return False
    if not owners(desired) <= owners(stored):
        return False
    if desired["spec"].get("sharedCounters") != stored["spec"].get("sharedCounters"):
        return False
    devices, found = devices_of(desired), devices_of(stored)
    return devices == found or (accepted is not None and devices == accepted.sent and found == accepted.stored)


def merged(desired: Object, stored: Object) -> Object:
    """``desired`` as a replacement of ``stored``: keeps labels of others and timeAdded of taints."""
    added = {
        (device["name"], taint["key"], taint.get("value", ""), taint["effect"]): taint["timeAdded"]
        for device in stored["spec"].get("devices") or ()
        for taint in device.get("taints") or ()
        if taint.get("timeAdded")
    }
    metadata = {key: value for key, value in stored["metadata"].items() if key != "managedFields"}
    spec = dict(desired["spec"])
    if "devices" in spec:
        spec["devices"] = [_with_times(device, added) for device in spec["devices"]]
    return {**desired, "metadata": metadata | desired["metadata"], "spec": spec}


def name_of(item: Object) -> str:
    return str(item["metadata"]["name"])


def generation_of(item: Object) -> int:
    """The pool generation a slice belongs to."""
    return int(item["spec"]["pool"].get("generation") or 0)


def owners(item: Object) -> set[str]:
    return {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()}


def devices_of(item: Object) -> list[Object]:
    """A slice's devices without fields that the server adds."""
    return [_without_times(device) for device in item["spec"].get("devices") or ()]


def _count(item: Object) -> int:
    return int(item["spec"]["pool"]["resourceSliceCount"])


def _at(item: Object, generation: int) -> Object:
    spec = item["spec"]
    return {**item, "spec": {**spec, "pool": {**spec["pool"], "generation": generation}}}


def _without_times(device: Object) -> Object:
    if not device.get("taints"):
        return device
    taints = [{key: value for key, value in taint.items() if key != "timeAdded"} for taint in device["taints"]]
    return {**device, "taints": taints}


def _with_times(device: Object, added: Mapping[tuple[str, str, str, str], str]) -> Object:
    if not device.get("taints"):
        return device
    keys = [(device["name"], taint["key"], taint.get("value", ""), taint["effect"]) for taint in device["taints"]]
    taints = [
        {**taint, "timeAdded": added[key]} if key in added else taint
        for taint, key in zip(device["taints"], keys, strict=True)
    ]
    return {**device, "taints": taints}
