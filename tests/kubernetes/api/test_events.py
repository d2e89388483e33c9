"""Events: named as the reference names them, counted instead of repeated, and never in the way."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.events import (
    BURST,
    CLAIM_PREPARE_FAILED,
    NETWORK_DEVICE_ATTACH_FAILED,
    SAME_EVENT_SECONDS,
    SIMILAR_MAX,
    WAITING_MAX,
    EventRecorder,
    ObjectRef,
)
from dranet.kubernetes.api.resources import EVENTS
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.faults import FaultyTransport, instantly

CLAIM = ObjectRef.claim("default", "c", "uid-c")


def a_pod(number: int) -> ObjectRef:
    return ObjectRef.pod("default", f"pod-{number}", f"uid-{number}")


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


@instantly
async def test_an_event_says_what_about_whom_and_from_where() -> None:
    server = SandboxApiServer()
    async with recording(server) as recorder:
        recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "no such device")
        await asyncio.sleep(1)
    [event] = server.objects(EVENTS)
    assert (event["reason"], event["type"], event["count"]) == ("ClaimPrepareFailed", "Warning", 1)
    assert event["source"] == {"component": "dra.net", "host": "node-a"}
    assert event["involvedObject"]["kind"] == "ResourceClaim"
    assert event["metadata"]["namespace"] == "default"


@instantly
async def test_the_same_trouble_a_hundred_times_is_one_event_with_a_count_and_few_writes() -> None:
    server = SandboxApiServer()
    async with recording(server) as recorder:
        for _ in range(100):
            recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "no such device")
            await asyncio.sleep(0.1)
        await asyncio.sleep(SAME_EVENT_SECONDS[0] + 1)
    [event] = server.objects(EVENTS)
    assert event["count"] == 100
    assert server.writes <= 3


@instantly
async def test_a_pod_that_fails_for_an_hour_is_written_less_and_less_often() -> None:
    server = SandboxApiServer()
    async with recording(server) as recorder:
        for _ in range(360):
            recorder.warning(a_pod(1), NETWORK_DEVICE_ATTACH_FAILED, "no carrier")
            await asyncio.sleep(10)
        await asyncio.sleep(SAME_EVENT_SECONDS[1])
    [event] = server.objects(EVENTS)
    assert event["count"] == 360
    assert server.writes <= 13


@instantly
async def test_a_storm_of_failing_pods_is_a_few_writes_at_once_and_then_one_a_second() -> None:
    server = SandboxApiServer()
    async with recording(server) as recorder:
        for _ in range(6):
            for number in range(200):
                recorder.warning(a_pod(number), NETWORK_DEVICE_ATTACH_FAILED, "no carrier")
            await asyncio.sleep(10)
        assert server.writes <= BURST + 60
        await asyncio.sleep(3600)
    assert recorder.dropped == 0
    assert sum(event["count"] for event in server.objects(EVENTS)) == 6 * 200
    assert len(server.objects(EVENTS)) == 200


@instantly
async def test_one_object_with_ever_new_words_is_a_few_events_and_one_with_the_last_words() -> None:
    server = SandboxApiServer()
    async with recording(server) as recorder:
        for number in range(100):
            recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, f"no answer after {number} ms")
            await asyncio.sleep(1)
        await asyncio.sleep(SAME_EVENT_SECONDS[1])
    events = server.objects(EVENTS)
    assert len(events) == SIMILAR_MAX + 1
    assert sum(event["count"] for event in events) == 100
    assert "and others, the last: no answer after 99 ms" in {event["message"] for event in events}
    assert server.writes <= SIMILAR_MAX + 6


@instantly
async def test_an_event_that_expired_meanwhile_is_written_anew() -> None:
    server = SandboxApiServer()
    async with recording(server) as recorder:
        recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "x")
        await asyncio.sleep(1)
        server.remove(EVENTS, server.objects(EVENTS)[0]["metadata"]["name"], "default")
        recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "x")
        await asyncio.sleep(SAME_EVENT_SECONDS[0] + 1)
    assert [event["count"] for event in server.objects(EVENTS)] == [1]


@instantly
async def test_too_many_events_are_dropped_and_counted_and_recording_returns_at_once() -> None:
    recorder = EventRecorder(KubeClient(FaultyTransport(SandboxApiServer(), random.Random(1))), host="n")
    for index in range(WAITING_MAX + 5):
        recorder.warning(a_pod(index), CLAIM_PREPARE_FAILED, "trouble")
    assert recorder.dropped == 5


@instantly
async def test_events_come_through_a_troubled_network() -> None:
    server = SandboxApiServer()
    async with recording(server, rate=0.4) as recorder:
        for index in range(20):
            recorder.warning(a_pod(index), "Fine", f"message {index}")
        await asyncio.sleep(600)
        written = {event["message"] for event in server.objects(EVENTS)}
        assert len(written) + recorder.dropped >= 20
        assert len(written) > 15


@instantly
async def test_a_message_longer_than_the_api_takes_is_cut() -> None:
    server = SandboxApiServer()
    async with recording(server) as recorder:
        recorder.warning(CLAIM, CLAIM_PREPARE_FAILED, "é" * 2000)
        await asyncio.sleep(1)
    message = server.objects(EVENTS)[0]["message"]
    assert len(message.encode()) <= 1024
    assert message.endswith("...")
