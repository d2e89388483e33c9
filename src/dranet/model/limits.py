"""The API server's limits on ResourceSlices, checked here before anything is sent.

One over-long string makes the server refuse a whole slice, and with it every card of the node. So each device is held
against the limits first, and what breaks one is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from dranet.model.device import Device, Version, attribute_kind
from dranet.model.errors import Problem
from dranet.model.names import is_dns_label

DEVICES_PER_SLICE = 128
DEVICES_PER_SLICE_WITH_EXTRAS = 64
"""The limit for a slice in which any device has taints, counters or list attributes."""
ATTRIBUTES_PER_DEVICE = 32
ATTRIBUTE_VALUES_PER_DEVICE = 48
STRING_BYTES = 64
IDENTIFIER_CHARS = 32
DOMAIN_CHARS = 63
TAINTS_PER_DEVICE = 16
COUNTER_SETS_PER_SLICE = 8
INT64 = range(-(2**63), 2**63)
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


def needs_smaller_slice(device: Device) -> bool:
    """Whether this device lowers its slice's limit from 128 to 64 devices."""
    extras = device.taints or device.consumes
    return bool(extras) or any(isinstance(value, tuple) for value in device.attributes.values())


def device_problems(device: Device) -> list[Problem]:
    """Everything about this device that an API server would refuse."""
    return list(_device_problems(device))


def slice_problems(devices: Iterable[Device]) -> list[Problem]:
    """Everything about these devices, as the content of one slice, that an API server would refuse."""
    found = list(devices)
    problems = [
        Problem(f"devices[{i}].{p.path}" if p.path else f"devices[{i}]", p.message)
        for i, d in enumerate(found)
        for p in _device_problems(d)
    ]
    limit = DEVICES_PER_SLICE_WITH_EXTRAS if any(map(needs_smaller_slice, found)) else DEVICES_PER_SLICE
    if len(found) > limit:
        problems.append(Problem("devices", f"{len(found)} devices, a slice like this takes at most {limit}"))
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
    if values > ATTRIBUTE_VALUES_PER_DEVICE:
        yield Problem("attributes", f"{values} attribute values, at most {ATTRIBUTE_VALUES_PER_DEVICE} are allowed")
    for key, value in device.attributes.items():
        for words in (*_name_problems(key), *_value_problems(value)):
            yield Problem(f"attributes[{key}]", words)
    for key, quantity in device.capacity.items():
        for words in _name_problems(key):
            yield Problem(f"capacity[{key}]", words)
        if not _QUANTITY.fullmatch(quantity):
            yield Problem(f"capacity[{key}]", f"{quantity!r} is not a quantity such as 400G or 16Gi")
    yield from _taint_problems(device)


@lru_cache(maxsize=512)
def _name_problems(key: str) -> tuple[str, ...]:
    """Remembered: thousands of devices share a few dozen names."""
    problems = []
    domain, slash, identifier = key.rpartition("/")
    if slash and (len(domain) > DOMAIN_CHARS or not _SUBDOMAIN.fullmatch(domain.lower())):
        problems.append(f"{domain!r} is not a DNS subdomain of at most {DOMAIN_CHARS} characters")
    if len(identifier) > IDENTIFIER_CHARS or not _IDENTIFIER.fullmatch(identifier):
        problems.append(f"{identifier!r} is not an identifier of at most {IDENTIFIER_CHARS} characters")
    return tuple(problems)


def _value_problems(value: object) -> list[str]:
    if value is True or value is False or (type(value) is str and len(value) <= STRING_BYTES and value.isascii()):
        return []  # nearly all there are
    if isinstance(value, tuple):
        return [words for item in value for words in _item_problems(item)] or ([] if value else ["is an empty list"])
    return list(_item_problems(value))


def _item_problems(item: object) -> Iterator[str]:
    try:
        kind = attribute_kind(item)
    except TypeError as error:
        yield str(error)
        return
    if kind == "int" and item not in INT64:
        yield f"{item} does not fit 64 bits"
    if isinstance(item, str) and len(item.encode("utf-8", "surrogatepass")) > STRING_BYTES:
        yield f"{item!r} is longer than {STRING_BYTES} bytes"
    if isinstance(item, Version) and not _SEMVER.fullmatch(item):
        yield f"{str(item)!r} is not a semantic version such as 1.2.3"
    if isinstance(item, str) and not _is_clean_text(item):
        yield f"{item!r} is not valid UTF-8 text"


def _taint_problems(device: Device) -> Iterator[Problem]:
    if len(device.taints) > TAINTS_PER_DEVICE:
        yield Problem("taints", f"{len(device.taints)} taints, at most {TAINTS_PER_DEVICE} are allowed")
    for i, taint in enumerate(device.taints):
        prefix, slash, name = taint.key.rpartition("/")
        if not (_LABEL_NAME.fullmatch(name) and len(name) <= 63) or (slash and not _SUBDOMAIN.fullmatch(prefix)):
            yield Problem(f"taints[{i}].key", f"{taint.key!r} is not a label name such as dra.net/link-down")
        if taint.value and not (_LABEL_NAME.fullmatch(taint.value) and len(taint.value) <= 63):
            yield Problem(f"taints[{i}].value", f"{taint.value!r} is not a label value")
        if taint.effect not in TAINT_EFFECTS:
            yield Problem(f"taints[{i}].effect", f"{taint.effect!r} is none of {', '.join(TAINT_EFFECTS)}")


def _is_clean_text(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
