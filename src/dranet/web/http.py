"""The door of the page, for one person on this machine: whole answers, and streams of events.

Other web pages in the same browser can reach loopback too. So a request must name this host (a foreign name that
resolves here is refused: DNS rebinding), and what a browser says about the request's origin must be this very page.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import h11

from dranet.basics.http import Request, TooLarge, Wire

PATIENCE_SECONDS = 20.0
HEARTBEAT_SECONDS = 15.0
MAX_BODY = 4 << 20
AT_ONCE = 1 << 18
"""Bytes that are compressed in passing; more go to a thread."""

SAFETY = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole body, or a stream that ends when the other side leaves."""

    status: int
    content_type: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None
    still: Callable[[], Awaitable[bool]] | None = None
    """Whether the stream may go on, asked before every piece and every heartbeat."""


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
    wire = Wire(reader, writer, server=True)
    with contextlib.suppress(h11.ProtocolError, TimeoutError, OSError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            request = await _request(wire)
        answer = request if isinstance(request, Answer) else await handler(request)
        gzipped = isinstance(request, Request) and "gzip" in request.headers.get("accept-encoding", "")
        await _send(wire, answer, gzipped)


async def _request(wire: Wire) -> Request | Answer:
    """The whole request, or the answer to one that is not let in."""
    head = await wire.receive()
    if head is None:
        raise ConnectionError("the other side left")
    if why := refusal(head.headers):
        return text(403, why)
    try:
        return replace(head, body=await wire.body(MAX_BODY))
    except TooLarge:
        return text(413, f"more than {MAX_BODY >> 20} MiB")


async def _send(wire: Wire, answer: Answer, gzipped: bool) -> None:
    headers = {"Content-Type": answer.content_type, "Connection": "close", **SAFETY, **answer.headers}
    if answer.stream is None:
        await wire.answer(answer.status, headers, answer.body)
        return
    async with contextlib.aclosing(_with_heartbeats(answer.stream)) as pieces:
        allowed = _while_allowed(pieces, answer.still) if answer.still else pieces
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        await wire.answer(answer.status, headers, _gzipped(allowed) if gzipped else allowed)


async def _while_allowed(
    pieces: AsyncIterator[bytes], still: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        if not await still():
            return
        yield piece


async def _gzipped(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Every piece in full as it comes. Much of an event was said in those before it; a whole fleet takes long enough
    that others have their turn meanwhile."""
    squeeze = zlib.compressobj(1, wbits=31)
    async for piece in pieces:
        start = squeeze.compress(piece) if len(piece) < AT_ONCE else await asyncio.to_thread(squeeze.compress, piece)
        yield start + squeeze.flush(zlib.Z_SYNC_FLUSH)


async def _with_heartbeats(stream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The stream's pieces as they come; a comment now and then finds out that nobody listens any more."""
    pieces = stream.__aiter__()
    waiting: asyncio.Future[bytes] = asyncio.ensure_future(pieces.__anext__())
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=HEARTBEAT_SECONDS)
            if not done:
                yield b": still here\n\n"
                continue
            try:
                piece = waiting.result()
            except StopAsyncIteration:
                return
            yield piece
            waiting = asyncio.ensure_future(pieces.__anext__())
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await waiting
