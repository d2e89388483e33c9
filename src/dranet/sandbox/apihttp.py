"""The sandbox's API server on a socket, for clients that are not in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import h11

from dranet.kube.http import Request
from dranet.sandbox.apiserver import Answer, SandboxApiServer

CHUNK = 65536


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
            await _Connection(api, reader, writer).run()
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


class _Connection:
    def __init__(self, api: SandboxApiServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._api = api
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        while (request := await self._request()) is not None:
            answer = await self._api.handle(request)
            try:
                await self._answer(answer)
            finally:
                await answer.close()
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _request(self) -> Request | None:
        head: h11.Request | None = None
        body = b""
        while True:
            event = await self._event()
            if isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = {key.decode(): value.decode() for key, value in head.headers}
                return Request(head.method.decode(), head.target.decode(), headers, body)
            else:
                return None

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(CHUNK))
        return event

    async def _answer(self, answer: Answer) -> None:
        headers = list(answer.headers.items())
        if answer.lines is None:
            headers.append(("content-length", str(len(answer.body))))
        await self._send(h11.Response(status_code=answer.status, headers=headers))
        async for chunk in answer.chunks():
            await self._send(h11.Data(data=chunk))
        await self._send(h11.EndOfMessage())

    async def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()
