"""How old a request can be, and whether anybody still waits for its answer."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Protocol

import pytest

from dranet.kubernetes.nri.request_context import (
    BEAT_SECONDS,
    STALLED_AFTER,
    ArrivalClock,
    RequestContext,
    peer_hung_up,
)


class HandClock(Protocol):
    time: float

    def __call__(self) -> float: ...


def context(clock: HandClock, deadline: float | None, *, hung_up: bool = False) -> RequestContext:
    return RequestContext(received_at=clock.time, deadline=deadline, now=clock, hung_up=lambda: hung_up)


def test_bytes_read_by_a_loop_that_beats_arrived_now(clock: HandClock) -> None:
    arrivals = ArrivalClock(clock)
    clock.time += BEAT_SECONDS
    assert arrivals.earliest() == clock.time


def test_bytes_read_before_a_late_beat_may_be_as_old_as_the_last_one(clock: HandClock) -> None:
    arrivals = ArrivalClock(clock)
    clock.time += STALLED_AFTER + 5
    assert arrivals.earliest() == 100.0


def test_bytes_read_right_after_a_late_beat_may_be_as_old_as_the_one_before(clock: HandClock) -> None:
    arrivals = ArrivalClock(clock)
    clock.time += STALLED_AFTER + 5
    arrivals.beat()
    assert arrivals.earliest() == 100.0


def test_once_the_loop_has_caught_up_bytes_are_new_again(clock: HandClock) -> None:
    arrivals = ArrivalClock(clock)
    clock.time += STALLED_AFTER + 5
    arrivals.beat()
    arrivals.caught_up()
    assert arrivals.earliest() == clock.time


async def test_a_blocked_loop_is_noticed_and_forgotten_again() -> None:
    arrivals = ArrivalClock()
    arrivals.start()
    before = arrivals.now()
    time.sleep(STALLED_AFTER + 0.1)  # noqa: ASYNC251 (a loop that stands still is the point)
    assert arrivals.earliest() <= before
    await asyncio.sleep(BEAT_SECONDS / 10)
    woken = arrivals.now()
    assert arrivals.earliest() >= woken
    arrivals.stop()


def test_a_request_is_expired_at_its_deadline(clock: HandClock) -> None:
    request = context(clock, deadline=102.0)
    assert not request.expired()
    clock.time = 102.0
    assert request.expired()


def test_a_request_is_expired_when_its_caller_has_hung_up(clock: HandClock) -> None:
    assert context(clock, deadline=None, hung_up=True).expired()


@pytest.mark.parametrize(("deadline", "left"), [(102.0, 2.0), (99.0, 0.0), (None, None)])
def test_remaining_time_is_never_negative(clock: HandClock, deadline: float | None, left: float | None) -> None:
    assert context(clock, deadline).remaining() == left


def test_a_hang_up_is_seen_past_unread_bytes() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.send(b"unread")
        assert not peer_hung_up(ours.fileno())
        theirs.close()
        assert peer_hung_up(ours.fileno())


def test_a_closed_descriptor_counts_as_hung_up() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    assert peer_hung_up(reading)
    assert peer_hung_up(-1)
