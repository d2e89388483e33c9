"""The sandbox's API server on a socket, for clients that are not in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import h11

from dranet.basics.http import Wire
from dranet.sandbox.apiserver import SandboxApiServer


@contextlib.asynccontextmanager
async def serve(
    api: SandboxApiServer,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    context: ssl.SSLContext | None = None,
    listener: socket.socket | None = None,
) -> AsyncIterator[int]:
    """Listen; gives the port. A ready `listener` may come from another network namespace. Open connections are dropped
    at the end."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await _converse(api, Wire(reader, writer, server=True))
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


async def _converse(api: SandboxApiServer, wire: Wire) -> None:
    while (head := await wire.receive()) is not None:
        answer = await api.handle(replace(head, body=await wire.body()))
        try:
            await wire.answer(answer.status, answer.headers, answer.body if answer.lines is None else answer.chunks())
        finally:
            await answer.close()
        if not wire.ready_again():
            return
