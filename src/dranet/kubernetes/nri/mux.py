"""Multiplexes logical connections over one unix socket.

Connection 1 carries the runtime's calls to the plugin, connection 2 the plugin's calls to the runtime. Opening a
connection sends nothing: both ends know the numbers, and bytes for a connection that is not open are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

from dranet.kubernetes.nri.errors import ConnectionClosed
from dranet.kubernetes.nri.frames import MuxReader, mux_frames
from dranet.kubernetes.nri.request_context import ArrivalClock, peer_hung_up

PLUGIN_SERVICE = 1
RUNTIME_SERVICE = 2


class Receiver(Protocol):
    """Receives the bytes of a logical connection."""

    def received(self, data: bytes) -> None: ...

    def closed(self) -> None: ...


class Mux(asyncio.Protocol):
    """The socket. Pass it to a loop as protocol, then `open` logical connections on it."""

    def __init__(self, arrivals: ArrivalClock | None = None) -> None:
        self.arrivals = arrivals or ArrivalClock()
        self._reader = MuxReader()
        self._receivers: dict[int, Receiver] = {}
        self._transport: asyncio.Transport | None = None
        self._socket: int = -1
        self._writable = asyncio.Event()
        self._closed = asyncio.Event()
        self._on_connect: Callable[[Mux], None] | None = None

    @classmethod
    async def connect(cls, path: Path, arrivals: ArrivalClock | None = None) -> Mux:
        _, mux = await asyncio.get_running_loop().create_unix_connection(lambda: cls(arrivals), str(path))
        return mux

    @classmethod
    async def listen(cls, path: Path, accept: Callable[[Mux], None]) -> asyncio.Server:
        """Serve a socket; `accept` is called with each new mux before any of its bytes are read."""

        def factory() -> Mux:
            mux = cls()
            mux._on_connect = accept
            return mux

        return await asyncio.get_running_loop().create_unix_server(factory, str(path))

    def open(self, connection: int, receiver: Receiver) -> Channel:
        if connection < 1 or connection in self._receivers:
            raise ValueError(f"logical connection {connection} is reserved or already open")
        self._receivers[connection] = receiver
        return Channel(self, connection)

    def write(self, connection: int, data: bytes) -> None:
        if self._transport is None or self._closed.is_set() or self._transport.is_closing():
            raise ConnectionClosed("the connection is closed")
        self._transport.write(mux_frames(connection, data))

    async def drain(self) -> None:
        """Wait while the peer does not read fast enough."""
        await self._writable.wait()

    def hung_up(self) -> bool:
        return self._closed.is_set() or peer_hung_up(self._socket)

    def close(self) -> None:
        """Close after everything written so far has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def shutdown(self, grace: float = 1.0) -> None:
        """Close; abort if the peer does not read for `grace` seconds."""
        self.close()
        try:
            await asyncio.wait_for(self.wait_closed(), grace)
        except TimeoutError:
            self.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._socket = transport.get_extra_info("socket").fileno()
        self._writable.set()
        self.arrivals.start()
        if self._on_connect is not None:
            self._on_connect(self)

    def data_received(self, data: bytes) -> None:
        for connection, piece in self._reader.feed(data):
            receiver = self._receivers.get(connection)
            if receiver is not None:
                receiver.received(piece)

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = -1
        self.arrivals.stop()
        self._closed.set()
        self._writable.set()
        for receiver in self._receivers.values():
            receiver.closed()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()


class Channel:
    """The sending side of one logical connection."""

    def __init__(self, mux: Mux, connection: int) -> None:
        self.mux = mux
        self._connection = connection

    def write(self, data: bytes) -> None:
        self.mux.write(self._connection, data)

    async def drain(self) -> None:
        await self.mux.drain()
