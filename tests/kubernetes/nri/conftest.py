"""Fixtures for the NRI library: a short folder for sockets, and two muxes joined by a socket pair."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dranet.kubernetes.nri.mux import Mux
from dranet.kubernetes.nri.request_context import ArrivalClock


@pytest.fixture
def folder() -> Iterator[Path]:
    """pytest's own folders have names too long for a unix socket."""
    with tempfile.TemporaryDirectory(prefix="nri") as path:
        yield Path(path)


@pytest.fixture
async def muxes() -> AsyncIterator[tuple[Mux, Mux]]:
    ours, theirs = await joined_muxes()
    yield ours, theirs
    for mux in (ours, theirs):
        mux.close()
        await mux.wait_closed()


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
async def stalled_muxes(clock: HandClock) -> AsyncIterator[tuple[Mux, Mux]]:
    """Two muxes, of which the second tells the time by the test's clock: move it, and its loop has been asleep."""
    ours, theirs = await joined_muxes(ArrivalClock(clock))
    yield ours, theirs
    for mux in (ours, theirs):
        mux.close()
        await mux.wait_closed()


async def joined_muxes(arrivals: ArrivalClock | None = None) -> tuple[Mux, Mux]:
    loop = asyncio.get_running_loop()
    one, other = socket.socketpair()
    _, ours = await loop.create_unix_connection(Mux, sock=one)
    _, theirs = await loop.create_unix_connection(lambda: Mux(arrivals), sock=other)
    return ours, theirs
