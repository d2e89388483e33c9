"""Fixtures for the kubelet plugin: a short kubelet root, a driver to play with, plugins that are stopped in the end."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dranet.core.names import ClaimRef
from dranet.kubernetes.kubelet import DeviceHealth, Plugin, PreparedDevice, PrepareError


class PlayedDriver:
    """Prepares anything but a claim named "bad". A claim with a gate waits for it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.begun = asyncio.Event()
        self.reports: asyncio.Queue[Sequence[DeviceHealth]] = asyncio.Queue()

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        await self._note("prepare", claim)
        if claim.name == "bad":
            raise PrepareError("no such nic; ask for another")
        return [PreparedDevice(("req",), "node-1", "eth-1", ("dra.net/claim=1",), share_id="share")]

    async def after_reply(self, claim: ClaimRef) -> None:
        """Waits for a gate of its own: that of the claim is prepare's."""
        if (gate := self.gates.get(f"after {claim.name}")) is not None:
            await gate.wait()
            self.log.append(f"after reply {claim.name} done")

    async def unprepare(self, claim: ClaimRef) -> None:
        await self._note("unprepare", claim)
        if claim.name == "bug":
            raise ZeroDivisionError("surprise")

    async def health(self) -> AsyncIterator[Sequence[DeviceHealth]]:
        while True:
            yield await self.reports.get()

    async def _note(self, what: str, claim: ClaimRef) -> None:
        self.log.append(f"{what} {claim.name}")
        self.begun.set()
        if (gate := self.gates.get(claim.name)) is not None:
            await gate.wait()
        self.log.append(f"{what} {claim.name} done")


@pytest.fixture
def root() -> Iterator[Path]:
    """pytest's own folders have names too long for a unix socket."""
    with tempfile.TemporaryDirectory(prefix="kl") as path:
        yield Path(path)


@pytest.fixture
def driver() -> PlayedDriver:
    return PlayedDriver()


@pytest.fixture
async def start(root: Path, driver: PlayedDriver) -> AsyncIterator[Callable[..., Awaitable[Plugin]]]:
    """Start a plugin; it is stopped when the test ends."""
    plugins: list[Plugin] = []

    async def start_plugin(handler: Any = driver, name: str = "dra.net", **options: Any) -> Plugin:
        plugin = Plugin(name, handler, root=root, **options)
        plugins.append(plugin)
        await plugin.start()
        return plugin

    yield start_plugin
    for plugin in plugins:
        await plugin.stop(grace=0)
    for _ in range(10):  # a connection takes a few turns of the loop from accept to closed
        await asyncio.sleep(0)
