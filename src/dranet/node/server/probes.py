"""/livez, /healthz, /readyz and /metrics.

A process that answers is alive. The driver is healthy once it has started, while nothing is missing for long. It is
ready while nothing is missing.

Starting takes time, and kubelet, runtime and API server come and go; readiness reports that. But some DaemonSets have
only a probe of `/healthz`, where a driver that cannot work would look healthy forever. Something that is missing for
minutes without interruption therefore counts as unhealthy. `/livez` never fails for that: restarting a driver that
waits for others does not help.

The port is shared (SO_REUSEPORT), so that during a rolling update the new driver can start next to the old one on the
host network. Replies are small; a connection is closed after one.

The server has a thread and an event loop of its own, because everyone who reaches the port can connect, and a hook has
two seconds. TLS and authorization are optional (`metrics_access`). Metrics are collected at most once a second, a
request has at most 16 KiB (h11's limit for a head; bodies are not read), and the number of connections is limited.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import h11
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from dranet.core.errors import InvalidInput
from dranet.core.http import HttpConnection, Request
from dranet.node.server.metrics_access import Certificate, MetricsGuard

LONG_SECONDS = 120.0
MAX_CONNECTIONS = 32
METRICS_SECONDS = 1.0
_POLL_SECONDS = 5.0
_REQUEST_SECONDS = 5.0
_TEXT = "text/plain; charset=utf-8"

_Reply = tuple[int, str, bytes]
Missing = Callable[[], list[str]]
Clock = Callable[[], float]


class HealthState:
    """Since when each thing is missing."""

    def __init__(self, missing: Missing, *, long: float = LONG_SECONDS, clock: Clock = time.monotonic) -> None:
        self._missing = missing
        self._long = long
        self._clock = clock
        self._since: dict[str, float] = {}

    def update(self) -> None:
        now = self._clock()
        self._since = {what: self._since.get(what, now) for what in self._missing()}

    def long_missing(self) -> list[str]:
        """What has been missing for long, each with its duration."""
        self.update()
        now = self._clock()
        return [f"{what} (for {now - since:.0f} s)" for what, since in self._since.items() if now - since > self._long]

    async def run(self) -> None:
        # Poll here, so that the age of an outage does not depend on probes and scrapes.
        while True:
            self.update()
            await asyncio.sleep(_POLL_SECONDS)


class ProbeServer:
    """The driver's HTTP server. An empty list of missing things is a good answer."""

    def __init__(
        self,
        metrics: Callable[[], bytes],
        *,
        long_missing: Missing,
        missing: Missing,
        clock: Clock = time.monotonic,
        certificate: Certificate | None = None,
        guard: MetricsGuard | None = None,
    ) -> None:
        self._tls = certificate.context if certificate else None
        self._guard = guard
        self._main_loop: asyncio.AbstractEventLoop | None = None
        self._metrics, self._long_missing, self._missing, self._clock = metrics, long_missing, missing, clock
        self._text, self._text_at = b"", -METRICS_SECONDS
        self._connections: dict[asyncio.Task[None], None] = {}
        """Oldest first."""
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], object] = lambda: None
        self.ports: list[int] = []

    async def start(self, address: str) -> None:
        """Listen on a Go-style address such as ``:9177`` or ``127.0.0.1:9177``."""
        host, port = split_address(address)
        self._main_loop = asyncio.get_running_loop()
        listening: Future[list[int]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(host, port, listening)), name="probes", daemon=True
        )
        self._thread.start()
        self.ports = await asyncio.wrap_future(listening)

    async def stop(self) -> None:
        if self._thread is not None:
            self._stop()
            await asyncio.to_thread(self._thread.join)

    async def _run(self, host: str, port: int, listening: Future[list[int]]) -> None:
        """The thread."""
        handshake = _REQUEST_SECONDS if self._tls else None
        try:
            server = await asyncio.start_server(
                self._accept, host or None, port, reuse_port=True, ssl=self._tls, ssl_handshake_timeout=handshake
            )
        except OSError as error:
            listening.set_exception(error)
            return
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stopping.set)
        listening.set_result([listener.getsockname()[1] for listener in server.sockets])
        await stopping.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The oldest goes, not the newest: a probe sends its request at once, and idle connections must not block it.
        if len(self._connections) >= MAX_CONNECTIONS:
            next(iter(self._connections)).cancel()
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections[task] = None
        task.add_done_callback(lambda _: writer.transport.abort())  # also if it never started
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = HttpConnection(reader, writer, server=True)
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                request = await connection.receive_request()
                if request is not None:
                    status, content_type, body = await self._refusal(request) or self._reply(request)
                    await connection.send_response(status, {"Content-Type": content_type, "Connection": "close"}, body)
                writer.close()
                await writer.wait_closed()
        except (h11.ProtocolError, TimeoutError, OSError):
            pass  # an invalid or slow client gets no reply

    async def _refusal(self, request: Request) -> _Reply | None:
        if self._guard is None or self._main_loop is None or request.path != "/metrics":
            return None
        # The client of the API server belongs to the main loop.
        asked = self._guard.refusal(request.headers.get("authorization", ""))
        refused = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked, self._main_loop))
        return (refused[0], _TEXT, f"{refused[1]}\n".encode()) if refused else None

    def _metrics_text(self) -> bytes:
        now = self._clock()
        if now - self._text_at >= METRICS_SECONDS:
            self._text, self._text_at = self._metrics(), now
        return self._text

    def _reply(self, request: Request) -> _Reply:
        if request.method not in ("GET", "HEAD"):
            return 405, _TEXT, b"method not allowed; use GET\n"
        match request.path:
            case "/livez":
                return 200, _TEXT, b"ok\n"
            case "/healthz":
                return _verdict(self._long_missing())
            case "/readyz":
                return _verdict(self._missing())
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, self._metrics_text()
        return 404, _TEXT, b"not found; use /livez, /healthz, /readyz or /metrics\n"


def _verdict(missing: list[str]) -> _Reply:
    return (503, _TEXT, f"waiting for: {', '.join(missing)}\n".encode()) if missing else (200, _TEXT, b"ok\n")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a Go-style address; an empty host means all addresses."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"--bind-address: {address!r} is not HOST:PORT or :PORT")
    return host.strip("[]"), int(port)
