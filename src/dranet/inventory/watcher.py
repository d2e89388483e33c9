"""When to look again, and whom to tell.

The kernel reports changes of links, addresses, default routes, rules, classifiers, RDMA devices and PCI functions;
everything it does not report (BPF programs, cloud metadata) is caught by a look once in a while. A burst of events is
one look, looks have a budget, and a look that finds nothing new tells nobody.

Looks run in a thread: reading a card's speed can wait for its firmware, and hooks must not wait with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec

from dranet.inventory.in_use import InUse
from dranet.inventory.inventory import Inventory
from dranet.inventory.snapshot import Snapshot
from dranet.kernel.errors import KernelError
from dranet.kernel.events import Change, Monitor
from dranet.model.attributes import IPV6, STATE
from dranet.model.device import Device

log = logging.getLogger(__name__)

WATCHED = frozenset(
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
Changed = Callable[[Snapshot], Awaitable[None]]


class Pace(msgspec.Struct, frozen=True):
    """How often to look, in seconds."""

    min_interval: float = 2.0
    """Time in which the budget gains one look."""
    max_interval: float = 60.0
    """Longest time between two looks."""
    burst: int = 5
    """Most looks that may follow each other at once."""
    settle: float = 0.1
    """A burst of events is over when none has come for so long. Cards on their way into a pod are such a burst, and a
    look in the middle would compete with them for the kernel's one lock over all links."""
    longest_settle: float = 1.0
    """The end of a burst is not waited for any longer than this."""
    link_comes_up: float = 3.0
    """A card that has just come home is down until its link is up. So long nobody is told of links that went down and
    of nothing else: otherwise every pod that ends would cost two writes of the node's slices."""
    first_answer: float = 3.0
    """How long the first look waits for the cloud's answers."""


class Changes(Protocol):
    """Tells that something happened: wait until ``fileno`` is readable, then ``drain``."""

    def fileno(self) -> int: ...

    def drain(self) -> frozenset[Change]: ...

    def close(self) -> None: ...


class Budget:
    """A token bucket: full at first, one token more each interval."""

    def __init__(self, interval: float, burst: int, clock: Callable[[], float]) -> None:
        self._interval, self._burst, self._clock = interval, max(burst, 1), clock
        self._tokens, self._filled = float(self._burst), clock()

    def take(self) -> float:
        """Take one token; how long to wait until it is really there."""
        now = self._clock()
        gained = (now - self._filled) / self._interval if self._interval > 0 else self._burst
        self._tokens, self._filled = min(self._tokens + gained, float(self._burst)) - 1, now
        return max(-self._tokens * self._interval, 0.0)


class Watcher:
    """Keeps the latest snapshot and tells about new ones."""

    def __init__(
        self,
        inventory: Inventory,
        changed: Changed,
        *,
        in_use: InUse = dict,
        pace: Pace | None = None,
        changes: Changes | None = None,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        self._inventory, self._changed, self._in_use = inventory, changed, in_use
        self._pace = pace or Pace()
        self._changes, self._looked = changes, looked
        self._wake = asyncio.Event()
        self._one_look = asyncio.Lock()
        self._cloud_task: asyncio.Task[None] | None = None
        self._asked: frozenset[object] = frozenset()
        self.latest: Snapshot | None = None
        """The result of the newest look, told about or not."""
        self.looks = 0
        self._told: Snapshot | None = None
        self._down_since: float | None = None

    def request_look(self) -> None:
        """Look again soon; any number of requests before that are one."""
        self._wake.set()

    async def look_now(self) -> Snapshot:
        """Look at once, outside the budget: for a caller who misses a device. Others hear of it after the next look."""
        snapshot = await self._look()
        self._wake.set()
        return snapshot

    async def run(self) -> None:
        """Watch until cancelled."""
        changes = self._changes or _monitor()
        loop = asyncio.get_running_loop()
        if changes is not None:
            loop.add_reader(changes.fileno(), self._on_events, changes)
        try:
            await self._watch(Budget(self._pace.min_interval, self._pace.burst, loop.time))
        finally:
            if changes is not None:
                loop.remove_reader(changes.fileno())
                changes.close()
            if self._cloud_task is not None:
                self._cloud_task.cancel()

    def _on_events(self, changes: Changes) -> None:
        if changes.drain():
            self._wake.set()

    async def _watch(self, budget: Budget) -> None:
        due = True
        while True:
            await asyncio.sleep(budget.take())
            self._wake.clear()
            await self._look_and_tell(ask_cloud=due)
            due = not await self._woken()
            if not due:
                await self._settled()

    async def _settled(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._pace.longest_settle
        while self._wake.is_set() and loop.time() < end:
            self._wake.clear()
            await asyncio.sleep(self._pace.settle)

    async def _woken(self) -> bool:
        """Wait for a reason to look; False where time alone is the reason."""
        try:
            async with asyncio.timeout(self._pace.max_interval):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def _look_and_tell(self, *, ask_cloud: bool) -> None:
        try:
            snapshot = await self._look()
        except KernelError as error:
            log.warning("looking at the node failed, trying again: %s", error)
            self._wake.set()
            return
        self._ask_cloud(snapshot, due=ask_cloud)
        if self._told is None and self._cloud_task is not None:
            await asyncio.wait({self._cloud_task}, timeout=self._pace.first_answer)
            snapshot = await self._look()
        if self._is_news(snapshot):
            self._told = snapshot
            await self._changed(snapshot)

    def _is_news(self, snapshot: Snapshot) -> bool:
        told = self._told
        if told is None or snapshot.gpus != told.gpus:
            return True
        if snapshot.devices == told.devices:
            self._down_since = None
            return False
        before = {device.name: device.device for device in told.devices}
        after = {device.name: device.device for device in snapshot.devices}
        if before.keys() != after.keys() or not _only_went_down(before, after):
            self._down_since = None
            return True
        return self._is_down_for_long()

    def _is_down_for_long(self) -> bool:
        loop = asyncio.get_running_loop()
        if self._down_since is None:
            self._down_since = loop.time()
            loop.call_later(self._pace.link_comes_up, self.request_look)
        return loop.time() - self._down_since >= self._pace.link_comes_up

    async def _look(self) -> Snapshot:
        async with self._one_look:
            thread = asyncio.ensure_future(asyncio.to_thread(self._inventory.look, self._in_use))
            try:
                self.latest = await asyncio.shield(thread)
            except asyncio.CancelledError:
                await asyncio.wait({thread})  # it uses sockets that the caller may close after us
                raise
            self.looks += 1
            self._looked()
            return self.latest

    def _ask_cloud(self, snapshot: Snapshot, *, due: bool) -> None:
        """Ask in the background: when it is time, and when devices appeared that it was not asked about."""
        identities = frozenset(device.identity for device in snapshot.devices)
        idle = self._cloud_task is None or self._cloud_task.done()
        if self._inventory.cloud is not None and idle and (due or not identities <= self._asked):
            self._asked = identities
            self._cloud_task = asyncio.create_task(self._answers(snapshot))

    async def _answers(self, snapshot: Snapshot) -> None:
        if await self._inventory.ask_cloud(snapshot):
            self._wake.set()


def _only_went_down(before: Mapping[str, Device], after: Mapping[str, Device]) -> bool:
    """Whether devices differ, and in nothing but links that were up and are not."""
    differing = [name for name in after if after[name] != before[name]]
    return bool(differing) and all(
        before[name].attributes.get(STATE) == "up"
        and after[name].attributes.get(STATE) != "up"
        and _without_carrier(before[name]) == _without_carrier(after[name])
        for name in differing
    )


def _without_carrier(device: Device) -> dict[str, object]:
    """What is told of a device whether its link is up or not: its speed and its own IPv6 addresses come and go."""
    return {name: value for name, value in device.attributes.items() if name not in {STATE, IPV6}}


def _monitor() -> Monitor | None:
    try:
        return Monitor(WATCHED)
    except KernelError as error:
        log.warning("the kernel does not report changes, looking at intervals only: %s", error)
        return None
