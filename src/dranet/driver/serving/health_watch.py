"""Looks at the health of all cards while the driver runs, and says what counts.

Most faults come with an event of the kernel; counters, GIDs and PCIe links change silently, so there is a look every
few seconds besides. Two looks are never closer than `SPACING`: "seen twice" must not mean two looks at one moment. A
silent fault is named after one interval and one spacing at the latest, which together are less than five seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from dranet.driver.records.plan import Use
from dranet.driver.store import Store
from dranet.health.history import History
from dranet.health.judging import Finding
from dranet.health.node import Held
from dranet.health.reading import CardReading
from dranet.model.errors import DranetError

log = logging.getLogger(__name__)

SPACING = 1.5


def held_cards(store: Store) -> dict[str, Held]:
    """Cards that claims have for themselves, and where; a shared card stays the node's."""
    found = {}
    for plan in store.plans.values():
        for device in plan.devices:
            if device.use in (Use.MOVED, Use.RDMA_ONLY):
                wanted = device.wanted
                addresses = tuple(row.kernel().cidr.partition("/")[0] for row in wanted.addresses) if wanted else ()
                found[device.name] = Held(plan.uid, plan.netns or "", wanted.name if wanted else "", addresses)
    return found


class HealthWatch:
    """Reads, judges and tells, in turn."""

    def __init__(
        self,
        read: Callable[[], Sequence[CardReading]],
        history: History,
        tell: Callable[[Sequence[Finding]], None],
        *,
        look_anew: Callable[[], Awaitable[None]],
        interval: float,
    ) -> None:
        self._read, self._history, self._tell, self._look_anew = read, history, tell, look_anew
        self._interval = max(interval, SPACING)
        self._wake = asyncio.Event()

    def request_look(self) -> None:
        """Something has happened: look as soon as the spacing allows."""
        self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._wake.clear()
            try:
                if self._history.is_doubtful:
                    # Part of a reading is what the inventory last saw, and under churn that may be the moment at which
                    # the fault was seen first: a card that had just come home. Twice must not mean one picture twice.
                    await self._look_anew()
                self._tell(await self._look())
            except (DranetError, OSError) as error:
                log.warning("the cards' health cannot be read, trying again: %s", error)
            await asyncio.sleep(SPACING)
            if not self._history.is_doubtful:
                await self._rest()

    async def _look(self) -> list[Finding]:
        """In a thread: a card's speed is asked of its firmware."""
        thread = asyncio.ensure_future(asyncio.to_thread(lambda: self._history.look(self._read())))
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            await asyncio.wait({thread})  # it uses mounts that the caller may close after us
            raise

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._interval - SPACING):
                await self._wake.wait()
        except TimeoutError:
            pass
