"""A connection pool for one API server on top of :mod:`dranet.core.http`.

Tests and the sandbox replace :class:`Transport` to answer requests in memory. A response is always a stream: an
ordinary one is read to its end, a watch is read line by line until the caller closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

import h11

from dranet.core.http import HttpConnection, Request, ResponseHead
from dranet.kubernetes.api.errors import ConnectionLost

MAX_IDLE = 4
IDLE_SECONDS = 30.0
"""The API server has thousands of clients, so close connections that are not used for this long."""


class Response(Protocol):
    """A response whose head has arrived."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The chunks of the body as they arrive."""

    async def close(self) -> None:
        """Return the connection to the pool if the body was read to its end, else drop it. Safe to call twice."""


class Transport(Protocol):
    """Sends requests to one API server."""

    async def open(self, request: Request) -> Response:
        """Send, and return when the head of the response has arrived; raises ConnectionLost."""

    async def close(self) -> None:
        """Drop every connection."""


class _Connection(HttpConnection):
    """A connection with its TLS context, whether it has served a request, and its idle timer."""

    __slots__ = ("context", "expiry", "used")

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext | None
    ) -> None:
        super().__init__(reader, writer)
        self.context = context
        self.used = False
        self.expiry: asyncio.TimerHandle | None = None

    def drop(self) -> None:
        """Abort: a clean TLS shutdown would wait for a server that may be gone."""
        self.writer.transport.abort()


class _NetResponse:
    def __init__(self, transport: NetTransport, connection: _Connection, head: ResponseHead) -> None:
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
            raise ConnectionLost(f"the response ended early: {error}") from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.release(connection)


class NetTransport:
    """Connections to one server, opened on demand and kept while idle.

    ``context`` may be a function: connections of an old context are not reused.
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

        The server may have closed an idle connection. Then it did not answer, and a request that may be repeated is
        sent again on a new connection.
        """
        connection = await self._take()
        while True:
            try:
                head = await connection.send_request(request, self._authority())
                return _NetResponse(self, connection, head)
            except (OSError, h11.ProtocolError, EOFError) as error:
                connection.drop()
                if not (connection.used and request.method != "POST"):
                    raise ConnectionLost(f"{request}: {self._authority()} did not answer: {error}") from error
                connection = await self._connect()
            except BaseException:
                connection.drop()
                raise

    def release(self, connection: _Connection) -> None:
        """Return a connection to the pool, or drop it."""
        if connection.start_next_exchange() and len(self._idle) < MAX_IDLE and not self._closed:
            connection.used = True
            connection.expiry = asyncio.get_running_loop().call_later(self._idle_seconds, self._expire, connection)
            self._idle.append(connection)
        else:
            connection.drop()

    def _expire(self, connection: _Connection) -> None:
        self._idle.remove(connection)
        connection.drop()

    async def close(self) -> None:
        """Drop idle connections; those in use are dropped when their responses are closed."""
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
        _enable_keepalive(writer.get_extra_info("socket"))
        return _Connection(reader, writer, context)


def _stop_expiry(connection: _Connection) -> None:
    if connection.expiry is not None:
        connection.expiry.cancel()


def _enable_keepalive(sock: socket.socket | None) -> None:
    """A watch only reads; without keepalives it would never notice a server that is gone."""
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
