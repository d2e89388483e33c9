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
        connection = h11.Connection(h11.SERVER)
        try:
            async with asyncio.timeout(_PATIENCE):
                request = await _request(connection, reader)
                status, content_type, body = self._answer(request)
                writer.write(_response(connection, status, content_type, body))
                await writer.drain()
        except (h11.RemoteProtocolError, TimeoutError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, request: h11.Request) -> Answer:
        if request.method not in (b"GET", b"HEAD"):
            return 405, _TEXT, b"only GET is answered here\n"
        match request.target.partition(b"?")[0]:
            case b"/healthz":
                return (200, _TEXT, b"ok\n") if self._healthy() else (503, _TEXT, b"starting\n")
            case b"/readyz":
                missing = self._missing()
                return (
                    (503, _TEXT, f"waiting for: {', '.join(missing)}\n".encode()) if missing else (200, _TEXT, b"ok\n")
                )
            case b"/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        return 404, _TEXT, b"try /healthz, /readyz or /metrics\n"


def split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise InvalidInput(f"--bind-address: {address!r} is not HOST:PORT or :PORT")
    return host.strip("[]"), int(port)


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(65536))
        else:
            raise h11.RemoteProtocolError("the client hung up")


def _response(connection: h11.Connection, status: int, content_type: str, body: bytes) -> bytes:
    headers = [("content-type", content_type), ("content-length", str(len(body))), ("connection", "close")]
    events = (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage())
    return b"".join(connection.send(event) or b"" for event in events)
