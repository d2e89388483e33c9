"""How the driver stands: what is missing now, and what has been missing for so long that nobody should call it well.

A start takes its time, and kubelet, runtime and API server come and go; that is what readiness is for. But some
DaemonSets know only ``/healthz``, and there a driver that cannot do its work would look well for ever. So what is
missing for minutes without a break counts as illness. Life is another matter: a driver that waits for others is not
made better by killing it, so ``/livez`` never says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LONG_SECONDS = 120.0
_LOOK_SECONDS = 5.0

Clock = Callable[[], float]


class Standing:
    """Looks from time to time, so that a trouble is as old as it is and not as old as the question."""

    def __init__(self, missing: Callable[[], list[str]], *, long: float = LONG_SECONDS, clock: Clock = time.monotonic):
        self._missing = missing
        self._long = long
        self._clock = clock
        self._since: dict[str, float] = {}

    def look(self) -> None:
        """Note since when each thing is missing."""
        now = self._clock()
        self._since = {what: self._since.get(what, now) for what in self._missing()}

    def long_missing(self) -> list[str]:
        """What has been missing for long, each with its time in words; empty while all is well enough."""
        self.look()
        now = self._clock()
        return [f"{what} (for {now - since:.0f} s)" for what, since in self._since.items() if now - since > self._long]

    async def run(self) -> None:
        """Look again and again, so that the time something is missing is known whether or not anybody asks."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_SECONDS)
