"""Slices and devices as the search works with them, read once from v1 JSON.

A `Device` also carries what never changes about it: selector verdicts, attribute look-ups, and what a capacity request
would consume. They are computed when first needed and shared by all claims, pods and nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from dranet.allocation.capacity import Capacity, read_capacity
from dranet.allocation.selectors import DeviceInput, device_input
from dranet.model.errors import InvalidInput, Problem
from dranet.model.quantity import parse_quantity

DeviceId = tuple[str, str, str]
PoolId = tuple[str, str]
AttributeValue = tuple[str, Any]
CounterKey = tuple[str, str]
_KINDS = ("string", "int", "bool", "version")


class Device:
    """One device of one slice."""

    __slots__ = (
        "_attributes", "_input", "binds_to_node", "capacity", "consumption", "counters", "has_binding", "id", "multi",
        "owner", "raw", "taints", "verdicts",
    )  # fmt: skip

    def __init__(self, raw: Mapping[str, Any], owner: Slice) -> None:
        self.raw = raw
        self.owner = owner
        self.id: DeviceId = (owner.driver, owner.pool, raw["name"])
        self.multi = bool(raw.get("allowMultipleAllocations"))
        self.has_binding = raw.get("bindingConditions") is not None
        self.binds_to_node = bool(raw.get("bindsToNode"))
        self.taints: tuple[Mapping[str, Any], ...] = tuple(raw.get("taints") or ())
        self.capacity: dict[str, Capacity] = {
            name: read_capacity(entry) for name, entry in (raw.get("capacity") or {}).items()
        }
        self.counters = _counters(raw)
        self.verdicts: dict[Any, Any] = {}
        self.consumption: dict[Any, Any] = {}
        self._attributes: dict[str, AttributeValue | None] = {}
        self._input: DeviceInput | None = None

    @property
    def input(self) -> DeviceInput:
        """The `device` variable of selectors."""
        if self._input is None:
            self._input = device_input(self.owner.driver, self.raw)
        return self._input

    def attribute(self, name: str) -> AttributeValue | None:
        """Value of a fully qualified attribute, as constraints look it up: literally first, then by bare name."""
        if name not in self._attributes:
            self._attributes[name] = self._find_attribute(name)
        return self._attributes[name]

    def _find_attribute(self, name: str) -> AttributeValue | None:
        attributes = self.raw.get("attributes") or {}
        found = attributes.get(name)
        if found is None:
            domain, slash, bare = name.partition("/")
            found = attributes.get(bare) if slash and domain == self.owner.driver else None
        if found is None:
            return None
        for kind in _KINDS:
            if found.get(kind) is not None:
                return kind, found[kind]
        return "other", None


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
        "node_selector", "per_device", "pool",
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
        """Read when somebody looks: of ten thousand nodes that are alike, one is looked at."""
        if self._devices is None:
            with in_v1_shape("ResourceSlice", self._raw):
                self._devices = [Device(device, self) for device in self._raw["spec"].get("devices") or ()]
        return self._devices

    @property
    def pool_id(self) -> PoolId:
        return self.driver, self.pool


def read_slice(raw: Mapping[str, Any]) -> Slice:
    """A ResourceSlice in v1 shape; raises InvalidInput naming the slice and what is wrong with it."""
    with in_v1_shape("ResourceSlice", raw):
        return Slice(raw)


@contextmanager
def in_v1_shape(kind: str, raw: Any) -> Iterator[None]:
    """Who finds a field missing or of another type there says which object it is."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unreadable(kind, raw, error) from error


def _unreadable(kind: str, raw: Any, error: Exception) -> InvalidInput:
    """An object that is not in v1 shape."""
    meta = raw.get("metadata") if isinstance(raw, Mapping) else None
    name = meta.get("name", "without a name") if isinstance(meta, Mapping) else "without a name"
    what = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
    return InvalidInput([Problem(f"{kind} {name}", f"{what}; expected the shape of resource.k8s.io/v1")])
