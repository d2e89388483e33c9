"""From a node's devices to its ResourceSlices.

Pure: the publisher sends what this makes, `dranet inventory -o yaml` prints it, machine shapes are planned with it.
kube-scheduler tries slices by name and devices in the order they stand, so the index in a slice's name carries our
device order over slice borders. Counter sets, in which devices that exclude each other are counted, stand in slices of
their own behind the others: the API wants one or the other in a slice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from dranet.model.device import SLOTS, Device
from dranet.model.limits import (
    COUNTER_SETS_PER_SLICE,
    DEVICES_PER_SLICE,
    DEVICES_PER_SLICE_WITH_EXTRAS,
    needs_smaller_slice,
)
from dranet.model.names import DRIVER_NAME

NAME_MAX = 253


def chunks(devices: Sequence[Device]) -> list[list[Device]]:
    """The devices in order, cut into as few slices as the API's limits allow; at least one, possibly empty."""
    limit = DEVICES_PER_SLICE_WITH_EXTRAS if any(map(needs_smaller_slice, devices)) else DEVICES_PER_SLICE
    return [list(devices[start : start + limit]) for start in range(0, max(len(devices), 1), limit)]


def counter_sets(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """The sets that these devices are counted in, each as large as its largest consumer."""
    sizes: dict[str, int] = {}
    for device in devices:
        for name, slots in device.consumes.items():
            sizes[name] = max(slots, sizes.get(name, 0))
    return [{"name": name, "counters": {SLOTS: {"value": str(sizes[name])}}} for name in sorted(sizes)]


def slice_name(index: int, node: str, driver: str = DRIVER_NAME) -> str:
    """``00001-dra.net-<node>``: fixed, so that a restart finds its own slices again; hashed where too long."""
    name = f"{index:05x}-{driver}-{node}"
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:16]
    return f"{name[: NAME_MAX - 17]}-{digest}"


def resource_slices(
    devices: Sequence[Device],
    *,
    node: str,
    driver: str = DRIVER_NAME,
    generation: int = 1,
    node_uid: str | None = None,
) -> list[dict[str, Any]]:
    """The complete pool of one node as v1 ResourceSlice objects."""
    sets = counter_sets(devices)
    parts: list[dict[str, Any]] = [{"devices": [device.to_api() for device in part]} for part in chunks(devices)]
    parts += [
        {"sharedCounters": sets[start : start + COUNTER_SETS_PER_SLICE]}
        for start in range(0, len(sets), COUNTER_SETS_PER_SLICE)
    ]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": _metadata(slice_name(index, node, driver), node, node_uid),
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": len(parts)},
                **part,
            },
        }
        for index, part in enumerate(parts)
    ]


def _metadata(name: str, node: str, node_uid: str | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    if node_uid is not None:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
        metadata["ownerReferences"] = [owner]
    return metadata
