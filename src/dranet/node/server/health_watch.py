"""Check the health of all devices while the driver runs, and report faults that start and end.

Most faults come with a kernel event; counters, GIDs and PCIe links change silently, so there is also a check every few
seconds. Two checks are never closer than `SPACING`: "seen twice" must not mean two readings of one moment. A silent
fault is reported after at most one interval and one spacing, together less than five seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from dranet.core.aio import in_thread, wait_at_most
from dranet.core.device import FaultKind
from dranet.core.errors import DranetError
from dranet.core.logs import get_logger
from dranet.kubernetes.api.events import NETWORK_DEVICE_BROKEN, NETWORK_DEVICE_DEGRADED, ObjectRef
from dranet.node.health.checks import FaultHistory, Finding
from dranet.node.health.node_reader import ClaimedDevice
from dranet.node.health.policy import BROKEN
from dranet.node.health.readings import DeviceReading
from dranet.node.records.plan import AttachMode, PodRef
from dranet.node.server.metrics import FaultMetrics
from dranet.node.server.reports import EventSink
from dranet.node.store import Store

log = get_logger(__name__)

SPACING = 1.5


def claimed_devices(store: Store) -> dict[str, ClaimedDevice]:
    """Devices that claims use exclusively, and their namespaces; a shared NIC stays on the host."""
    found = {}
    for plan in store.plans.values():
        for device in plan.devices:
            if device.mode in (AttachMode.MOVED, AttachMode.RDMA_ONLY):
                config = device.pod_config
                addresses = tuple(row.kernel().cidr.partition("/")[0] for row in config.addresses) if config else ()
                found[device.name] = ClaimedDevice(plan.uid, plan.netns or "", config.name if config else "", addresses)
    return found


def with_known_faults(
    readings: Sequence[DeviceReading], kind: FaultKind, devices: Mapping[str, str]
) -> list[DeviceReading]:
    """The readings, with a fault that the lifecycle knows of some devices."""
    if not devices:
        return list(readings)
    # Virtual devices are not read: they have no other faults.
    found = {name: DeviceReading(device=name, at=time.monotonic()) for name in devices}
    found |= {reading.device: reading for reading in readings}
    for name, message in devices.items():
        known = {kind: message, **dict(found[name].known_faults)}
        found[name] = msgspec.structs.replace(found[name], known_faults=tuple(known.items()))
    return list(found.values())


def pods_by_device(store: Store) -> dict[str, PodRef]:
    """The pod that has each device."""
    return {device.name: plan.pod for plan in store.plans.values() for device in plan.devices}


class HealthWatch:
    """Reads, judges and reports, in turn."""

    def __init__(
        self,
        read: Callable[[], Sequence[DeviceReading]],
        history: FaultHistory,
        report: Callable[[Sequence[Finding]], None],
        *,
        rescan: Callable[[], Awaitable[None]],
        interval: float,
        spacing: float = SPACING,
    ) -> None:
        self._read, self._history, self._report, self._rescan = read, history, report, rescan
        self._interval, self._spacing = max(interval, spacing), spacing
        self._wake = asyncio.Event()

    def request_check(self) -> None:
        """Check as soon as the spacing allows."""
        self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._wake.clear()
            try:
                if self._history.has_unconfirmed:
                    # Part of a reading comes from the last scan, and under churn that may be the scan in which the
                    # fault was first seen: a device that was just detached. One scan must not count twice.
                    await self._rescan()
                # In a thread: reading a NIC's speed asks its firmware.
                self._report(await in_thread(lambda: self._history.add(self._read())))
            except (DranetError, OSError) as error:
                log.warning("Could not read the health of the devices; will retry", error=error)
            await asyncio.sleep(self._spacing)
            if not self._history.has_unconfirmed:
                await wait_at_most(self._interval - self._spacing, self._wake)


class FaultReports:
    """Reports faults that start or end: log, metric, and events on the node and on the pod that has the device. The
    taint on the device is up to `NodeDevices`."""

    def __init__(
        self, node: str, metrics: FaultMetrics, events: EventSink, pods: Callable[[], Mapping[str, PodRef]]
    ) -> None:
        self._node, self._metrics, self._events, self._pods = node, metrics, events, pods
        self._known: dict[tuple[str, FaultKind], Finding] = {}

    def report(self, findings: Sequence[Finding]) -> None:
        """Takes all current findings."""
        now = {(finding.device, finding.fault): finding for finding in findings}
        if now == self._known:
            return
        for key in now.keys() - self._known.keys():
            self._report_new(now[key])
        for device, fault in self._known.keys() - now.keys():
            log.info("Fault ended", device=device or self._node, fault=fault)
        self._known = now
        self._metrics.set(findings)

    def _report_new(self, finding: Finding) -> None:
        reason = NETWORK_DEVICE_BROKEN if finding.severity == BROKEN else NETWORK_DEVICE_DEGRADED
        message = f"{finding.device or 'node ' + self._node}: {finding.fault}: {finding.message}"
        log.warning(
            "Fault started",
            device=finding.device or self._node,
            fault=finding.fault,
            severity=finding.severity,
            error=finding.message,
        )
        self._events.warning(ObjectRef.node(self._node, self._node), reason, message)
        pod = self._pods().get(finding.device)
        if pod is not None:
            self._events.warning(ObjectRef.pod(pod.namespace, pod.name, pod.uid), reason, message)
