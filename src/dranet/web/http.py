"""A very small HTTP server for one person on this machine: whole answers, and streams of events.

Other web pages in the same browser can reach loopback too. So a request must name this host (a foreign name that
resolves here is refused: DNS rebinding), and what a browser says about the request's origin must be this very page.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

import h11

PATIENCE_SECONDS = 20.0
HEARTBEAT_SECONDS = 15.0
MAX_BODY = 4 << 20
LARGEST_CHUNK = 65536

SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked; header names in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole body, or a stream that ends when the other side leaves."""

    status: int
    content_type: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None


Handler = Callable[[Request], Awaitable[Answer]]


def text(status: int, message: str) -> Answer:
    """A short answer for people."""
    return Answer(status, "text/plain; charset=utf-8", f"{message}\n".encode())


def is_loopback(host: str) -> bool:
    """``localhost``, ``127.x.y.z`` or ``::1``, and nothing else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refusal(headers: Mapping[str, str]) -> str:
    """Why a request is not for us; an empty text where it is."""
    host = headers.get("host", "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        return f"this page answers to localhost, not to {host!r}"
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return f"this page answers only itself, not {origin!r}"
    site = headers.get("sec-fetch-site", "none")
    if site not in {"none", "same-origin"}:
        return f"this page answers only itself, not a {site} request"
    return ""


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """One request and its answer; then the connection is closed."""
    connection = h11.Connection(h11.SERVER)
    with contextlib.suppress(h11.ProtocolError, TimeoutError, OSError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            request = await _request(connection, reader)
        answer = request if isinstance(request, Answer) else await handler(request)
        await _send(connection, writer, answer)


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> Request | Answer:
    head: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(LARGEST_CHUNK))
        elif isinstance(event, h11.Request):
            head = event
            headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in head.headers}
            if why := refusal(headers):
                return text(403, why)
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_BODY:
                return text(413, f"more than {MAX_BODY >> 20} MiB")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            url = urlsplit(head.target.decode("latin-1"))
            return Request(head.method.decode(), url.path, dict(parse_qsl(url.query)), headers, body)
        else:
            raise ConnectionError("the other side left")


async def _send(connection: h11.Connection, writer: asyncio.StreamWriter, answer: Answer) -> None:
    headers = {"Content-Type": answer.content_type, "Connection": "close", **SAFETY, **answer.headers}
    if answer.stream is None:
        headers["Content-Length"] = str(len(answer.body))
    await _write(connection, writer, h11.Response(status_code=answer.status, headers=list(headers.items())))
    if answer.stream is None:
        await _write(connection, writer, h11.Data(data=answer.body))
    else:
        await _pour(connection, writer, answer.stream)
    await _write(connection, writer, h11.EndOfMessage())


async def _pour(connection: h11.Connection, writer: asyncio.StreamWriter, stream: AsyncIterator[bytes]) -> None:
    """The stream's pieces as they come; a comment now and then finds out that nobody listens any more."""
    pieces = stream.__aiter__()
    waiting: asyncio.Future[bytes] = asyncio.ensure_future(pieces.__anext__())
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT_SECONDS)
            if not done:
                await _write(connection, writer, h11.Data(data=b": still here\n\n"))
                continue
            try:
                piece = waiting.result()
            except StopAsyncIteration:
                return
            await _write(connection, writer, h11.Data(data=piece))
            waiting = asyncio.ensure_future(pieces.__anext__())
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await waiting


async def _write(connection: h11.Connection, writer: asyncio.StreamWriter, event: h11.Event) -> None:
    writer.write(connection.send(event) or b"")
    await writer.drain()
