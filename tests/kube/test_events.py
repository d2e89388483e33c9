"""Events: named as the reference names them, counted instead of repeated, and never in the way."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from dranet.kube.client import KubeClient
from dranet.kube.events import CLAIM_PREPARE_FAILED, SAME_EVENT_SECONDS, WAITING_MAX, EventRecorder, ObjectRef
from dranet.kube.resources import EVENTS
from dranet.sandbox.apiserver import SandboxApiServer
from dranet.sandbox.faults import FaultyTransport, run_instantly

CLAIM = ObjectRef.claim("default", "c", "uid-c")


@contextlib.asynccontextmanager
async def recording(server: SandboxApiServer, rate: float = 0.0) -> AsyncIterator[EventRecorder]:
    rng = random.Random(3)
    recorder = EventRecorder(KubeClient(FaultyTransport(server, rng, rate=rate), rng=rng), host="node-a")
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_an_event_says_what_about_whom_and_from_where() -> None:
    async def story() -> None:
        server = SandboxApiServer()
        async with recording(server) as recorder:
            recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "no such device")
            await asyncio.sleep(1)
        [event] = server.objects(EVENTS)
        assert (event["reason"], event["type"], event["count"]) == ("ClaimPrepareFailed", "Warning", 1)
        assert event["source"] == {"component": "dra.net", "host": "node-a"}
        assert event["involvedObject"]["kind"] == "ResourceClaim"
        assert event["metadata"]["namespace"] == "default"

    run_instantly(story())


def test_the_same_trouble_a_hundred_times_is_one_event_with_a_count_and_few_writes() -> None:
    async def story() -> None:
        server = SandboxApiServer()
        async with recording(server) as recorder:
            for _ in range(100):
                recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "no such device")
                await asyncio.sleep(0.1)
            await asyncio.sleep(SAME_EVENT_SECONDS + 1)
        [event] = server.objects(EVENTS)
        assert event["count"] == 100
        assert server.writes <= 3

    run_instantly(story())


def test_an_event_that_expired_meanwhile_is_written_anew() -> None:
    async def story() -> None:
        server = SandboxApiServer()
        async with recording(server) as recorder:
            recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "x")
            await asyncio.sleep(1)
            server.remove(EVENTS, server.objects(EVENTS)[0]["metadata"]["name"], "default")
            recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "x")
            await asyncio.sleep(SAME_EVENT_SECONDS + 1)
        assert [event["count"] for event in server.objects(EVENTS)] == [1]

    run_instantly(story())


def test_too_many_events_are_dropped_and_counted_and_recording_returns_at_once() -> None:
    async def story() -> None:
        recorder = EventRecorder(KubeClient(FaultyTransport(SandboxApiServer(), random.Random(1))), host="n")
        for index in range(WAITING_MAX + 5):
            recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, f"trouble {index}")
        assert recorder.dropped == 5

    run_instantly(story())


def test_events_come_through_a_troubled_network() -> None:
    async def story() -> None:
        server = SandboxApiServer()
        async with recording(server, rate=0.4) as recorder:
            for index in range(20):
                recorder.warning(CLAIM, "Fine", f"message {index}")
            await asyncio.sleep(600)
            written = {event["message"] for event in server.objects(EVENTS)}
            assert len(written) + recorder.dropped >= 20
            assert len(written) > 15

    run_instantly(story())


def test_a_message_longer_than_the_api_takes_is_cut() -> None:
    async def story() -> None:
        server = SandboxApiServer()
        async with recording(server) as recorder:
            recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "é" * 2000)
            await asyncio.sleep(1)
        message = server.objects(EVENTS)[0]["message"]
        assert len(message.encode()) <= 1024
        assert message.endswith("...")

    run_instantly(story())
