"""What to write so that a node's pool becomes what it should be, decided without input or output.

kube-scheduler looks only at the slices of the highest generation and uses the pool once as many of them exist as each
says there are. So one slice that differs may be replaced in place (one write, atomic), slices that are missing may be
put back, and everything else is written as a new generation, which stays invisible until it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Object = dict[str, Any]


class Accepted(msgspec.Struct, frozen=True):
    """What a server made of what we sent: older ones drop fields they do not know, all of them tidy quantities."""

    sent: Sequence[Object]
    stored: Sequence[Object]


class PoolWrites(msgspec.Struct, frozen=True):
    """Slices to write at ``generation``, then slices to delete."""

    generation: int
    writes: tuple[Object, ...] = ()
    deletes: tuple[Object, ...] = ()

    @property
    def done(self) -> bool:
        """Nothing to do: the server holds what it should."""
        return not self.writes and not self.deletes


def plan(
    wanted: Sequence[Object],
    observed: Mapping[str, Object],
    accepted: Mapping[str, Accepted],
    known_generation: int = 0,
) -> PoolWrites:
    """The next writes towards ``wanted`` (any generation), given every slice of this pool the server has now."""
    top = max([known_generation, *map(generation_of, observed.values())])
    names = {name_of(item) for item in wanted}
    missing = [item for item in wanted if name_of(item) not in observed]
    changed = [
        item
        for item in wanted
        if name_of(item) in observed and not fits(item, observed[name_of(item)], accepted.get(name_of(item)), top)
    ]
    stale = tuple(observed[name] for name in sorted(observed) if name not in names)
    visible = [item for item in changed if generation_of(observed[name_of(item)]) == top]
    alone = len(changed) == 1 and not missing and not stale
    if any(generation_of(item) == top for item in stale) or (visible and not alone):
        top, writes = top + 1, list(wanted)
    else:
        writes = [item for item in wanted if item in missing or item in changed]
    return PoolWrites(max(top, 1), tuple(_at(item, max(top, 1)) for item in writes), stale)


def fits(wanted: Object, stored: Object, accepted: Accepted | None, generation: int) -> bool:
    """Whether the server's slice says what it should, at this generation."""
    pool = stored["spec"]["pool"]
    if pool.get("generation") != generation or pool.get("resourceSliceCount") != _count(wanted):
        return False
    if not owners(wanted) <= owners(stored):
        return False
    if wanted["spec"].get("sharedCounters") != stored["spec"].get("sharedCounters"):
        return False
    devices, found = devices_of(wanted), devices_of(stored)
    return devices == found or (accepted is not None and devices == accepted.sent and found == accepted.stored)


def merged(wanted: Object, stored: Object) -> Object:
    """``wanted`` as a replacement of ``stored``: others' labels stay, and so does the time a taint was first added."""
    added = {
        (device["name"], taint["key"], taint.get("value", ""), taint["effect"]): taint["timeAdded"]
        for device in stored["spec"].get("devices") or ()
        for taint in device.get("taints") or ()
        if taint.get("timeAdded")
    }
    metadata = {key: value for key, value in stored["metadata"].items() if key != "managedFields"}
    spec = dict(wanted["spec"])
    if "devices" in spec:
        spec["devices"] = [_with_times(device, added) for device in spec["devices"]]
    return {**wanted, "metadata": metadata | wanted["metadata"], "spec": spec}


def name_of(item: Object) -> str:
    """The object's name."""
    return str(item["metadata"]["name"])


def generation_of(item: Object) -> int:
    """The pool generation a slice belongs to."""
    return int(item["spec"]["pool"].get("generation") or 0)


def owners(item: Object) -> set[str]:
    """UIDs of the owners."""
    return {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()}


def devices_of(item: Object) -> list[Object]:
    """A slice's devices without what the server adds by itself."""
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
