"""A gRPC server on a socket file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpclib.server import Server

from dranet.kubernetes.kubelet.sockets import PublishedSocket, publish

_POLL_SECONDS = 0.02


class Endpoint:
    """gRPC services on a published socket file."""

    def __init__(self, server: _Server, file: PublishedSocket) -> None:
        self._server = server
        self._file = file

    @classmethod
    async def open(cls, path: Path, services: Sequence[object]) -> Endpoint:
        """Serve at a path. The socket file appears only when the server accepts connections."""
        server = _Server(services)

        async def listen(hidden: Path) -> None:
            await server.start(path=str(hidden))

        return cls(server, await publish(path, listen))

    async def wait_disconnected(self, timeout: float) -> None:
        """Wait until all clients have disconnected, `timeout` seconds at most."""
        end = time.monotonic() + timeout
        while self._server.connected() and time.monotonic() < end:  # noqa: ASYNC110 (grpclib has no event for it)
            await asyncio.sleep(_POLL_SECONDS)

    async def close(self) -> None:
        """Remove the file, stop accepting, close all connections."""
        self._file.remove()
        # asyncio fails on a connection that is accepted but not set up when its server closes, so let those finish
        # that came before the file was removed. Closing a connection takes an iteration of the loop, too.
        await _yield_to_loop(3)
        self._server.close()
        await _yield_to_loop(1)


async def _yield_to_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class _Server(Server):  # type: ignore[misc]  # grpclib is not checked
    """grpclib's server, but `close` also closes the connections.

    The kubelet keeps its connection open, and would take a closed server with open connections for a running one.
    """

    def __init__(self, services: Sequence[object]) -> None:
        super().__init__(services)
        self._connections: list[Any] = []

    def connected(self) -> bool:
        self._connections = [each for each in self._connections if not each.handler.closing]
        return bool(self._connections)

    def _protocol_factory(self) -> Any:
        self.connected()  # drops closed connections
        self._connections.append(super()._protocol_factory())
        return self._connections[-1]

    def close(self) -> None:
        super().close()
        for connection in self._connections:
            if hasattr(connection, "processor"):
                connection.processor.close("the plugin stops")
