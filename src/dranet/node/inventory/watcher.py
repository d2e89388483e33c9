"""Decides when to scan, and reports snapshots that differ.

The kernel reports changes of links, addresses, default routes, rules, classifiers, RDMA devices and PCI functions. A
scan at intervals finds what it does not report: BPF programs and cloud metadata. A burst of events causes one scan,
scans have a budget, and a scan that finds no change reports nothing.

Scans run in a thread: reading the speed of a NIC may wait for its firmware, and NRI hooks must not wait with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from dranet.core.aio import in_thread, wait_at_most
from dranet.core.attributes import IPV6, STATE
from dranet.core.device import Device
from dranet.core.errors import KernelError
from dranet.core.logs import get_logger
from dranet.linux.events import Change, Monitor
from dranet.node.inventory.claimed import ClaimedDevices
from dranet.node.inventory.inventory import Inventory
from dranet.node.inventory.snapshot import Snapshot

log = get_logger(__name__)

WATCHED_CHANGES = frozenset(
    {
        Change.LINK,
        Change.ADDRESS,
        Change.DEFAULT_ROUTE,
        Change.RULE,
        Change.CLASSIFIER,
        Change.RDMA,
        Change.PCI,
    }
)
_OnChange = Callable[[Snapshot], Awaitable[None]]


class WatchIntervals(msgspec.Struct, frozen=True):
    """How often to scan, in seconds."""

    min_interval: float = 2.0
    """Time in which the budget gains one scan."""
    max_interval: float = 60.0
    """Longest time between two scans."""
    burst: int = 5
    """Most scans that may follow each other without a pause."""
    quiet_period: float = 0.1
    """A burst of events ends when none arrives for this long. Moving devices into a pod causes such a burst, and a scan
    in the middle would compete with the moves for the RTNL lock."""
    max_quiet_wait: float = 1.0
    """Longest wait for the end of a burst."""
    link_up_grace: float = 3.0
    """Changes that consist only of links going down are held back this long: a device that returns from a pod has no
    carrier at first, and publishing that would cost two writes of the node's slices for every pod that ends."""
    cloud_wait: float = 3.0
    """How long the first scan waits for the cloud provider."""


class Changes(Protocol):
    """A source of kernel events: wait until ``fileno`` is readable, then ``drain``."""

    def fileno(self) -> int: ...

    def drain(self) -> frozenset[Change]: ...

    def close(self) -> None: ...


class ScanBudget:
    """A token bucket: full at first, one more token each interval."""

    def __init__(self, interval: float, burst: int, clock: Callable[[], float]) -> None:
        self._interval, self._burst, self._clock = interval, max(burst, 1), clock
        self._tokens, self._filled = float(self._burst), clock()

    def take(self) -> float:
        """Take one token; return how long to wait for it."""
        now = self._clock()
        gained = (now - self._filled) / self._interval if self._interval > 0 else self._burst
        self._tokens, self._filled = min(self._tokens + gained, float(self._burst)) - 1, now
        return max(-self._tokens * self._interval, 0.0)


class Watcher:
    """Keeps the latest snapshot and reports changed ones to `on_change`."""

    def __init__(
        self,
        inventory: Inventory,
        on_change: _OnChange,
        *,
        claimed: ClaimedDevices = dict,
        intervals: WatchIntervals | None = None,
        changes: Changes | None = None,
        on_scan: Callable[[], None] = lambda: None,
    ) -> None:
        self._inventory, self._on_change, self._claimed = inventory, on_change, claimed
        self._intervals = intervals or WatchIntervals()
        self._changes, self._on_scan = changes, on_scan
        self._wake = asyncio.Event()
        self._scan_lock = asyncio.Lock()
        self._cloud_task: asyncio.Task[None] | None = None
        self._asked_about: frozenset[object] = frozenset()
        self.latest: Snapshot | None = None
        """The result of the newest scan, reported or not."""
        self.scans = 0
        self._reported: Snapshot | None = None
        self._down_since: float | None = None

    def request_scan(self) -> None:
        """Scan soon; several requests before that cause one scan."""
        self._wake.set()

    async def scan_now(self) -> Snapshot:
        """Scan now, outside the budget, for a caller that misses a device. The next scan reports the change."""
        snapshot = await self._scan()
        self._wake.set()
        return snapshot

    async def run(self) -> None:
        """Watch until cancelled."""
        changes = self._changes or _monitor()
        loop = asyncio.get_running_loop()
        if changes is not None:
            loop.add_reader(changes.fileno(), self._on_events, changes)
        try:
            await self._watch(ScanBudget(self._intervals.min_interval, self._intervals.burst, loop.time))
        finally:
            if changes is not None:
                loop.remove_reader(changes.fileno())
                changes.close()
            if self._cloud_task is not None:
                self._cloud_task.cancel()

    def _on_events(self, changes: Changes) -> None:
        if changes.drain():
            self._wake.set()

    async def _watch(self, budget: ScanBudget) -> None:
        due = True
        while True:
            await asyncio.sleep(budget.take())
            self._wake.clear()
            await self._scan_and_report(ask_cloud=due)
            due = not await wait_at_most(self._intervals.max_interval, self._wake)
            if not due:
                await self._wait_for_quiet()

    async def _wait_for_quiet(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._intervals.max_quiet_wait
        while self._wake.is_set() and loop.time() < end:
            self._wake.clear()
            await asyncio.sleep(self._intervals.quiet_period)

    async def _scan_and_report(self, *, ask_cloud: bool) -> None:
        try:
            snapshot = await self._scan()
        except KernelError as error:
            log.warning("Inventory scan failed; will retry", error=error)
            self._wake.set()
            return
        self._ask_cloud(snapshot, due=ask_cloud)
        if self._reported is None and self._cloud_task is not None:
            await asyncio.wait({self._cloud_task}, timeout=self._intervals.cloud_wait)
            snapshot = await self._scan()
        if self._is_change(snapshot):
            self._reported = snapshot
            await self._on_change(snapshot)

    def _is_change(self, snapshot: Snapshot) -> bool:
        reported = self._reported
        if reported is None or snapshot.gpus != reported.gpus:
            return True
        if snapshot.devices == reported.devices:
            self._down_since = None
            return False
        before = {device.name: device.device for device in reported.devices}
        after = {device.name: device.device for device in snapshot.devices}
        if before.keys() != after.keys() or not _only_went_down(before, after):
            self._down_since = None
            return True
        return self._grace_has_passed()

    def _grace_has_passed(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._down_since is None:
            self._down_since = loop.time()
            loop.call_later(self._intervals.link_up_grace, self.request_scan)
        return loop.time() - self._down_since >= self._intervals.link_up_grace

    async def _scan(self) -> Snapshot:
        async with self._scan_lock:
            self.latest = await in_thread(lambda: self._inventory.scan(self._claimed))
            self.scans += 1
            self._on_scan()
            return self.latest

    def _ask_cloud(self, snapshot: Snapshot, *, due: bool) -> None:
        """Ask in the background: at the longest interval, and about devices that are new."""
        identities = frozenset(device.identity for device in snapshot.devices)
        idle = self._cloud_task is None or self._cloud_task.done()
        if self._inventory.cloud is not None and idle and (due or not identities <= self._asked_about):
            self._asked_about = identities
            self._cloud_task = asyncio.create_task(self._refresh_cloud(snapshot))

    async def _refresh_cloud(self, snapshot: Snapshot) -> None:
        if await self._inventory.ask_cloud(snapshot):
            self._wake.set()


def _only_went_down(before: Mapping[str, Device], after: Mapping[str, Device]) -> bool:
    """Whether devices differ only in links that were up and no longer are."""
    differing = [name for name in after if after[name] != before[name]]
    return bool(differing) and all(
        before[name].attributes.get(STATE) == "up"
        and after[name].attributes.get(STATE) != "up"
        and _without_link_state(before[name]) == _without_link_state(after[name])
        for name in differing
    )


def _without_link_state(device: Device) -> dict[str, object]:
    """Attributes that do not depend on the carrier: without one, IPv6 addresses are missing too."""
    return {name: value for name, value in device.attributes.items() if name not in {STATE, IPV6}}


def _monitor() -> Monitor | None:
    try:
        return Monitor(WATCHED_CHANGES)
    except KernelError as error:
        log.warning("Kernel event monitor unavailable; scanning at intervals only", error=error)
        return None
