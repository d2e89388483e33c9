"""A gRPC server on a socket file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grpclib.server import Server

from dranet.kubelet.sockets import PublishedSocket, publish

_LOOK_AGAIN = 0.02


class Endpoint:
    """Services on a socket that was put in place whole and is taken away whole."""

    def __init__(self, server: _Server, file: PublishedSocket) -> None:
        self._server = server
        self._file = file

    @classmethod
    async def open(cls, path: Path, services: Sequence[object]) -> Endpoint:
        """Serve at a path. The socket appears there only once it answers, so nobody connects in between."""
        server = _Server(services)

        async def listen(hidden: Path) -> None:
            await server.start(path=str(hidden))

        return cls(server, await publish(path, listen))

    async def deserted(self, patience: float) -> None:
        """Wait until nobody is connected, `patience` seconds at most."""
        end = time.monotonic() + patience
        while self._server.connected() and time.monotonic() < end:  # noqa: ASYNC110 (grpclib tells nobody)
            await asyncio.sleep(_LOOK_AGAIN)

    async def close(self) -> None:
        """Remove the file, accept nothing more, hang up."""
        self._file.remove()
        # asyncio stumbles over a connection that is accepted but not yet set up when its server closes: let those
        # through that came in before the file was gone. Closing a connection takes a turn of the loop, too.
        await _turns(3)
        self._server.close()
        await _turns(1)


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class _Server(Server):  # type: ignore[misc]  # grpclib is not checked
    """grpclib's server, except that closing it also hangs up.

    The kubelet keeps its connection open, and a closed server that holds on to it looks alive to the kubelet.
    """

    def __init__(self, services: Sequence[object]) -> None:
        super().__init__(services)
        self._connections: list[Any] = []

    def connected(self) -> bool:
        self._connections = [each for each in self._connections if not each.handler.closing]
        return bool(self._connections)

    def _protocol_factory(self) -> Any:
        self.connected()  # forgets those that have left
        self._connections.append(super()._protocol_factory())
        return self._connections[-1]

    def close(self) -> None:
        super().close()
        for connection in self._connections:
            if hasattr(connection, "processor"):
                connection.processor.close("the plugin stops")
