"""/healthz, /readyz and /metrics.

The port is shared (SO_REUSEPORT), so that during a rolling update the new driver can start beside the old one on the
host's network. Answers are small and built at once; a connection is closed after one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h11
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from dranet.basics.http import Request, Wire
from dranet.model.errors import InvalidInput

_PATIENCE = 5.0
_TEXT = "text/plain; charset=utf-8"

Answer = tuple[int, str, bytes]


class Web:
    """The driver's HTTP side. `ready` names what is still missing; an empty answer means ready."""

    def __init__(
        self, registry: CollectorRegistry, *, healthy: Callable[[], bool], missing: Callable[[], list[str]]
    ) -> None:
        self._registry = registry
        self._healthy = healthy
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
            case "/healthz":
                return (200, _TEXT, b"ok\n") if self._healthy() else (503, _TEXT, b"starting\n")
            case "/readyz":
                missing = self._missing()
                return (
                    (503, _TEXT, f"waiting for: {', '.join(missing)}\n".encode()) if missing else (200, _TEXT, b"ok\n")
                )
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        return 404, _TEXT, b"try /healthz, /readyz or /metrics\n"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of a Go-style address; an empty host means all addresses."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"--bind-address: {address!r} is not HOST:PORT or :PORT")
    return host.strip("[]"), int(port)
