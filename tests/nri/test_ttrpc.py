"""Calls over a logical connection, both ends ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
from google.protobuf.message import Message

from dranet.nri import CallError, CallTimeout, Code, ConnectionClosed, RequestContext
from dranet.nri.envelope import KeyValue, Response
from dranet.nri.frames import FrameReader, Kind, ttrpc_frame
from dranet.nri.trunk import Trunk
from dranet.nri.ttrpc import Client, Server


class HandClock(Protocol):
    time: float


Trunks = tuple[Trunk, Trunk]
Echo = Callable[[KeyValue, RequestContext], Awaitable[KeyValue]]


def serve(trunk: Trunk, echo: Echo, *, limit: int = 4 << 20, timeout: float | None = None) -> Server:
    async def method(payload: bytes, context: RequestContext) -> Message:
        return await echo(KeyValue.FromString(payload), context)

    return Server(trunk, 1, {("test", "Echo"): method}, limit=limit, timeout=timeout)


async def echo(request: KeyValue, context: RequestContext) -> KeyValue:
    return request


async def call(client: Client, key: str = "k", value: str = "v", *, timeout: float | None = None) -> KeyValue:
    return await client.call("test", "Echo", KeyValue(key=key, value=value), KeyValue, timeout=timeout)


async def test_a_call_is_answered(trunks: Trunks) -> None:
    serve(trunks[1], echo)
    assert (await call(Client(trunks[0], 1), "hello")).key == "hello"


async def test_calls_overlap_and_are_answered_in_any_order(trunks: Trunks) -> None:
    second_done = asyncio.Event()

    async def first_waits_for_second(request: KeyValue, context: RequestContext) -> KeyValue:
        if request.key == "first":
            await second_done.wait()
        return request

    serve(trunks[1], first_waits_for_second)
    client = Client(trunks[0], 1)
    first = asyncio.create_task(call(client, "first"))
    assert (await call(client, "second")).key == "second"
    second_done.set()
    assert (await first).key == "first"


async def test_both_directions_share_a_trunk(trunks: Trunks) -> None:
    ours, theirs = trunks
    serve(theirs, echo)
    Server(ours, 2, {})
    client, back = Client(ours, 1), Client(theirs, 2)
    assert (await call(client)).value == "v"
    with pytest.raises(CallError, match="no method Echo in service test"):
        await call(back)


async def test_a_message_of_many_pieces_arrives_whole(trunks: Trunks) -> None:
    serve(trunks[1], echo)
    assert len((await call(Client(trunks[0], 1), value="x" * 3_000_000)).value) == 3_000_000


async def test_no_answer_in_time_is_a_call_timeout(trunks: Trunks) -> None:
    release = asyncio.Event()

    async def hang(request: KeyValue, context: RequestContext) -> KeyValue:
        await release.wait()
        return request

    serve(trunks[1], hang)
    client = Client(trunks[0], 1)
    with pytest.raises(CallTimeout):
        await call(client, timeout=0.01)
    release.set()


async def test_a_late_answer_disturbs_nobody(trunks: Trunks) -> None:
    release = asyncio.Event()

    async def slow_once(request: KeyValue, context: RequestContext) -> KeyValue:
        if request.key == "slow":
            await release.wait()
        return request

    serve(trunks[1], slow_once)
    client = Client(trunks[0], 1)
    with pytest.raises(CallTimeout):
        await call(client, "slow", timeout=0.01)
    release.set()
    assert (await call(client, "next")).key == "next"


async def test_the_handler_is_told_the_callers_deadline(trunks: Trunks) -> None:
    seen: list[RequestContext] = []

    async def note(request: KeyValue, context: RequestContext) -> KeyValue:
        seen.append(context)
        return request

    serve(trunks[1], note)
    await call(Client(trunks[0], 1), timeout=60)
    (context,) = seen
    assert context.deadline is not None
    assert context.deadline - context.received_at == pytest.approx(60)


async def test_without_a_deadline_of_its_own_a_request_gets_the_servers(trunks: Trunks) -> None:
    seen: list[RequestContext] = []

    async def note(request: KeyValue, context: RequestContext) -> KeyValue:
        seen.append(context)
        return request

    serve(trunks[1], note, timeout=7)
    await call(Client(trunks[0], 1))
    (context,) = seen
    assert context.deadline is not None
    assert context.deadline - context.received_at == pytest.approx(7)


async def test_a_request_read_too_late_is_not_carried_out(stalled_trunks: Trunks, clock: HandClock) -> None:
    carried_out = []

    async def note(request: KeyValue, context: RequestContext) -> KeyValue:
        carried_out.append(request)
        return request

    serve(stalled_trunks[1], note)
    clock.time += 61
    with pytest.raises(CallError, match="too late") as caught:
        await call(Client(stalled_trunks[0], 1), timeout=60)
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    assert carried_out == []


async def test_a_request_whose_caller_has_gone_is_not_carried_out(trunks: Trunks) -> None:
    carried_out = []

    async def note(request: KeyValue, context: RequestContext) -> KeyValue:
        carried_out.append(request)
        return request

    server = serve(trunks[1], note)
    client = Client(trunks[0], 1)
    waiting = asyncio.create_task(call(client))
    await asyncio.sleep(0)  # the request is written
    trunks[0].close()
    with pytest.raises(ConnectionClosed):
        await waiting
    await trunks[1].wait_closed()
    await server.shutdown(1)
    assert carried_out == []


async def test_a_handler_sees_that_its_caller_left(trunks: Trunks) -> None:
    begun, left, verdict = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()

    async def watch(request: KeyValue, context: RequestContext) -> KeyValue:
        begun.set()
        await left.wait()
        verdict.set_result(context.expired())
        return request

    serve(trunks[1], watch)
    waiting = asyncio.create_task(call(Client(trunks[0], 1)))
    await begun.wait()
    trunks[0].close()
    await trunks[0].wait_closed()
    left.set()
    assert await verdict is True
    with pytest.raises(ConnectionClosed):
        await waiting


async def test_a_request_above_the_limit_never_leaves(trunks: Trunks) -> None:
    with pytest.raises(CallError, match="above the limit") as caught:
        await call(Client(trunks[0], 1, limit=100), value="x" * 200)
    assert caught.value.code == Code.RESOURCE_EXHAUSTED


async def test_a_request_above_the_peers_limit_is_refused_and_the_next_one_served(trunks: Trunks) -> None:
    serve(trunks[1], echo, limit=100)
    client = Client(trunks[0], 1)
    with pytest.raises(CallError, match=r"request of .* above the limit of 100"):
        await call(client, value="x" * 200)
    assert (await call(client)).value == "v"


async def test_an_answer_above_the_callers_limit_fails_that_call_only(trunks: Trunks) -> None:
    async def long_answer(request: KeyValue, context: RequestContext) -> KeyValue:
        return KeyValue(value=request.key * 200)

    serve(trunks[1], long_answer)
    client = Client(trunks[0], 1, limit=100)
    with pytest.raises(CallError, match=r"answer of .* above the limit of 100"):
        await call(client, "x")
    assert (await call(client, "")).value == ""


async def test_an_answer_above_the_servers_limit_becomes_an_error(trunks: Trunks) -> None:
    async def long_answer(request: KeyValue, context: RequestContext) -> KeyValue:
        return KeyValue(value="x" * 200)

    serve(trunks[1], long_answer, limit=100)
    with pytest.raises(CallError, match=r"answer of .* above the limit of 100"):
        await call(Client(trunks[0], 1))


async def test_a_handlers_exception_reaches_the_caller_as_text(trunks: Trunks) -> None:
    async def fail(request: KeyValue, context: RequestContext) -> KeyValue:
        raise RuntimeError("the reason")

    serve(trunks[1], fail)
    with pytest.raises(CallError, match="the reason") as caught:
        await call(Client(trunks[0], 1))
    assert caught.value.code == Code.UNKNOWN


async def test_a_handler_can_choose_the_code(trunks: Trunks) -> None:
    async def fail(request: KeyValue, context: RequestContext) -> KeyValue:
        raise CallError(Code.NOT_FOUND, "not here")

    serve(trunks[1], fail)
    with pytest.raises(CallError) as caught:
        await call(Client(trunks[0], 1))
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "not here")


async def test_a_call_on_a_closed_connection_fails_at_once(trunks: Trunks) -> None:
    client = Client(trunks[0], 1)
    trunks[0].close()
    with pytest.raises(ConnectionClosed):
        await call(client)


async def test_shutdown_waits_for_the_call_under_way_and_refuses_new_ones(trunks: Trunks) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def hold(request: KeyValue, context: RequestContext) -> KeyValue:
        begun.set()
        await release.wait()
        return request

    server = serve(trunks[1], hold)
    client = Client(trunks[0], 1)
    first = asyncio.create_task(call(client, "first"))
    await begun.wait()
    stopping = asyncio.create_task(server.shutdown(grace=60))
    with pytest.raises(CallError, match="shutting down"):
        await call(client, "second")
    release.set()
    await stopping
    assert (await first).key == "first"


async def test_shutdown_cancels_what_does_not_end(trunks: Trunks) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def for_ever(request: KeyValue, context: RequestContext) -> KeyValue:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return request

    server = serve(trunks[1], for_ever)
    waiting = asyncio.create_task(call(Client(trunks[0], 1)))
    await begun.wait()
    await server.shutdown(grace=0)
    assert cancelled.is_set()
    trunks[1].close()
    with pytest.raises(ConnectionClosed):
        await waiting


async def test_garbage_in_a_request_frame_is_refused_in_words(trunks: Trunks) -> None:
    class Listener:
        def __init__(self) -> None:
            self.answer = asyncio.get_running_loop().create_future()

        def received(self, data: bytes) -> None:
            (frame,) = FrameReader().feed(data)
            self.answer.set_result(frame)

        def closed(self) -> None: ...

    serve(trunks[1], echo)
    listener = Listener()
    trunks[0].open(1, listener).write(ttrpc_frame(99, Kind.REQUEST, b"\xff\xff\xff"))
    frame = await listener.answer
    assert frame.stream == 99
    assert "not a ttrpc request" in Response.FromString(frame.payload).status.message


async def test_the_reserved_connection_cannot_be_opened(trunks: Trunks) -> None:
    with pytest.raises(ValueError, match="reserved"):
        Client(trunks[0], 0)
