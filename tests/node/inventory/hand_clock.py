"""An event loop whose clock stands still until a test moves it: no busy machine decides what is within a burst."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

_TURNS = 5
"""Turns of the loop from a timer to the tasks that wait for it, and on."""


class HandLoop(asyncio.SelectorEventLoop):
    """Files and threads work as usual."""

    now = 0.0

    def time(self) -> float:
        return self.now


async def pass_time(seconds: float) -> None:
    """Move the clock; returns when all tasks have acted on it that do not wait for a thread."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, HandLoop)
    loop.now += seconds
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def by_hand(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorates an async test that runs in a `HandLoop`."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=HandLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
