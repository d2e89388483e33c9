"""The node's devices between inventory and cluster: what is found goes out, what is held stays as it was.

A device that a claim holds is published exactly as it was when it was prepared; the inventory learns from the store
which ones those are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from dranet.driver.store import Store
from dranet.inventory import NodeDevice, Snapshot
from dranet.inventory.watcher import Watcher
from dranet.kube.taints import TaintPolicy
from dranet.kubelet.handler import DeviceHealth, Health
from dranet.model.device import Device


def in_use(store: Store) -> dict[str, NodeDevice]:
    """Held devices by name, as they were when they were prepared."""
    records = (device for plan in store.plans.values() for device in plan.devices if device.snapshot)
    return {device.device: NodeDevice.from_record(device.snapshot) for device in records}


class NodeDevices:
    """The latest snapshot, for everybody who asks."""

    def __init__(self, node: str, taints: TaintPolicy, publish: Callable[[Sequence[Device]], None]) -> None:
        self.node = node
        self.watcher: Watcher | None = None
        self._taints = taints
        self._publish = publish
        self._snapshot = Snapshot()
        self._changed = asyncio.Condition()

    async def changed(self, snapshot: Snapshot) -> None:
        """A look found something new."""
        self._snapshot = snapshot
        self._publish([self._taints.tainted(d.device, [f.kind for f in d.faults]) for d in snapshot.devices])
        async with self._changed:
            self._changed.notify_all()

    def find(self, name: str) -> NodeDevice | None:
        latest = self.watcher.latest if self.watcher else None
        return (latest or self._snapshot).find(name)

    async def look_again(self) -> None:
        if self.watcher is not None:
            await self.watcher.look_now()

    def request_look(self) -> None:
        if self.watcher is not None:
            self.watcher.request_look()

    async def health(self) -> AsyncIterator[list[DeviceHealth]]:
        """The health of every device now, and again whenever something changes."""
        told: list[DeviceHealth] | None = None
        while True:
            now = device_health(self.node, self._snapshot)
            if told is None or _without_time(now) != _without_time(told):
                told = now
                yield now
            async with self._changed:
                await self._changed.wait()


def device_health(pool: str, snapshot: Snapshot) -> list[DeviceHealth]:
    """A device is healthy unless something says that it cannot serve."""
    now = int(time.time())
    return [
        DeviceHealth(
            pool=pool,
            device=device.name,
            health=Health.UNHEALTHY if device.faults else Health.HEALTHY,
            updated_at=now,
            message="; ".join(fault.detail for fault in device.faults),
        )
        for device in snapshot.devices
    ]


def _without_time(found: Sequence[DeviceHealth]) -> list[tuple[str, Health, str]]:
    return [(item.device, item.health, item.message) for item in found]
