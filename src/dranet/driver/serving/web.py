"""/livez, /healthz, /readyz and /metrics.

Alive is who answers. Well is who has started and lacks nothing for long. Ready is who lacks nothing now.

The port is shared (SO_REUSEPORT), so that during a rolling update the new driver can start beside the old one on the
host's network. Answers are small and built at once; a connection is closed after one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h11
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from dranet.basics.http import Request, Wire
from dranet.model.errors import InvalidInput

_PATIENCE = 5.0
_TEXT = "text/plain; charset=utf-8"

Answer = tuple[int, str, bytes]
Question = Callable[[], list[str]]


class Web:
    """The driver's HTTP side. Both questions name what is missing, for long and now; an empty answer is a good one."""

    def __init__(self, metrics: Callable[[], bytes], *, long_missing: Question, missing: Question) -> None:
        self._metrics = metrics
        self._long_missing = long_missing
        self._missing = missing
        self._server: asyncio.Server | None = None

    async def start(self, address: str) -> None:
        """Listen on a Go-style address such as ``:9177`` or ``127.0.0.1:9177``."""
        host, port = split_address(address)
        self._server = await asyncio.start_server(self._serve, host or None, port, reuse_port=True)

    @property
    def ports(self) -> list[int]:
        return [s.getsockname()[1] for s in self._server.sockets] if self._server else []

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer, server=True)
        try:
            async with asyncio.timeout(_PATIENCE):
                request = await wire.receive()
                if request is not None:
                    status, content_type, body = self._answer(request)
                    await wire.answer(status, {"Content-Type": content_type, "Connection": "close"}, body)
        except (h11.ProtocolError, TimeoutError, OSError):
            pass  # whoever asks wrongly, slowly or not at all gets no answer
        finally:
            writer.close()

    def _answer(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET is answered here\n"
        match request.path:
            case "/livez":
                return 200, _TEXT, b"ok\n"
            case "/healthz":
                return _verdict(self._long_missing())
            case "/readyz":
                return _verdict(self._missing())
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, self._metrics()
        return 404, _TEXT, b"try /livez, /healthz, /readyz or /metrics\n"


def _verdict(missing: list[str]) -> Answer:
    return (503, _TEXT, f"waiting for: {', '.join(missing)}\n".encode()) if missing else (200, _TEXT, b"ok\n")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a Go-style address; an empty host means all addresses."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"--bind-address: {address!r} is not HOST:PORT or :PORT")
    return host.strip("[]"), int(port)
