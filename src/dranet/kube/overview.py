"""Who has which card: slices and claims of a whole cluster, put side by side. Pure.

Pages of them may be given one after the other, and of each only what the answer needs is kept: a cluster has more
devices than fit in the memory of who only wants to know how many are in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dranet.model.device import Device, Taint
from dranet.model.names import DRIVER_NAME

Object = Mapping[str, Any]
DeviceKey = tuple[str, str]


class Use(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One claim that holds a device."""

    claim: str
    request: str = ""
    pods: tuple[str, ...] = ()
    ready: bool | None = None
    """None where the driver has not said anything yet."""
    message: str = ""
    share: Mapping[str, str] = {}
    """How much of the device's capacities it has; empty where it has the device to itself."""


class DeviceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one node and everything worth knowing about it."""

    node: str
    device: str
    attributes: Mapping[str, Any] = {}
    capacity: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    published: bool = True
    used_by: tuple[Use, ...] = ()


class PoolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One node's pool: whether the scheduler can use it, and how much of it is used."""

    node: str
    generation: int
    slices: int
    expected_slices: int
    devices: int
    used: int
    tainted: int

    @property
    def complete(self) -> bool:
        """Whether every slice of the newest generation is there; the scheduler uses nothing of an incomplete pool."""
        return self.slices == self.expected_slices


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's pools and devices of one driver, sorted."""

    pools: tuple[PoolLine, ...]
    devices: tuple[DeviceLine, ...]


def overview(slices: Iterable[Object], claims: Iterable[Object], *, driver: str = DRIVER_NAME) -> Overview:
    """What is published, in use, tainted, and by whom."""
    gathering = Gathering(driver)
    gathering.add_claims(claims)
    gathering.add_slices(slices)
    return gathering.overview()


class Gathering:
    """An overview in the making. Claims come first: what they hold is looked for in the slices."""

    def __init__(self, driver: str = DRIVER_NAME, *, in_use: bool = False, room: int | None = None) -> None:
        """``in_use``: only devices that are get a line. ``room``: no more lines than this; where there are more devices
        those that are neither in use nor tainted have none first. All are counted."""
        self._driver, self._in_use, self._room = driver, in_use, room
        self._lines = 0
        self._crowded = self._full = False
        self._used: dict[DeviceKey, list[Use]] = {}
        self._pools: dict[str, _Pool] = {}

    def add_claims(self, claims: Iterable[Object]) -> None:
        """A page of claims."""
        for claim in claims:
            for key, use in _uses(claim, self._driver):
                self._used.setdefault(key, []).append(use)

    def add_slices(self, slices: Iterable[Object]) -> None:
        """A page of slices, in any order."""
        for item in slices:
            if item["spec"].get("driver") == self._driver:
                self._add(item["spec"])

    def overview(self) -> Overview:
        """Everything that was given."""
        found = [line for pool in self._pools.values() for line in pool.lines]
        published = {(name, device) for name, pool in self._pools.items() for device in pool.used}
        gone = [
            DeviceLine(node=node, device=name, published=False, used_by=tuple(sorted(uses)))
            for (node, name), uses in self._used.items()
            if (node, name) not in published
        ]
        lines = sorted([*found, *gone], key=lambda line: (line.node, line.device))
        lost = Counter(line.node for line in gone)
        pools = (self._pools[name].line(name, lost[name]) for name in sorted(self._pools))
        return Overview(pools=tuple(pools), devices=tuple(lines))

    def _add(self, spec: Object) -> None:
        """Only the newest generation of a pool counts."""
        generation = spec["pool"]["generation"]
        pool = self._pools.get(spec["pool"]["name"])
        if pool is None or generation > pool.generation:
            pool = self._pools[spec["pool"]["name"]] = _Pool(generation, spec["pool"]["resourceSliceCount"])
        if generation < pool.generation:
            return
        pool.slices += 1
        for raw in spec.get("devices") or ():
            uses = self._used.get((spec["pool"]["name"], raw["name"]), ())
            pool.count(raw, bool(uses))
            if self._gets_line(raw, bool(uses)):
                pool.lines.append(_line(spec["pool"]["name"], Device.from_api(raw), tuple(sorted(uses))))
                self._lines += 1
                self._make_room()

    def _gets_line(self, raw: Object, used: bool) -> bool:
        if self._full or (self._in_use and not used):
            return False
        return used or bool(raw.get("taints")) or not self._crowded

    def _make_room(self) -> None:
        if self._room is None or self._lines <= self._room:
            return
        for pool in self._pools.values():
            pool.lines = [line for line in pool.lines if line.used_by or line.taints]
        self._lines = sum(len(pool.lines) for pool in self._pools.values())
        self._full = self._crowded or self._lines > self._room
        self._crowded = True


@dataclass(slots=True)
class _Pool:
    generation: int
    expected_slices: int
    slices: int = 0
    devices: int = 0
    tainted: int = 0
    used: list[str] = field(default_factory=list)
    lines: list[DeviceLine] = field(default_factory=list)

    def count(self, raw: Object, in_use: bool) -> None:
        self.devices += 1
        self.tainted += bool(raw.get("taints"))
        if in_use:
            self.used.append(raw["name"])

    def line(self, name: str, gone: int) -> PoolLine:
        """``gone``: devices that are held and not published any more."""
        return PoolLine(
            node=name,
            generation=self.generation,
            slices=self.slices,
            expected_slices=self.expected_slices,
            devices=self.devices,
            used=len(self.used) + gone,
            tainted=self.tainted,
        )


def _uses(claim: Object, driver: str) -> Iterator[tuple[DeviceKey, Use]]:
    status = claim.get("status") or {}
    said = {_said_of(item): item for item in status.get("devices") or ()}
    for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
        if result["driver"] == driver:
            entry = said.get(_said_of(result))
            yield (result["pool"], result["device"]), _use(claim, result, entry)


def _said_of(item: Object) -> tuple[str, ...]:
    """A claim may have two shares of one device."""
    return item["driver"], item["pool"], item["device"], item.get("shareID") or ""


def _use(claim: Object, result: Object, entry: Object | None) -> Use:
    conditions = (entry or {}).get("conditions") or ()
    bad = [item for item in conditions if item["status"] == "False"]
    return Use(
        claim=f"{claim['metadata'].get('namespace', '')}/{claim['metadata']['name']}",
        request=result.get("request", ""),
        pods=tuple(sorted(item["name"] for item in (claim["status"].get("reservedFor") or ()))),
        ready=not bad if conditions else None,
        message="; ".join(f"{item['type']}: {item.get('message') or item['reason']}" for item in bad),
        share=dict(result.get("consumedCapacity") or {}) if result.get("shareID") else {},
    )


def _line(node: str, device: Device, used_by: tuple[Use, ...]) -> DeviceLine:
    return DeviceLine(
        node=node,
        device=device.name,
        attributes=device.attributes,
        capacity=device.capacity,
        taints=device.taints,
        used_by=used_by,
    )
