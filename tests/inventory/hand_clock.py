"""An event loop whose clock stands still until a test moves it: no busy machine decides what is within a burst."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

_TURNS = 5
"""From a timer that is due to whoever waits for it, and on."""


class HandLoop(asyncio.SelectorEventLoop):
    """Files and threads are heard as ever."""

    now = 0.0

    def time(self) -> float:
        return self.now


async def pass_time(seconds: float) -> None:
    """As much as this, at once; returns when everybody has acted on it who does not wait for a thread."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HandLoop)
    loop.now += seconds
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def run_by_hand(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=HandLoop) as runner:
        runner.run(story)
