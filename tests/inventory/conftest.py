"""Shared worlds for inventory tests: a local HTTP server that plays metadata services."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

Answer = str | tuple[int, str] | tuple[int, str, dict[str, str]] | None
"""A body with status 200; a status and a body; those and headers; None for never answering at all."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Server:
    """An HTTP server on loopback whose answers a test may change while it runs."""

    def __init__(self) -> None:
        self.handler: Callable[[Request], Answer] = lambda request: (404, "not found")
        self.requests: list[Request] = []
        self.url = ""

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Answer by path without its query; everything else is 404."""
        self.handler = lambda request: answers.get(request.path.partition("?")[0], (404, "not found"))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, path, _ = head[0].split(" ", 2)
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Request(method, path, headers, body)
            self.requests.append(request)
            answer = self.handler(request)
            if answer is None:
                await reader.read()  # until the client gives up
            else:
                writer.write(_raw(answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _raw(answer: str | tuple[Any, ...]) -> bytes:
    status, text, headers = (200, answer, {}) if isinstance(answer, str) else (*answer, {})[:3]
    body = text.encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, *(f"{k}: {v}" for k, v in headers.items())]).encode() + b"\r\n\r\n" + body


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = "http://{}:{}".format(*listening.sockets[0].getsockname())
    yield made
    listening.close()


@pytest.fixture
def closed_url() -> str:
    """A loopback address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return "http://{}:{}".format(*probe.getsockname())
