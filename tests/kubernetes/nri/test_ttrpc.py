"""Calls over a logical connection, both ends ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest
from google.protobuf.message import Message

from dranet.kubernetes.nri import CallError, CallTimeout, Code, ConnectionClosed, RequestContext
from dranet.kubernetes.nri.frames import FrameReader, Kind, ttrpc_frame
from dranet.kubernetes.nri.mux import Mux
from dranet.kubernetes.nri.ttrpc import Client, Server
from dranet.kubernetes.nri.ttrpc_messages import KeyValue, Response


class HandClock(Protocol):
    time: float


Muxes = tuple[Mux, Mux]
Echo = Callable[[KeyValue, RequestContext], Awaitable[KeyValue]]


def serve(mux: Mux, echo: Echo, *, limit: int = 4 << 20, timeout: float | None = None) -> Server:
    async def method(payload: bytes, context: RequestContext) -> Message:
        return await echo(KeyValue.FromString(payload), context)

    return Server(mux, 1, {("test", "Echo"): method}, limit=limit, timeout=timeout)


async def echo(request: KeyValue, context: RequestContext) -> KeyValue:
    return request


async def call(client: Client, key: str = "k", value: str = "v", *, timeout: float | None = None) -> KeyValue:
    return await client.call("test", "Echo", KeyValue(key=key, value=value), KeyValue, timeout=timeout)


async def test_a_call_is_answered(muxes: Muxes) -> None:
    serve(muxes[1], echo)
    assert (await call(Client(muxes[0], 1), "hello")).key == "hello"


async def test_calls_overlap_and_are_answered_in_any_order(muxes: Muxes) -> None:
    second_done = asyncio.Event()

    async def first_waits_for_second(request: KeyValue, context: RequestContext) -> KeyValue:
        if request.key == "first":
            await second_done.wait()
        return request

    serve(muxes[1], first_waits_for_second)
    client = Client(muxes[0], 1)
    first = asyncio.create_task(call(client, "first"))
    assert (await call(client, "second")).key == "second"
    second_done.set()
    assert (await first).key == "first"


async def test_both_directions_share_a_trunk(muxes: Muxes) -> None:
    ours, theirs = muxes
    serve(theirs, echo)
    Server(ours, 2, {})
    client, back = Client(ours, 1), Client(theirs, 2)
    assert (await call(client)).value == "v"
    with pytest.raises(CallError, match="no method Echo in service test"):
        await call(back)


async def test_a_message_of_many_pieces_arrives_whole(muxes: Muxes) -> None:
    serve(muxes[1], echo)
    assert len((await call(Client(muxes[0], 1), value="x" * 3_000_000)).value) == 3_000_000


async def test_no_answer_in_time_is_a_call_timeout(muxes: Muxes) -> None:
    release = asyncio.Event()

    async def hang(request: KeyValue, context: RequestContext) -> KeyValue:
        await release.wait()
        return request

    serve(muxes[1], hang)
    client = Client(muxes[0], 1)
    with pytest.raises(CallTimeout):
        await call(client, timeout=0.01)
    release.set()


async def test_a_late_answer_disturbs_nobody(muxes: Muxes) -> None:
    release = asyncio.Event()

    async def slow_once(request: KeyValue, context: RequestContext) -> KeyValue:
        if request.key == "slow":
            await release.wait()
        return request

    serve(muxes[1], slow_once)
    client = Client(muxes[0], 1)
    with pytest.raises(CallTimeout):
        await call(client, "slow", timeout=0.01)
    release.set()
    assert (await call(client, "next")).key == "next"


async def test_the_handler_is_told_the_callers_deadline(muxes: Muxes) -> None:
    seen: list[RequestContext] = []

    async def note(request: KeyValue, context: RequestContext) -> KeyValue:
        seen.append(context)
        return request

    serve(muxes[1], note)
    await call(Client(muxes[0], 1), timeout=60)
    (context,) = seen
    assert context.deadline is not None
    assert context.deadline - context.received_at == pytest.approx(60)


async def test_without_a_deadline_of_its_own_a_request_gets_the_servers(muxes: Muxes) -> None:
    seen: list[RequestContext] = []

    async def note(request: KeyValue, context: RequestContext) -> KeyValue:
        seen.append(context)
        return request

    serve(muxes[1], note, timeout=7)
    await call(Client(muxes[0], 1))
    (context,) = seen
    assert context.deadline is not None
    assert context.deadline - context.received_at == pytest.approx(7)


async def test_a_request_read_too_late_is_not_carried_out(stalled_muxes: Muxes, clock: HandClock) -> None:
    carried_out = []

    async def note(request: KeyValue, context: RequestContext) -> KeyValue:
        carried_out.append(request)
        return request

    serve(stalled_muxes[1], note)
    clock.time += 61
    with pytest.raises(CallError, match="arrived after its deadline") as caught:
        await call(Client(stalled_muxes[0], 1), timeout=60)
    assert caught.value.code == Code.DEADLINE_EXCEEDED
    assert carried_out == []


async def test_a_request_whose_caller_has_gone_is_not_carried_out(muxes: Muxes) -> None:
    carried_out = []

    async def note(request: KeyValue, context: RequestContext) -> KeyValue:
        carried_out.append(request)
        return request

    server = serve(muxes[1], note)
    client = Client(muxes[0], 1)
    waiting = asyncio.create_task(call(client))
    await asyncio.sleep(0)  # the request is written
    muxes[0].close()
    with pytest.raises(ConnectionClosed):
        await waiting
    await muxes[1].wait_closed()
    await server.shutdown(1)
    assert carried_out == []


async def test_a_handler_sees_that_its_caller_left(muxes: Muxes) -> None:
    begun, left, verdict = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop().create_future()

    async def watch(request: KeyValue, context: RequestContext) -> KeyValue:
        begun.set()
        await left.wait()
        verdict.set_result(context.expired())
        return request

    serve(muxes[1], watch)
    waiting = asyncio.create_task(call(Client(muxes[0], 1)))
    await begun.wait()
    muxes[0].close()
    await muxes[0].wait_closed()
    left.set()
    assert await verdict is True
    with pytest.raises(ConnectionClosed):
        await waiting


async def test_a_request_above_the_limit_never_leaves(muxes: Muxes) -> None:
    with pytest.raises(CallError, match="above the limit") as caught:
        await call(Client(muxes[0], 1, limit=100), value="x" * 200)
    assert caught.value.code == Code.RESOURCE_EXHAUSTED


async def test_a_request_above_the_peers_limit_is_refused_and_the_next_one_served(muxes: Muxes) -> None:
    serve(muxes[1], echo, limit=100)
    client = Client(muxes[0], 1)
    with pytest.raises(CallError, match=r"request of .* above the limit of 100"):
        await call(client, value="x" * 200)
    assert (await call(client)).value == "v"


async def test_an_answer_above_the_callers_limit_fails_that_call_only(muxes: Muxes) -> None:
    async def long_answer(request: KeyValue, context: RequestContext) -> KeyValue:
        return KeyValue(value=request.key * 200)

    serve(muxes[1], long_answer)
    client = Client(muxes[0], 1, limit=100)
    with pytest.raises(CallError, match=r"answer of .* above the limit of 100"):
        await call(client, "x")
    assert (await call(client, "")).value == ""


async def test_an_answer_above_the_servers_limit_becomes_an_error(muxes: Muxes) -> None:
    async def long_answer(request: KeyValue, context: RequestContext) -> KeyValue:
        return KeyValue(value="x" * 200)

    serve(muxes[1], long_answer, limit=100)
    with pytest.raises(CallError, match=r"answer of .* above the limit of 100"):
        await call(Client(muxes[0], 1))


async def test_a_handlers_exception_reaches_the_caller_as_text(muxes: Muxes) -> None:
    async def fail(request: KeyValue, context: RequestContext) -> KeyValue:
        raise RuntimeError("the reason")

    serve(muxes[1], fail)
    with pytest.raises(CallError, match="the reason") as caught:
        await call(Client(muxes[0], 1))
    assert caught.value.code == Code.UNKNOWN


async def test_a_handler_can_choose_the_code(muxes: Muxes) -> None:
    async def fail(request: KeyValue, context: RequestContext) -> KeyValue:
        raise CallError(Code.NOT_FOUND, "not here")

    serve(muxes[1], fail)
    with pytest.raises(CallError) as caught:
        await call(Client(muxes[0], 1))
    assert (caught.value.code, caught.value.message) == (Code.NOT_FOUND, "not here")


async def test_a_call_on_a_closed_connection_fails_at_once(muxes: Muxes) -> None:
    client = Client(muxes[0], 1)
    muxes[0].close()
    with pytest.raises(ConnectionClosed):
        await call(client)


async def test_shutdown_waits_for_the_call_under_way_and_refuses_new_ones(muxes: Muxes) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def hold(request: KeyValue, context: RequestContext) -> KeyValue:
        begun.set()
        await release.wait()
        return request

    server = serve(muxes[1], hold)
    client = Client(muxes[0], 1)
    first = asyncio.create_task(call(client, "first"))
    await begun.wait()
    stopping = asyncio.create_task(server.shutdown(grace=60))
    with pytest.raises(CallError, match="shutting down"):
        await call(client, "second")
    release.set()
    await stopping
    assert (await first).key == "first"


async def test_shutdown_cancels_what_does_not_end(muxes: Muxes) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def for_ever(request: KeyValue, context: RequestContext) -> KeyValue:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return request

    server = serve(muxes[1], for_ever)
    waiting = asyncio.create_task(call(Client(muxes[0], 1)))
    await begun.wait()
    await server.shutdown(grace=0)
    assert cancelled.is_set()
    muxes[1].close()
    with pytest.raises(ConnectionClosed):
        await waiting


async def test_garbage_in_a_request_frame_is_refused_in_words(muxes: Muxes) -> None:
    class Listener:
        def __init__(self) -> None:
            self.answer = asyncio.get_running_loop().create_future()

        def received(self, data: bytes) -> None:
            (frame,) = FrameReader().feed(data)
            self.answer.set_result(frame)

        def closed(self) -> None: ...

    serve(muxes[1], echo)
    listener = Listener()
    muxes[0].open(1, listener).write(ttrpc_frame(99, Kind.REQUEST, b"\xff\xff\xff"))
    frame = await listener.answer
    assert frame.stream == 99
    assert "not a ttrpc request" in Response.FromString(frame.payload).status.message


async def test_the_reserved_connection_cannot_be_opened(muxes: Muxes) -> None:
    with pytest.raises(ValueError, match="reserved"):
        Client(muxes[0], 0)
