"""The node's devices between inventory and cluster: what is found goes out, what is held stays as it was.

A device that a claim holds is published exactly as it was when it was prepared; the inventory learns from the store
which ones those are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from dranet.driver.records.plan import Use
from dranet.driver.store import Store
from dranet.inventory import Fault, NodeDevice, Snapshot
from dranet.inventory.watcher import Watcher
from dranet.kube.taints import TaintPolicy
from dranet.kubelet.handler import DeviceHealth, Health
from dranet.model.device import Device
from dranet.model.faults import FaultKind

GRACE_SECONDS = 3.0
TRANSIENT = frozenset({FaultKind.LINK_DOWN, FaultKind.RDMA_PORT_DOWN})


def in_use(store: Store) -> dict[str, NodeDevice]:
    """Held devices by name, as they were when they were prepared. Those of plans that nobody here can read, too: what
    they hold stays held."""
    held = {name: snapshot for lost in store.unreadable.values() for name, snapshot in lost.devices.items()}
    devices = (device for plan in store.plans.values() for device in plan.devices if device.use is not Use.ADMIN)
    held |= {device.name: device.snapshot for device in devices}
    return {name: NodeDevice.from_record(snapshot) for name, snapshot in held.items() if snapshot}


def lent_addresses(store: Store) -> set[str]:
    """Addresses that claims on this node have or are about to have, with prefix length."""
    devices = [device for plan in store.plans.values() for device in plan.devices]
    wanted = {row.kernel().cidr for device in devices if device.wanted for row in device.wanted.addresses}
    return wanted | {
        a for device in devices for a in (device.profile_config.get("interface") or {}).get("addresses", ())
    }


class SettledFaults:
    """Faults that have lasted. A link that was just raised, or came home, needs a moment for its carrier; a taint that
    comes and goes with every pod would only confuse the scheduler."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self._grace = grace
        self._since: dict[tuple[str, FaultKind], float] = {}

    def of(self, snapshot: Snapshot, now: float) -> tuple[dict[str, tuple[Fault, ...]], float | None]:
        """The faults of each device that count, and how long until another one does; None where none is waiting."""
        seen = [(device.name, fault.kind) for device in snapshot.devices for fault in device.faults]
        self._since = {key: self._since.get(key, now) for key in seen}
        ages = {key: now - since for key, since in self._since.items() if key[1] in TRANSIENT}
        young = {key: self._grace - age for key, age in ages.items() if age < self._grace}
        lasting = {d.name: tuple(f for f in d.faults if (d.name, f.kind) not in young) for d in snapshot.devices}
        return lasting, min(young.values(), default=None)


class NodeDevices:
    """The latest snapshot, for everybody who asks."""

    def __init__(self, node: str, taints: TaintPolicy, publish: Callable[[Sequence[Device]], None]) -> None:
        self.node = node
        self.watcher: Watcher | None = None
        self._taints = taints
        self._publish = publish
        self._snapshot = Snapshot()
        self._settled = SettledFaults()
        self._faults: dict[str, tuple[Fault, ...]] = {}
        self._again: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    async def changed(self, snapshot: Snapshot) -> None:
        """A look found something new."""
        self._snapshot = snapshot
        self._tell()

    def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        self._faults, wait = self._settled.of(self._snapshot, loop.time())
        kinds = {name: [fault.kind for fault in faults] for name, faults in self._faults.items()}
        self._publish([self._taints.tainted(d.device, kinds[d.name]) for d in self._snapshot.devices])
        if self._again is not None:
            self._again.cancel()
        self._again = loop.call_later(wait, self._tell) if wait is not None else None
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def _latest(self) -> Snapshot:
        return (self.watcher.latest if self.watcher else None) or self._snapshot

    def find(self, name: str) -> NodeDevice | None:
        return self._latest.find(name)

    def why_not(self, name: str) -> str:
        return self._latest.why_not(name)

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
            changed = self._changed
            now = device_health(self.node, self._faults)
            if told is None or _without_time(now) != _without_time(told):
                told = now
                yield now
            await changed.wait()


def device_health(pool: str, faults: Mapping[str, Sequence[Fault]]) -> list[DeviceHealth]:
    """A device is healthy unless something says that it cannot serve."""
    now = int(time.time())
    return [
        DeviceHealth(
            pool=pool,
            device=name,
            health=Health.UNHEALTHY if found else Health.HEALTHY,
            updated_at=now,
            message="; ".join(fault.detail for fault in found),
        )
        for name, found in faults.items()
    ]


def _without_time(found: Sequence[DeviceHealth]) -> list[tuple[str, Health, str]]:
    return [(item.device, item.health, item.message) for item in found]
