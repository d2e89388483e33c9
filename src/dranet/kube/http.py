"""The way to one API server: just enough of a connection pool around :mod:`dranet.basics.http`.

:class:`Transport` is the seam to the world: tests and the sandbox answer requests in memory through it. A response is
always a stream; an ordinary answer is read to its end, a watch is read line by line until somebody closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

import h11

from dranet.basics.http import Head, Request, Wire
from dranet.kube.errors import ConnectionLost

MAX_IDLE = 4
IDLE_SECONDS = 30.0
"""A node asks seldom and its server serves thousands: a connection nobody uses is given back, the watch's stays."""


class Response(Protocol):
    """An answer whose head has arrived."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""

    async def close(self) -> None:
        """Give the connection back if the body was read to its end, else drop it. Safe to call twice."""


class Transport(Protocol):
    """The way to one API server."""

    async def open(self, request: Request) -> Response:
        """Send, and return when the head of the answer is there; raises ConnectionLost."""

    async def close(self) -> None:
        """Drop every connection."""


class _Connection(Wire):
    """A wire that remembers under which TLS settings it was made, whether it has served before, and until when it may
    lie idle."""

    __slots__ = ("context", "expiry", "used")

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(reader, writer)
        self.context = context
        self.used = False
        self.expiry: asyncio.TimerHandle | None = None

    def drop(self) -> None:
        """At once: a polite end of TLS would wait for a server that may be gone."""
        self.writer.transport.abort()


class _NetResponse:
    def __init__(self, transport: NetTransport, connection: _Connection, head: Head) -> None:
        self.status, self.headers = head
        self._transport = transport
        self._connection: _Connection | None = connection

    async def chunks(self) -> AsyncIterator[bytes]:
        if self._connection is None:
            return
        try:
            async for chunk in self._connection.chunks():
                yield chunk
        except (OSError, h11.ProtocolError) as error:
            raise ConnectionLost(f"the answer broke off: {error}") from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.release(connection)


class NetTransport:
    """Connections to one server, made when needed, kept while idle.

    ``context`` may be a function: once it gives another context, connections of the old one are not used again.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext | Callable[[], ssl.SSLContext] | None = None,
        *,
        server_name: str | None = None,
        connect_timeout: float = 10.0,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._host = host
        self._port = port
        self._context: Callable[[], ssl.SSLContext | None] = context if callable(context) else lambda: context
        self._server_name = (server_name or host) if context else None
        self._timeout = connect_timeout
        self._idle_seconds = idle_seconds
        self._idle: list[_Connection] = []
        self._closed = False

    async def open(self, request: Request) -> Response:
        """Send over an idle connection or a new one.

        An idle connection may have been closed by the server in the meantime; then nothing was answered on it, and a
        request that may be repeated is sent once more on a fresh one.
        """
        connection = await self._take()
        while True:
            try:
                head = await connection.ask(request, self._authority())
                return _NetResponse(self, connection, head)
            except (OSError, h11.ProtocolError, EOFError) as error:
                connection.drop()
                if not (connection.used and request.method != "POST"):
                    raise ConnectionLost(f"{request}: {self._authority()} gave no answer: {error}") from error
                connection = await self._connect()
            except BaseException:
                connection.drop()
                raise

    def release(self, connection: _Connection) -> None:
        """Keep a finished connection for the next request, or drop it."""
        if connection.ready_again() and len(self._idle) < MAX_IDLE and not self._closed:
            connection.used = True
            connection.expiry = asyncio.get_running_loop().call_later(self._idle_seconds, self._expire, connection)
            self._idle.append(connection)
        else:
            connection.drop()

    def _expire(self, connection: _Connection) -> None:
        self._idle.remove(connection)
        connection.drop()

    async def close(self) -> None:
        """Drop idle connections; those in use are dropped when their answers are closed."""
        self._closed = True
        for connection in self._idle:
            _stop_expiry(connection)
            connection.drop()
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()
        self._idle.clear()

    def _authority(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    async def _take(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            _stop_expiry(connection)
            alive = not connection.reader.at_eof() and not connection.writer.is_closing()
            if alive and connection.context is self._context():
                return connection
            connection.drop()
        return await self._connect()

    async def _connect(self) -> _Connection:
        context = self._context()
        try:
            async with asyncio.timeout(self._timeout):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=context, server_hostname=self._server_name
                )
        except (OSError, TimeoutError) as error:
            reason = str(error) or "timed out"
            raise ConnectionLost(f"cannot connect to the API server at {self._authority()}: {reason}") from error
        _notice_dead_peers(writer.get_extra_info("socket"))
        return _Connection(reader, writer, context)


def _stop_expiry(connection: _Connection) -> None:
    if connection.expiry is not None:
        connection.expiry.cancel()


def _notice_dead_peers(sock: socket.socket | None) -> None:
    """A watch only listens; without keepalives a vanished server would never be noticed."""
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
