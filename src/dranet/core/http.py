"""HTTP/1.1 clients and servers: h11's state machine over asyncio streams.

The API server's client, metadata services, health and metrics, the page and the sandbox all use an `HttpConnection`.
Connection pools, authentication and heartbeats are left to them. A connection has no timeouts (its callers have
deadlines) and translates no errors: streams raise OSError, h11 raises ProtocolError.

Why h11 and not a framework: it is 2,000 lines without I/O, and the daemon runs as root on every node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import h11

_CHUNK = 65536
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``target`` is path and query. Header names of a received request are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.method} {self.target}"

    @property
    def path(self) -> str:
        """The target without its query."""
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """The fields of the query; the last one of duplicates."""
        return dict(parse_qsl(urlsplit(self.target).query))


class ResponseHead(NamedTuple):
    """Status and headers of a response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]


class BodyTooLarge(ValueError):
    """The body is larger than the limit."""


class HttpConnection:
    """One connection of a client or a server."""

    __slots__ = ("_http", "_without_body", "reader", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, server: bool = False) -> None:
        self.reader = reader
        self.writer = writer
        self._http = h11.Connection(h11.SERVER if server else h11.CLIENT)
        self._without_body = False

    async def send_request(self, request: Request, host: str) -> ResponseHead:
        """Send a request and wait for the head of the response."""
        fields = {"Host": host, **request.headers}
        if request.body or request.method in _WITH_BODY:
            fields["Content-Length"] = str(len(request.body))
        head = h11.Request(method=request.method, target=request.target, headers=list(fields.items()))
        await self._send(head, h11.Data(data=request.body), h11.EndOfMessage())
        event = await self._event()
        while isinstance(event, h11.InformationalResponse):
            event = await self._event()
        if not isinstance(event, h11.Response):
            raise h11.RemoteProtocolError(f"expected a response head, got {event!r}")
        return ResponseHead(event.status_code, _plain(event.headers))

    async def receive_request(self) -> Request | None:
        """The head of the next request, whose body is still to be read; None if the client sends no more."""
        event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        # The response to HEAD has a length but no body; h11 refuses to send one.
        self._without_body = event.method == b"HEAD"
        return Request(event.method.decode(), event.target.decode("latin-1"), _plain(event.headers))

    async def send_response(self, status: int, headers: Mapping[str, str], body: bytes | AsyncIterable[bytes]) -> None:
        """Send a body at once, or a stream piece by piece."""
        if isinstance(body, bytes):
            fields = {**headers, "Content-Length": str(len(body))}
            await self._send(_response(status, fields), self._data(body), h11.EndOfMessage())
            return
        await self._send(_response(status, headers))
        async for piece in body:
            await self._send(self._data(piece))
        await self._send(h11.EndOfMessage())

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises if the peer closes the connection before its end."""
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise h11.RemoteProtocolError("the peer closed the connection early")
            yield bytes(event.data)

    async def body(self, limit: int | None = None) -> bytes:
        """The whole body; raises :class:`TooLarge` past ``limit`` bytes, without reading the rest."""
        found = bytearray()
        async for chunk in self.chunks():
            found += chunk
            if limit is not None and len(found) > limit:
                raise BodyTooLarge(f"the body is larger than {limit} bytes")
        return bytes(found)

    def start_next_exchange(self) -> bool:
        """Prepare the connection for another request; False if it cannot be reused."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return not self.reader.at_eof()

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self.reader.read(_CHUNK))
        return event

    def _data(self, data: bytes) -> h11.Data:
        return h11.Data(data=b"" if self._without_body else data)

    async def _send(self, *events: h11.Event) -> None:
        # One write, so that a small request or response is one packet and its body arrives with its head.
        self.writer.write(b"".join(self._http.send(event) or b"" for event in events))
        await self.writer.drain()


def _response(status: int, headers: Mapping[str, str]) -> h11.Response:
    return h11.Response(status_code=status, headers=list(headers.items()))


def _plain(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    # h11 has lower-cased the names.
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
