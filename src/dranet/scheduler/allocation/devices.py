"""Slices and devices as the search uses them, read once from v1 JSON.

A `Device` also caches what never changes about it: selector results, attribute lookups, and the consumption of a
capacity request. All claims, pods and nodes share the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from dranet.core.errors import InvalidInput, Problem
from dranet.core.quantity import parse_quantity
from dranet.scheduler.allocation.capacity import Capacity, read_capacity
from dranet.scheduler.allocation.selectors import DeviceInput, device_input
from dranet.scheduler.taints import read_taints

DeviceId = tuple[str, str, str]
PoolId = tuple[str, str]
AttributeValue = frozenset[tuple[str, Any]]
"""Elements with their type; empty for a value that cannot be compared."""
CounterKey = tuple[str, str]
_KINDS = ("string", "int", "bool", "version")
NO_GROUPS = frozenset({""})
"""The compatibility groups of a device that has none."""


class Device:
    """One device of one slice."""

    __slots__ = (
        "_attributes", "_input", "binds_to_node", "capacity", "consumption", "counters", "derived", "groups",
        "has_binding", "id", "multi", "owner", "raw", "selector_outcomes", "taints",
    )  # fmt: skip

    def __init__(self, raw: Mapping[str, Any], owner: Slice) -> None:
        self.raw = raw
        self.owner = owner
        self.id: DeviceId = (owner.driver, owner.pool, raw["name"])
        self.multi = bool(raw.get("allowMultipleAllocations"))
        self.has_binding = raw.get("bindingConditions") is not None
        self.binds_to_node = bool(raw.get("bindsToNode"))
        self.taints = read_taints(raw.get("taints"))
        self.capacity: dict[str, Capacity] = {
            name: read_capacity(entry) for name, entry in (raw.get("capacity") or {}).items()
        }
        self.counters = _counters(raw)
        self.groups = _groups(raw)
        self.selector_outcomes: dict[Any, Any] = {}
        self.consumption: dict[Any, Any] = {}
        self.derived: dict[str, AttributeValue | str] = {}
        """Derived attributes by expression: the value, or the error."""
        self._attributes: dict[tuple[str, bool], AttributeValue | None] = {}
        self._input: DeviceInput | None = None

    @property
    def input(self) -> DeviceInput:
        """The `device` variable of selectors."""
        if self._input is None:
            self._input = device_input(self.owner.driver, self.raw)
        return self._input

    def attribute(self, name: str, *, lists: bool) -> AttributeValue | None:
        """The value of a fully qualified attribute, as constraints look it up: literally first, then by bare name."""
        if (name, lists) not in self._attributes:
            self._attributes[name, lists] = self._find_attribute(name, lists)
        return self._attributes[name, lists]

    def _find_attribute(self, name: str, lists: bool) -> AttributeValue | None:
        attributes = self.raw.get("attributes") or {}
        found = attributes.get(name)
        if found is None:
            domain, slash, bare = name.partition("/")
            found = attributes.get(bare) if slash and domain == self.owner.driver else None
        if found is None:
            return None
        for kind in _KINDS if lists else ():
            if elements := found.get(f"{kind}s"):
                return frozenset((kind, element) for element in elements)
        return frozenset((kind, found[kind]) for kind in _KINDS if found.get(kind) is not None)


def _groups(raw: Mapping[str, Any]) -> tuple[tuple[str, frozenset[str]], ...]:
    """By counter set, the compatibility groups. A device without groups goes only with others without."""
    return tuple(
        (consumed["counterSet"], frozenset(consumed.get("compatibilityGroups") or ()) or NO_GROUPS)
        for consumed in raw.get("consumesCounters") or ()
    )


def _counters(raw: Mapping[str, Any]) -> tuple[tuple[CounterKey, Fraction], ...]:
    return tuple(
        ((consumed["counterSet"], name), parse_quantity(str(counter["value"])).value)
        for consumed in raw.get("consumesCounters") or ()
        for name, counter in sorted((consumed.get("counters") or {}).items())
    )


class Slice:
    """One ResourceSlice."""

    __slots__ = (
        "_devices", "_raw", "all_nodes", "count", "counter_sets", "driver", "generation", "name", "node_name",
        "node_selector", "per_device", "pool", "skips",
    )  # fmt: skip

    def __init__(self, raw: Mapping[str, Any]) -> None:
        spec = raw["spec"]
        self.name: str = raw["metadata"]["name"]
        self.driver: str = spec["driver"]
        self.pool: str = spec["pool"]["name"]
        self.generation: int = spec["pool"].get("generation", 0)
        self.count: int = spec["pool"].get("resourceSliceCount", 1)
        self.node_name: str | None = spec.get("nodeName")
        self.all_nodes = bool(spec.get("allNodes"))
        self.node_selector: Mapping[str, Any] | None = spec.get("nodeSelector")
        self.per_device: bool | None = spec.get("perDeviceNodeSelection")
        self.skips: Sequence[str] = spec.get("skipNodeOperations") or ()
        self.counter_sets: list[tuple[str, dict[str, Fraction]]] = [
            (
                entry["name"],
                {name: parse_quantity(str(one["value"])).value for name, one in (entry.get("counters") or {}).items()},
            )
            for entry in spec.get("sharedCounters") or ()
        ]
        self._raw = raw
        self._devices: list[Device] | None = None

    @property
    def devices(self) -> list[Device]:
        """Read on first use: of ten thousand equivalent nodes, only one is used."""
        if self._devices is None:
            with in_v1_shape("ResourceSlice", self._raw):
                self._devices = [Device(device, self) for device in self._raw["spec"].get("devices") or ()]
        return self._devices

    @property
    def has_compatibility_groups(self) -> bool:
        """Whether some device declares compatibility groups. Reads the raw slice: most slices are never used."""
        return any(
            consumed.get("compatibilityGroups")
            for device in self._raw["spec"].get("devices") or ()
            for consumed in device.get("consumesCounters") or ()
        )

    @property
    def pool_id(self) -> PoolId:
        return self.driver, self.pool


def read_slice(raw: Mapping[str, Any]) -> Slice:
    """From a v1 ResourceSlice; raises InvalidInput with the slice's name and the problem."""
    with in_v1_shape("ResourceSlice", raw):
        return Slice(raw)


@contextmanager
def in_v1_shape(kind: str, raw: Any) -> Iterator[None]:
    """Turn a missing or mistyped field into InvalidInput with the object's name."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unreadable(kind, raw, error) from error


def _unreadable(kind: str, raw: Any, error: Exception) -> InvalidInput:
    meta = raw.get("metadata") if isinstance(raw, Mapping) else None
    name = meta.get("name", "without a name") if isinstance(meta, Mapping) else "without a name"
    what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
    return InvalidInput([Problem(f"{kind} {name}", f"{what}; expected the shape of resource.k8s.io/v1")])
