"""Waiting in asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def wait_at_most(seconds: float | None, event: asyncio.Event) -> bool:
    """Whether the event was set within this time; None sets no limit."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def in_thread(call: Callable[[], T]) -> T:
    """Run the call in a thread. A cancelled caller waits for its end: the thread uses files that others close next."""
    thread = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait({thread})
        raise
