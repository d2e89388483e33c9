"""Who has which card: slices and claims of a whole cluster, put side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    pools = _newest([item for item in slices if item["spec"].get("driver") == driver])
    used = _uses(claims, driver)
    devices = {
        (pool, raw["name"]): Device.from_api(raw)
        for pool, items in pools.items()
        for item in items
        for raw in item["spec"].get("devices") or ()
    }
    lines = [_line(key, devices.get(key), used.get(key, ())) for key in sorted({*devices, *used})]
    return Overview(
        pools=tuple(_pool(name, pools[name], [line for line in lines if line.node == name]) for name in sorted(pools)),
        devices=tuple(lines),
    )


def _newest(slices: Sequence[Object]) -> dict[str, list[Object]]:
    """Per pool, the slices of its newest generation, by name."""
    pools: dict[str, list[Object]] = {}
    for item in sorted(slices, key=lambda item: item["metadata"]["name"]):
        pools.setdefault(item["spec"]["pool"]["name"], []).append(item)
    top = {name: max(item["spec"]["pool"]["generation"] for item in items) for name, items in pools.items()}
    return {
        name: [item for item in items if item["spec"]["pool"]["generation"] == top[name]]
        for name, items in pools.items()
    }


def _uses(claims: Iterable[Object], driver: str) -> dict[DeviceKey, tuple[Use, ...]]:
    found: dict[DeviceKey, list[Use]] = {}
    for claim in claims:
        status = claim.get("status") or {}
        said = {(item["driver"], item["pool"], item["device"]): item for item in status.get("devices") or ()}
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            if result["driver"] == driver:
                entry = said.get((driver, result["pool"], result["device"]))
                found.setdefault((result["pool"], result["device"]), []).append(_use(claim, result, entry))
    return {key: tuple(sorted(uses)) for key, uses in found.items()}


def _use(claim: Object, result: Object, entry: Object | None) -> Use:
    conditions = (entry or {}).get("conditions") or ()
    bad = [item for item in conditions if item["status"] == "False"]
    return Use(
        claim=f"{claim['metadata'].get('namespace', '')}/{claim['metadata']['name']}",
        request=result.get("request", ""),
        pods=tuple(sorted(item["name"] for item in (claim["status"].get("reservedFor") or ()))),
        ready=not bad if conditions else None,
        message="; ".join(f"{item['type']}: {item.get('message') or item['reason']}" for item in bad),
    )


def _line(key: DeviceKey, device: Device | None, used_by: tuple[Use, ...]) -> DeviceLine:
    node, name = key
    if device is None:
        return DeviceLine(node=node, device=name, published=False, used_by=used_by)
    return DeviceLine(
        node=node,
        device=name,
        attributes=device.attributes,
        capacity=device.capacity,
        taints=device.taints,
        used_by=used_by,
    )


def _pool(name: str, slices: Sequence[Object], lines: Sequence[DeviceLine]) -> PoolLine:
    pool = slices[0]["spec"]["pool"]
    return PoolLine(
        node=name,
        generation=pool["generation"],
        slices=len(slices),
        expected_slices=pool["resourceSliceCount"],
        devices=sum(line.published for line in lines),
        used=sum(bool(line.used_by) for line in lines),
        tainted=sum(bool(line.taints) for line in lines),
    )
