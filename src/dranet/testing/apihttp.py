"""The fake API server on a socket, for clients in other processes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import h11

from dranet.core.http import HttpConnection
from dranet.testing.apiserver import SandboxApiServer


@contextlib.asynccontextmanager
async def serve(
    api: SandboxApiServer,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    context: ssl.SSLContext | None = None,
    listener: socket.socket | None = None,
) -> AsyncIterator[int]:
    """Listen; yields the port. `listener` may come from another namespace. Closes all connections at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _serve_connection(api, HttpConnection(reader, writer, server=True))
        except (OSError, h11.ProtocolError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    where: dict[str, Any] = {"sock": listener} if listener is not None else {"host": host, "port": port}
    server = await asyncio.start_server(accept, ssl=context, **where)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _serve_connection(api: SandboxApiServer, connection: HttpConnection) -> None:
    while (head := await connection.receive_request()) is not None:
        response = await api.handle(replace(head, body=await connection.body()))
        try:
            body = response.body if response.lines is None else response.chunks()
            await connection.send_response(response.status, response.headers, body)
        finally:
            await response.close()
        if not connection.start_next_exchange():
            return
