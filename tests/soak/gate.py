"""The way from a node's namespace to the real API server: a relay that knows nothing of what it carries.

The node of a soak is a network namespace without a route to anywhere, as the sandbox makes it. Its driver finds a port
on its own loopback; a client that connects there is connected to the API server, and loses the connection when it goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

from dranet.linux.namespaces import Namespace

CHUNK = 65536


@contextlib.asynccontextmanager
async def gate(inside: Namespace, url: str) -> AsyncIterator[int]:
    """The port in the namespace that leads to ``url``."""
    target = urlsplit(url)
    open_now: set[asyncio.Task[None]] = set()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            await _join(reader, writer, str(target.hostname), target.port or 443)
        except asyncio.CancelledError:
            pass  # the gate closes; asyncio would print a traceback for every connection
        finally:
            open_now.discard(task)

    server = await asyncio.start_server(carry, sock=inside.run(_listen))
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)


def kubeconfig(port: int, authority: Path, token: str) -> str:
    """For a client behind the gate; the certificate names the server, not the gate."""
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(authority),
        "tls-server-name": "kubernetes.default.svc",
    }
    found = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "soak",
        "clusters": [{"name": "soak", "cluster": cluster}],
        "users": [{"name": "soak", "user": {"token": token}}],
        "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak"}}],
    }
    return json.dumps(found)


async def _join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    ends = [writer]
    try:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        ends.append(far_writer)
        both = [asyncio.ensure_future(_pump(reader, far_writer)), asyncio.ensure_future(_pump(far_reader, writer))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
    except OSError:
        pass  # no server there: the caller finds its connection closed
    finally:
        for end in ends:
            end.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(CHUNK):
        writer.write(piece)
        await writer.drain()


def _listen() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    return listener
