"""HTTP over a socket pair: bodies, streams, reused connections, and a peer that disconnects."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import h11
import pytest

from dranet.core.http import BodyTooLarge, HttpConnection, Request

Ends = tuple[HttpConnection, HttpConnection]


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    """A client and a server at the two ends of one connection."""
    ours, theirs = socket.socketpair()
    client = HttpConnection(*await asyncio.open_connection(sock=ours))
    server = HttpConnection(*await asyncio.open_connection(sock=theirs), server=True)
    yield client, server
    for wire in (client, server):
        wire.writer.transport.abort()


async def _ask(client: HttpConnection, request: Request) -> tuple[int, dict[str, str], bytes]:
    head = await client.send_request(request, "here")
    return head.status, dict(head.headers), await client.body()


async def test_a_request_arrives_with_its_query_and_body(ends: Ends) -> None:
    client, server = ends
    asked = asyncio.create_task(_ask(client, Request("POST", "/plan?file=a.yaml", {"X-Name": "1"}, b"text")))
    head = await server.receive_request()
    assert head is not None
    assert (head.method, head.path, head.query) == ("POST", "/plan", {"file": "a.yaml"})
    assert (head.headers["x-name"], head.headers["host"], await server.body()) == ("1", "here", b"text")
    await server.send_response(200, {"X-Answer": "2"}, b"done")
    status, headers, body = await asked
    assert (status, headers["x-answer"], body) == (200, "2", b"done")


async def test_the_response_to_head_has_a_length_and_no_body(ends: Ends) -> None:
    client, server = ends
    asked = asyncio.create_task(_ask(client, Request("HEAD", "/metrics")))
    await server.receive_request()
    await server.send_response(200, {}, b"12345")
    status, headers, body = await asked
    assert (status, headers["content-length"], body) == (200, "5", b"")


async def test_a_stream_arrives_piece_by_piece(ends: Ends) -> None:
    client, server = ends
    go_on = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        await go_on.wait()
        yield b"two"

    async def serve() -> None:
        await server.receive_request()
        await server.send_response(200, {}, pieces())

    serving = asyncio.create_task(serve())
    await client.send_request(Request("GET", "/watch"), "here")
    found = client.chunks()
    assert await anext(found) == b"one"
    go_on.set()
    assert await anext(found) == b"two"
    await serving


async def test_a_connection_serves_one_exchange_after_another(ends: Ends) -> None:
    client, server = ends
    for number in range(3):
        asked = asyncio.create_task(_ask(client, Request("GET", f"/{number}")))
        head = await server.receive_request()
        assert head is not None and head.path == f"/{number}"
        await server.body()
        await server.send_response(200, {}, str(number).encode())
        assert (await asked)[2] == str(number).encode()
        assert client.start_next_exchange() and server.start_next_exchange()


async def test_a_body_past_the_limit_is_refused(ends: Ends) -> None:
    client, server = ends
    asked = asyncio.create_task(client.send_request(Request("POST", "/", {}, b"x" * 101), "here"))
    await server.receive_request()
    with pytest.raises(BodyTooLarge, match="larger than 100 bytes"):
        await server.body(100)
    await server.send_response(413, {}, b"")
    assert (await asked).status == 413


async def test_a_connection_with_half_an_answer_is_not_used_again(ends: Ends) -> None:
    client, server = ends
    asked = asyncio.create_task(client.send_request(Request("GET", "/"), "here"))
    await server.receive_request()
    await server.send_response(200, {}, b"never read")
    await asked
    assert not client.start_next_exchange()


async def test_a_server_that_disconnects_early_is_an_error(ends: Ends) -> None:
    client, server = ends

    async def half() -> AsyncIterator[bytes]:
        yield b"half"
        server.writer.transport.abort()
        yield b""

    asked = asyncio.create_task(_ask(client, Request("GET", "/")))
    await server.receive_request()
    with pytest.raises((OSError, h11.ProtocolError)):
        await asyncio.gather(server.send_response(200, {}, half()), asked)
    with pytest.raises((OSError, h11.ProtocolError)):
        await asked


async def test_a_client_that_disconnects_has_no_request(ends: Ends) -> None:
    client, server = ends
    client.writer.close()
    assert await server.receive_request() is None
