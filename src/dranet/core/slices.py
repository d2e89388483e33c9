"""ResourceSlices: built from a node's devices, and checked against the API server's limits.

Pure functions: the publisher sends the result, `dranet inventory -o yaml` prints it, and machine shapes are planned
with it. kube-scheduler tries slices by name and devices in their order, so the index in a slice's name keeps our device
order across slices. Counter sets have slices of their own after the others, because the API allows either devices or
counter sets in a slice.

One over-long string makes the API server refuse a whole slice with all devices in it. So each device is checked first.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from dranet.core.device import SLOTS, Device, Version, attribute_kind
from dranet.core.errors import Problem
from dranet.core.names import DRIVER_NAME, is_dns_label

_NAME_MAX = 253
DEVICES_PER_SLICE = 128
DEVICES_PER_SLICE_WITH_EXTRAS = 64
"""The limit for a slice in which any device has taints, counters or list attributes."""
ATTRIBUTES_PER_DEVICE = 32
_ATTRIBUTE_VALUES_PER_DEVICE = 48
STRING_BYTES = 64
_IDENTIFIER_CHARS = 32
_DOMAIN_CHARS = 63
_TAINTS_PER_DEVICE = 16
COUNTER_SETS_PER_SLICE = 8
_INT64 = range(-(2**63), 2**63)
TAINT_EFFECTS = ("NoSchedule", "NoExecute", "None")

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[kMGTPE]i?|Ki|[num]|[eE][+-]?\d+)?")
_SEMVER = re.compile(
    r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)"
    r"(?:-(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)(?:\.(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*))*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)


def chunks(devices: Sequence[Device]) -> list[list[Device]]:
    """The devices in order, in as few slices as the API's limits allow; at least one, possibly empty."""
    limit = DEVICES_PER_SLICE_WITH_EXTRAS if any(map(needs_smaller_slice, devices)) else DEVICES_PER_SLICE
    return [list(devices[start : start + limit]) for start in range(0, max(len(devices), 1), limit)]


def _counter_sets(devices: Sequence[Device]) -> list[dict[str, Any]]:
    """The counter sets of these devices, each as large as its largest consumer."""
    sizes: dict[str, int] = {}
    for device in devices:
        for name, slots in device.consumes.items():
            sizes[name] = max(slots, sizes.get(name, 0))
    return [{"name": name, "counters": {SLOTS: {"value": str(sizes[name])}}} for name in sorted(sizes)]


def slice_name(index: int, node: str, driver: str = DRIVER_NAME) -> str:
    """``00001-dra.net-<node>``. Fixed, so that a restarted driver finds its slices; shortened by a hash if too long."""
    name = f"{index:05x}-{driver}-{node}"
    if len(name) <= _NAME_MAX:
        return name
    digest = hashlib.sha256(node.encode()).hexdigest()[:16]
    return f"{name[: _NAME_MAX - 17]}-{digest}"


def resource_slices(
    devices: Sequence[Device],
    *,
    node: str,
    driver: str = DRIVER_NAME,
    generation: int = 1,
    node_uid: str | None = None,
) -> list[dict[str, Any]]:
    """The complete pool of one node as v1 ResourceSlice objects."""
    sets = _counter_sets(devices)
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


def needs_smaller_slice(device: Device) -> bool:
    """Whether this device reduces its slice's limit from 128 to 64 devices."""
    extras = device.taints or device.consumes
    return bool(extras) or any(isinstance(value, tuple) for value in device.attributes.values())


def device_problems(device: Device) -> list[Problem]:
    """Every reason for an API server to refuse this device."""
    return list(_device_problems(device))


def slice_problems(devices: Iterable[Device]) -> list[Problem]:
    """Every reason for an API server to refuse a slice with these devices."""
    found = list(devices)
    problems = [
        Problem(f"devices[{i}].{p.path}" if p.path else f"devices[{i}]", p.message)
        for i, d in enumerate(found)
        for p in _device_problems(d)
    ]
    limit = DEVICES_PER_SLICE_WITH_EXTRAS if any(map(needs_smaller_slice, found)) else DEVICES_PER_SLICE
    if len(found) > limit:
        problems.append(Problem("devices", f"{len(found)} devices, at most {limit} are allowed in this slice"))
    names = [d.name for d in found]
    problems += [
        Problem("devices", f"two devices are named {n!r}") for n in sorted({n for n in names if names.count(n) > 1})
    ]
    return problems


def _device_problems(device: Device) -> Iterator[Problem]:
    if not is_dns_label(device.name):
        yield Problem("name", f"{device.name!r} is not a DNS label of at most 63 characters")
    total = len(device.attributes) + len(device.capacity)
    if total > ATTRIBUTES_PER_DEVICE:
        yield Problem("attributes", f"{total} attributes and capacities, at most {ATTRIBUTES_PER_DEVICE} are allowed")
    values = sum(len(v) if isinstance(v, tuple) else 1 for v in device.attributes.values())
    if values > _ATTRIBUTE_VALUES_PER_DEVICE:
        yield Problem("attributes", f"{values} attribute values, at most {_ATTRIBUTE_VALUES_PER_DEVICE} are allowed")
    for key, value in device.attributes.items():
        for message in (*_name_problems(key), *_value_problems(value)):
            yield Problem(f"attributes[{key}]", message)
    for key, quantity in device.capacity.items():
        for message in _name_problems(key):
            yield Problem(f"capacity[{key}]", message)
        if not _QUANTITY.fullmatch(quantity):
            yield Problem(f"capacity[{key}]", f"{quantity!r} is not a quantity such as 400G or 16Gi")
    yield from _taint_problems(device)


@lru_cache(maxsize=512)
def _name_problems(key: str) -> tuple[str, ...]:
    """Cached: thousands of devices share a few dozen names."""
    problems = []
    domain, slash, identifier = key.rpartition("/")
    if slash and (len(domain) > _DOMAIN_CHARS or not _SUBDOMAIN.fullmatch(domain.lower())):
        problems.append(f"{domain!r} is not a DNS subdomain of at most {_DOMAIN_CHARS} characters")
    if len(identifier) > _IDENTIFIER_CHARS or not _IDENTIFIER.fullmatch(identifier):
        problems.append(f"{identifier!r} is not an identifier of at most {_IDENTIFIER_CHARS} characters")
    return tuple(problems)


def _value_problems(value: object) -> list[str]:
    if value is True or value is False or (type(value) is str and len(value) <= STRING_BYTES and value.isascii()):
        return []  # fast path: nearly all values
    if isinstance(value, tuple):
        problems = [message for item in value for message in _item_problems(item)]
        return problems if value else ["is an empty list"]
    return list(_item_problems(value))


def _item_problems(item: object) -> Iterator[str]:
    try:
        kind = attribute_kind(item)
    except TypeError as error:
        yield str(error)
        return
    if kind == "int" and item not in _INT64:
        yield f"{item} does not fit into 64 bits"
    if isinstance(item, str) and len(item.encode("utf-8", "surrogatepass")) > STRING_BYTES:
        yield f"{item!r} is longer than {STRING_BYTES} bytes"
    if isinstance(item, Version) and not _SEMVER.fullmatch(item):
        yield f"{str(item)!r} is not a semantic version such as 1.2.3"
    if isinstance(item, str) and not _is_clean_text(item):
        yield f"{item!r} is not valid UTF-8 text"


def _taint_problems(device: Device) -> Iterator[Problem]:
    if len(device.taints) > _TAINTS_PER_DEVICE:
        yield Problem("taints", f"{len(device.taints)} taints, at most {_TAINTS_PER_DEVICE} are allowed")
    for i, taint in enumerate(device.taints):
        prefix, slash, name = taint.key.rpartition("/")
        if not (_LABEL_NAME.fullmatch(name) and len(name) <= 63) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
            yield Problem(f"taints[{i}].key", f"{taint.key!r} is not a label name such as dra.net/link-down")
        if taint.value and not (_LABEL_NAME.fullmatch(taint.value) and len(taint.value) <= 63):
            yield Problem(f"taints[{i}].value", f"{taint.value!r} is not a label value")
        if taint.effect not in TAINT_EFFECTS:
            yield Problem(f"taints[{i}].effect", f"{taint.effect!r} is not one of {', '.join(TAINT_EFFECTS)}")


def _is_clean_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
