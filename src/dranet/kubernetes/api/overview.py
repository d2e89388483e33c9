"""Which claims use which devices: the slices and claims of a whole cluster, combined.

Slices and claims may come page by page. Only what the result needs is kept, because a cluster may have more devices
than fit in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dranet.core.device import Device, Taint
from dranet.core.names import DRIVER_NAME

Object = Mapping[str, Any]
DeviceKey = tuple[str, str]


class Use(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One claim that holds a device."""

    claim: str
    request: str = ""
    pods: tuple[str, ...] = ()
    ready: bool | None = None
    """None if the driver has not written a condition yet."""
    message: str = ""
    share: Mapping[str, str] = {}
    """Consumed capacity; empty for an exclusive device."""


class DeviceOverview(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one node."""

    node: str
    device: str
    attributes: Mapping[str, Any] = {}
    capacity: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    published: bool = True
    used_by: tuple[Use, ...] = ()


class PoolOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The pool of one node: its completeness and the number of used devices."""

    node: str
    generation: int
    slices: int
    expected_slices: int
    devices: int
    used: int
    tainted: int

    @property
    def complete(self) -> bool:
        """Whether all slices of the newest generation exist; the scheduler ignores an incomplete pool."""
        return self.slices == self.expected_slices


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster's pools and devices of one driver, sorted."""

    pools: tuple[PoolOverview, ...]
    devices: tuple[DeviceOverview, ...]


def overview(slices: Iterable[Object], claims: Iterable[Object], *, driver: str = DRIVER_NAME) -> Overview:
    """The overview of complete lists."""
    builder = OverviewBuilder(driver)
    builder.add_claims(claims)
    builder.add_slices(slices)
    return builder.overview()


class OverviewBuilder:
    """Builds an overview from pages. Add all claims before the first slices."""

    def __init__(self, driver: str = DRIVER_NAME, *, in_use: bool = False, limit: int | None = None) -> None:
        """``in_use``: list only devices in use. ``limit``: list at most this many devices; devices that are neither in
        use nor tainted are left out first. The pools count all devices."""
        self._driver, self._in_use, self._limit = driver, in_use, limit
        self._lines = 0
        self._drops_idle = self._full = False
        self._used: dict[DeviceKey, list[Use]] = {}
        self._pools: dict[str, _Pool] = {}

    def add_claims(self, claims: Iterable[Object]) -> None:
        """Add a page of claims."""
        for claim in claims:
            for key, use in _uses(claim, self._driver):
                self._used.setdefault(key, []).append(use)

    def add_slices(self, slices: Iterable[Object]) -> None:
        """Add a page of slices, in any order."""
        for item in slices:
            if item["spec"].get("driver") == self._driver:
                self._add(item["spec"])

    def overview(self) -> Overview:
        """The result of all pages."""
        found = [line for pool in self._pools.values() for line in pool.lines]
        published = {(name, device) for name, pool in self._pools.items() for device in pool.used}
        gone = [
            DeviceOverview(node=node, device=name, published=False, used_by=tuple(sorted(uses)))
            for (node, name), uses in self._used.items()
            if (node, name) not in published
        ]
        lines = sorted([*found, *gone], key=lambda line: (line.node, line.device))
        lost = Counter(line.node for line in gone)
        pools = (self._pools[name].line(name, lost[name]) for name in sorted(self._pools))
        return Overview(pools=tuple(pools), devices=tuple(lines))

    def _add(self, spec: Object) -> None:
        """Add a slice; only the newest generation of a pool counts."""
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
            if self._is_listed(raw, bool(uses)):
                pool.lines.append(_line(spec["pool"]["name"], Device.from_api(raw), tuple(sorted(uses))))
                self._lines += 1
                self._enforce_limit()

    def _is_listed(self, raw: Object, used: bool) -> bool:
        if self._full or (self._in_use and not used):
            return False
        return used or bool(raw.get("taints")) or not self._drops_idle

    def _enforce_limit(self) -> None:
        if self._limit is None or self._lines <= self._limit:
            return
        for pool in self._pools.values():
            pool.lines = [line for line in pool.lines if line.used_by or line.taints]
        self._lines = sum(len(pool.lines) for pool in self._pools.values())
        self._full = self._drops_idle or self._lines > self._limit
        self._drops_idle = True


@dataclass(slots=True)
class _Pool:
    generation: int
    expected_slices: int
    slices: int = 0
    devices: int = 0
    tainted: int = 0
    used: list[str] = field(default_factory=list)
    lines: list[DeviceOverview] = field(default_factory=list)

    def count(self, raw: Object, in_use: bool) -> None:
        self.devices += 1
        self.tainted += bool(raw.get("taints"))
        if in_use:
            self.used.append(raw["name"])

    def line(self, name: str, gone: int) -> PoolOverview:
        """``gone`` counts devices that claims hold but no slice publishes any more."""
        return PoolOverview(
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
    statuses = {_status_key(item): item for item in status.get("devices") or ()}
    for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
        if result["driver"] == driver:
            entry = statuses.get(_status_key(result))
            yield (result["pool"], result["device"]), _use(claim, result, entry)


def _status_key(item: Object) -> tuple[str, ...]:
    """Includes the share: a claim may have two shares of one device."""
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


def _line(node: str, device: Device, used_by: tuple[Use, ...]) -> DeviceOverview:
    return DeviceOverview(
        node=node,
        device=device.name,
        attributes=device.attributes,
        capacity=device.capacity,
        taints=device.taints,
        used_by=used_by,
    )
