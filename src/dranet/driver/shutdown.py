"""When the driver may leave: not while a pod is just starting.

The reference's rule: leave when no pod has cards, or when no container of such a pod was created in the last ten
seconds (pods never seen count from the moment stopping began), or after five minutes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

QUIET_SECONDS = 10.0
LONGEST_SECONDS = 300.0
POLL_SECONDS = 0.5

Clock = Callable[[], float]


def may_leave(pods: Iterable[str], activity: Mapping[str, float], began: float, now: float) -> bool:
    """The rule, at one moment."""
    if now - began >= LONGEST_SECONDS:
        return True
    return all(now - activity.get(pod, began) >= QUIET_SECONDS for pod in pods)


async def wait_until_quiet(
    pods: Callable[[], Iterable[str]], activity: Mapping[str, float], *, clock: Clock = time.monotonic
) -> None:
    """Wait until the rule lets us go."""
    began = clock()
    while not may_leave(pods(), activity, began, clock()):  # noqa: ASYNC110 (time alone decides)
        await asyncio.sleep(POLL_SECONDS)
