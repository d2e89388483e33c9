"""The page's HTTP server on loopback: responses, and streams of events.

Other web pages in the same browser can reach loopback too. So the Host header must be a loopback name (against DNS
rebinding), and the browser's Origin and Sec-Fetch-Site headers must be those of this page.
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

from dranet.core.http import BodyTooLarge, HttpConnection, Request

REQUEST_SECONDS = 20.0
_HEARTBEAT_SECONDS = 15.0
MAX_BODY = 4 << 20
_COMPRESS_INLINE = 1 << 18
"""Up to so many bytes are compressed on the event loop, more in a thread."""

_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Response:
    """A body, or a stream that ends when the client disconnects."""

    status: int
    content_type: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None
    may_continue: Callable[[], Awaitable[bool]] | None = None
    """Whether the stream may continue; called before every piece and every heartbeat."""


Handler = Callable[[Request], Awaitable[Response]]


def text_response(status: int, message: str) -> Response:
    """A short message."""
    return Response(status, "text/plain; charset=utf-8", f"{message}\n".encode())


def is_loopback(host: str) -> bool:
    """``localhost``, ``127.x.y.z`` or ``::1``, and nothing else."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def refusal_reason(headers: Mapping[str, str]) -> str:
    """Why a request is refused; empty if it is not."""
    host = headers.get("host", "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if not is_loopback(name):
        return f"Host {host!r} refused: use localhost"
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return f"Origin {origin!r} refused: not this page"
    site = headers.get("sec-fetch-site", "none")
    if site not in {"none", "same-origin"}:
        return f"Sec-Fetch-Site {site!r} refused: not this page"
    return ""


async def serve_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    """Handle one request; the connection is closed afterwards."""
    connection = HttpConnection(reader, writer, server=True)
    with contextlib.suppress(h11.ProtocolError, TimeoutError, OSError):
        async with asyncio.timeout(REQUEST_SECONDS):
            request = await _request(connection)
        response = request if isinstance(request, Response) else await handler(request)
        gzipped = isinstance(request, Request) and "gzip" in request.headers.get("accept-encoding", "")
        await _send(connection, response, gzipped)


async def _request(connection: HttpConnection) -> Request | Response:
    """The request, or the response to a refused one."""
    head = await connection.receive_request()
    if head is None:
        raise ConnectionError("the client disconnected")
    if why := refusal_reason(head.headers):
        return text_response(403, why)
    try:
        return replace(head, body=await connection.body(MAX_BODY))
    except BodyTooLarge:
        return text_response(413, f"The body is larger than {MAX_BODY >> 20} MiB")


async def _send(connection: HttpConnection, response: Response, gzipped: bool) -> None:
    headers = {"Content-Type": response.content_type, "Connection": "close", **_SECURITY_HEADERS, **response.headers}
    if response.stream is None:
        await connection.send_response(response.status, headers, response.body)
        return
    async with contextlib.aclosing(_with_heartbeats(response.stream)) as pieces:
        allowed = _while_allowed(pieces, response.may_continue) if response.may_continue else pieces
        if gzipped:
            headers["Content-Encoding"] = "gzip"
        await connection.send_response(response.status, headers, _gzipped(allowed) if gzipped else allowed)


async def _while_allowed(
    pieces: AsyncIterator[bytes], may_continue: Callable[[], Awaitable[bool]]
) -> AsyncGenerator[bytes, None]:
    async for piece in pieces:
        if not await may_continue():
            return
        yield piece


async def _gzipped(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Compress and flush piece by piece. One stream: events repeat earlier content."""
    squeeze = zlib.compressobj(1, wbits=31)
    async for piece in pieces:
        start = (
            squeeze.compress(piece)
            if len(piece) < _COMPRESS_INLINE
            else await asyncio.to_thread(squeeze.compress, piece)
        )
        yield start + squeeze.flush(zlib.Z_SYNC_FLUSH)


async def _with_heartbeats(stream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The stream's pieces, and comments in between to detect that the client has disconnected."""
    pieces = stream.__aiter__()
    waiting: asyncio.Future[bytes] = asyncio.ensure_future(pieces.__anext__())
    try:
        while True:
            done, _ = await asyncio.wait({waiting}, timeout=_HEARTBEAT_SECONDS)
            if not done:
                yield b": heartbeat\n\n"
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
