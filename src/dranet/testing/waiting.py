"""Wait for an event, never for time: the one way in which tests and the sandbox wait for another process or thread.

The limit is generous and the same everywhere. It only ends a wait that would never end: no test may depend on how fast
the machine is. A wait that fails shows the last value it saw.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")
_LIMIT_SECONDS = 180.0
_PAUSE_SECONDS = 0.01


class WaitTimeout(AssertionError):
    """The condition did not become true within the limit."""


def wait_until(
    check: Callable[[], _T], what: str = "", *, seen: Callable[[], object] | None = None, limit: float = _LIMIT_SECONDS
) -> _T:
    """The first true value of `check`. Fails with the last value, or with what `seen` returns."""
    deadline = time.monotonic() + limit
    while not (found := check()):
        if time.monotonic() > deadline:
            raise _timeout(what, seen() if seen else found, limit)
        time.sleep(_PAUSE_SECONDS)
    return found


async def until(
    check: Callable[[], _T | Awaitable[_T]],
    what: str = "",
    *,
    seen: Callable[[], object] | None = None,
    limit: float = _LIMIT_SECONDS,
) -> _T:
    """The same on an event loop; `check` may be a coroutine function."""
    deadline = time.monotonic() + limit
    while not (found := await _value(check())):
        if time.monotonic() > deadline:
            raise _timeout(what, seen() if seen else found, limit)
        await asyncio.sleep(_PAUSE_SECONDS)
    return found


async def _value(found: _T | Awaitable[_T]) -> _T:
    return await found if isinstance(found, Awaitable) else found


def _timeout(what: str, last: object, limit: float) -> WaitTimeout:
    return WaitTimeout(f"waited {limit:g} s for {what or 'a condition'}; last seen: {last!r}")
