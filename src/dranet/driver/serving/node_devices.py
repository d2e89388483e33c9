"""The node's devices between inventory and cluster: what is found goes out, what is held stays as it was.

A device that a claim holds is published exactly as it was when it was prepared; the inventory learns from the store
which ones those are.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence

from dranet.driver.records.plan import Use
from dranet.driver.store import Store
from dranet.health.judging import Finding
from dranet.health.policy import BROKEN
from dranet.inventory import NodeDevice, Snapshot
from dranet.inventory.watcher import Watcher
from dranet.kube.taints import TaintPolicy
from dranet.kubelet.handler import DeviceHealth, Health
from dranet.model.device import Device

REPEAT_SECONDS = 10.0
"""What the kubelet has not heard for half a minute it calls Unknown, in the status of pods too."""


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


class NodeDevices:
    """The latest snapshot, for everybody who asks."""

    def __init__(self, node: str, taints: TaintPolicy, publish: Callable[[Sequence[Device]], None]) -> None:
        self.node = node
        self.watcher: Watcher | None = None
        self._taints = taints
        self._publish = publish
        self._snapshot = Snapshot()
        self._findings: tuple[Finding, ...] = ()
        self._changed = asyncio.Event()

    async def changed(self, snapshot: Snapshot) -> None:
        """A look found something new."""
        self._snapshot = snapshot
        self._tell()

    def judged(self, findings: Sequence[Finding]) -> None:
        """What is wrong with the devices now."""
        if tuple(findings) != self._findings:
            self._findings = tuple(findings)
            self._tell()

    def _tell(self) -> None:
        broken = defaultdict(list)
        for finding in self._findings:
            if finding.severity == BROKEN:
                broken[finding.device].append(finding.fault)
        self._publish([self._taints.tainted(d.device, broken[d.name]) for d in self._snapshot.devices])
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def latest(self) -> Snapshot:
        return (self.watcher.latest if self.watcher else None) or self._snapshot

    def find(self, name: str) -> NodeDevice | None:
        return self.latest.find(name)

    def why_not(self, name: str) -> str:
        return self.latest.why_not(name)

    async def look_again(self) -> None:
        if self.watcher is not None:
            await self.watcher.look_now()

    def request_look(self) -> None:
        if self.watcher is not None:
            self.watcher.request_look()

    async def health(self) -> AsyncIterator[list[DeviceHealth]]:
        """The health of every device now, again whenever something changes, and again before the kubelet forgets it."""
        told: list[DeviceHealth] | None = None
        while True:
            changed = self._changed
            now = device_health(self.node, self._snapshot, self._findings)
            if told is None or _without_time(now) != _without_time(told):
                told = now
                yield now
            try:
                await asyncio.wait_for(changed.wait(), REPEAT_SECONDS)
            except TimeoutError:
                told = None


def device_health(pool: str, snapshot: Snapshot, findings: Sequence[Finding]) -> list[DeviceHealth]:
    """A device is healthy unless it is broken; what is merely degraded is said in the message."""
    now, found = int(time.time()), defaultdict(list)
    for finding in findings:
        found[finding.device].append(finding)
    return [
        DeviceHealth(
            pool=pool,
            device=device.name,
            health=Health.UNHEALTHY if any(f.severity == BROKEN for f in found[device.name]) else Health.HEALTHY,
            updated_at=now,
            message="; ".join(f"{f.fault}: {f.message}" for f in found[device.name]),
        )
        for device in snapshot.devices
    ]


def _without_time(found: Sequence[DeviceHealth]) -> list[tuple[str, Health, str]]:
    return [(item.device, item.health, item.message) for item in found]
