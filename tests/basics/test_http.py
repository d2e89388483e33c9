"""HTTP over a wire, both ends ours: bodies, streams, connections used again, and a side that leaves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import h11
import pytest

from dranet.basics.http import Request, TooLarge, Wire


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Wire, Wire]]:
    """A client and a server at the two ends of one connection."""
    ours, theirs = socket.socketpair()
    client = Wire(*await asyncio.open_connection(sock=ours))
    server = Wire(*await asyncio.open_connection(sock=theirs), server=True)
    yield client, server
    for wire in (client, server):
        wire.writer.transport.abort()


async def _ask(client: Wire, request: Request) -> tuple[int, dict[str, str], bytes]:
    head = await client.ask(request, "here")
    return head.status, dict(head.headers), await client.body()


async def test_a_request_arrives_with_its_query_and_body(ends: tuple[Wire, Wire]) -> None:
    client, server = ends
    asked = asyncio.create_task(_ask(client, Request("POST", "/plan?file=a.yaml", {"X-Name": "1"}, b"text")))
    head = await server.receive()
    assert head is not None
    assert (head.method, head.path, head.query) == ("POST", "/plan", {"file": "a.yaml"})
    assert (head.headers["x-name"], head.headers["host"], await server.body()) == ("1", "here", b"text")
    await server.answer(200, {"X-Answer": "2"}, b"done")
    status, headers, body = await asked
    assert (status, headers["x-answer"], body) == (200, "2", b"done")


async def test_the_answer_to_head_tells_the_length_and_has_no_body(ends: tuple[Wire, Wire]) -> None:
    client, server = ends
    asked = asyncio.create_task(_ask(client, Request("HEAD", "/metrics")))
    await server.receive()
    await server.answer(200, {}, b"12345")
    status, headers, body = await asked
    assert (status, headers["content-length"], body) == (200, "5", b"")


async def test_a_stream_arrives_piece_by_piece(ends: tuple[Wire, Wire]) -> None:
    client, server = ends
    go_on = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await go_on.wait()
        yield b"two"

    async def serve() -> None:
        await server.receive()
        await server.answer(200, {}, pieces())

    serving = asyncio.create_task(serve())
    await client.ask(Request("GET", "/watch"), "here")
    found = client.chunks()
    assert await anext(found) == b"one"
    go_on.set()
    assert await anext(found) == b"two"
    await serving


async def test_a_connection_serves_one_exchange_after_another(ends: tuple[Wire, Wire]) -> None:
    client, server = ends
    for number in range(3):
        asked = asyncio.create_task(_ask(client, Request("GET", f"/{number}")))
        head = await server.receive()
        assert head is not None and head.path == f"/{number}"
        await server.body()
        await server.answer(200, {}, str(number).encode())
        assert (await asked)[2] == str(number).encode()
        assert client.ready_again() and server.ready_again()


async def test_a_body_past_the_limit_is_refused(ends: tuple[Wire, Wire]) -> None:
    client, server = ends
    asked = asyncio.create_task(client.ask(Request("POST", "/", {}, b"x" * 101), "here"))
    await server.receive()
    with pytest.raises(TooLarge, match="larger than 100 bytes"):
        await server.body(100)
    await server.answer(413, {}, b"")
    assert (await asked).status == 413


async def test_a_connection_with_half_an_answer_is_not_used_again(ends: tuple[Wire, Wire]) -> None:
    client, server = ends
    asked = asyncio.create_task(client.ask(Request("GET", "/"), "here"))
    await server.receive()
    await server.answer(200, {}, b"never read")
    await asked
    assert not client.ready_again()


async def test_a_server_that_leaves_in_the_middle_is_an_error(ends: tuple[Wire, Wire]) -> None:
    client, server = ends

    async def half() -> AsyncIterator[bytes]:
        yield b"half"
        server.writer.transport.abort()
        yield b""

    asked = asyncio.create_task(_ask(client, Request("GET", "/")))
    await server.receive()
    with pytest.raises((OSError, h11.ProtocolError)):
        await asyncio.gather(server.answer(200, {}, half()), asked)
    with pytest.raises((OSError, h11.ProtocolError)):
        await asked


async def test_a_client_that_says_nothing_more_has_no_request(ends: tuple[Wire, Wire]) -> None:
    client, server = ends
    client.writer.close()
    assert await server.receive() is None
