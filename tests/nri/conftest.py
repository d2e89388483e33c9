"""Fixtures for the NRI library: a short folder for sockets, and two trunks joined by a socket pair."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dranet.nri.arrivals import ArrivalClock
from dranet.nri.trunk import Trunk


@pytest.fixture
def folder() -> Iterator[Path]:
    """pytest's own folders have names too long for a unix socket."""
    with tempfile.TemporaryDirectory(prefix="nri") as path:
        yield Path(path)


@pytest.fixture
async def trunks() -> AsyncIterator[tuple[Trunk, Trunk]]:
    ours, theirs = await joined_trunks()
    yield ours, theirs
    for trunk in (ours, theirs):
        trunk.close()
        await trunk.wait_closed()


class HandClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def stalled_trunks(clock: HandClock) -> AsyncIterator[tuple[Trunk, Trunk]]:
    """Two trunks, of which the second tells the time by the test's clock: move it, and its loop has been asleep."""
    ours, theirs = await joined_trunks(ArrivalClock(clock))
    yield ours, theirs
    for trunk in (ours, theirs):
        trunk.close()
        await trunk.wait_closed()


async def joined_trunks(arrivals: ArrivalClock | None = None) -> tuple[Trunk, Trunk]:
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    _, ours = await loop.create_unix_connection(Trunk, sock=one)
    _, theirs = await loop.create_unix_connection(lambda: Trunk(arrivals), sock=other)
    return ours, theirs
