"""HTTP/1.1 for everybody in the house: h11's state machine over asyncio streams, for either end of a connection.

The API server's client, metadata services, health and metrics, the page and the sandbox all speak through a `Wire`.
What they do around it is theirs: keeping connections, refusing strangers, heartbeats. A wire has no time-outs (its
callers have deadlines of their own) and translates no errors: streams raise OSError, h11 raises ProtocolError.

Why h11 and not a framework: it is 2,000 lines without input or output, and the daemon runs as root on every node.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import h11

CHUNK = 65536
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``target`` is path and query. Header names of one that was received are in lower case."""

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
        """The query's fields; of one that stands there twice, the last."""
        return dict(parse_qsl(urlsplit(self.target).query))


class Head(NamedTuple):
    """The beginning of an answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]


class TooLarge(ValueError):
    """The other side sends more than it may."""


class Wire:
    """One connection. A client asks and reads; a server receives and answers."""

    __slots__ = ("_http", "_without_body", "reader", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, server: bool = False) -> None:
        self.reader = reader
        self.writer = writer
        self._http = h11.Connection(h11.SERVER if server else h11.CLIENT)
        self._without_body = False

    async def ask(self, request: Request, host: str) -> Head:
        """Send a whole request and wait for the head of its answer."""
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
        return Head(event.status_code, _plain(event.headers))

    async def receive(self) -> Request | None:
        """The head of the next request, its body still to be read; None where the other side has no more."""
        event = await self._event()
        if not isinstance(event, h11.Request):
            return None
        # The answer to HEAD tells a length and has no body; h11 refuses to send one.
        self._without_body = event.method == b"HEAD"
        return Request(event.method.decode(), event.target.decode("latin-1"), _plain(event.headers))

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes | AsyncIterable[bytes]) -> None:
        """Send a whole body at once, or a stream piece by piece as it comes."""
        if isinstance(body, bytes):
            fields = {**headers, "Content-Length": str(len(body))}
            await self._send(_response(status, fields), self._data(body), h11.EndOfMessage())
            return
        await self._send(_response(status, headers))
        async for piece in body:
            await self._send(self._data(piece))
        await self._send(h11.EndOfMessage())

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body of what is being received, as it comes; raises where the other side leaves before its end."""
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise h11.RemoteProtocolError("the other side closed the connection early")
            yield bytes(event.data)

    async def body(self, limit: int | None = None) -> bytes:
        """The whole body; raises :class:`TooLarge` past ``limit`` bytes, without reading the rest."""
        found = bytearray()
        async for chunk in self.chunks():
            found += chunk
            if limit is not None and len(found) > limit:
                raise TooLarge(f"the body is larger than {limit} bytes")
        return bytes(found)

    def ready_again(self) -> bool:
        """Whether another exchange may follow on this connection; prepares it for one."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return not self.reader.at_eof()

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self.reader.read(CHUNK))
        return event

    def _data(self, data: bytes) -> h11.Data:
        return h11.Data(data=b"" if self._without_body else data)

    async def _send(self, *events: h11.Event) -> None:
        # One write for all: a small request or answer is one packet, and a server sees its body with its head.
        self.writer.write(b"".join(self._http.send(event) or b"" for event in events))
        await self.writer.drain()


def _response(status: int, headers: Mapping[str, str]) -> h11.Response:
    return h11.Response(status_code=status, headers=list(headers.items()))


def _plain(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """h11 has put the names in lower case."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
