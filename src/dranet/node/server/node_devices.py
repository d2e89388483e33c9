"""The node's devices between inventory and cluster: scanned devices are published.

A device in use by a claim is published exactly as it was when it was prepared; the store knows which devices those are.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence

from dranet.core.aio import wait_at_most
from dranet.core.device import Device
from dranet.kubernetes.api.taints import TaintPolicy
from dranet.kubernetes.kubelet.handler import DeviceHealth, Health
from dranet.node.health.checks import Finding
from dranet.node.health.policy import BROKEN
from dranet.node.inventory import NodeDevice, Snapshot
from dranet.node.inventory.watcher import Watcher
from dranet.node.records.plan import AttachMode
from dranet.node.store import Store

_REPEAT_SECONDS = 10.0
"""The kubelet reports a device as Unknown, in the status of pods too, after half a minute without news."""


def in_use(store: Store) -> dict[str, NodeDevice]:
    """Devices in use by name, as they were when they were prepared; including those of plans that cannot be read."""
    held = {name: snapshot for lost in store.unreadable.values() for name, snapshot in lost.devices.items()}
    devices = (
        device for plan in store.plans.values() for device in plan.devices if device.mode is not AttachMode.ADMIN
    )
    held |= {device.name: device.snapshot for device in devices}
    return {name: NodeDevice.from_record(snapshot) for name, snapshot in held.items() if snapshot}


def lent_addresses(store: Store) -> set[str]:
    """Addresses that claims on this node have or are about to have, with prefix length."""
    devices = [device for plan in store.plans.values() for device in plan.devices]
    planned = {row.kernel().cidr for device in devices if device.pod_config for row in device.pod_config.addresses}
    return planned | {
        a for device in devices for a in (device.profile_config.get("interface") or {}).get("addresses", ())
    }


class NodeDevices:
    """The latest snapshot, published and queried."""

    def __init__(
        self,
        node: str,
        taints: TaintPolicy,
        publish: Callable[[Sequence[Device]], None],
        *,
        repeat_seconds: float = _REPEAT_SECONDS,
    ) -> None:
        self.node = node
        self.watcher: Watcher | None = None
        self._taints = taints
        self._publish = publish
        self._repeat_seconds = repeat_seconds
        self._snapshot = Snapshot()
        self._findings: tuple[Finding, ...] = ()
        self._changed = asyncio.Event()

    async def set_snapshot(self, snapshot: Snapshot) -> None:
        """A scan found changes."""
        self._snapshot = snapshot
        self._update()

    def set_findings(self, findings: Sequence[Finding]) -> None:
        """The health checks found these faults."""
        if tuple(findings) != self._findings:
            self._findings = tuple(findings)
            self._update()

    def _update(self) -> None:
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

    def skip_reason(self, name: str) -> str:
        return self.latest.skip_reason(name)

    async def rescan(self) -> None:
        if self.watcher is not None:
            await self.watcher.scan_now()

    def request_rescan(self) -> None:
        if self.watcher is not None:
            self.watcher.request_scan()

    async def health(self) -> AsyncIterator[list[DeviceHealth]]:
        """The health of every device: now, on every change, and before the kubelet's timeout."""
        sent: list[DeviceHealth] | None = None
        while True:
            changed = self._changed
            now = device_health(self.node, self._snapshot, self._findings)
            if sent is None or _without_time(now) != _without_time(sent):
                sent = now
                yield now
            if not await wait_at_most(self._repeat_seconds, changed):
                sent = None


def device_health(pool: str, snapshot: Snapshot, findings: Sequence[Finding]) -> list[DeviceHealth]:
    """A device is healthy unless it is broken; the message names degraded ones too."""
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
