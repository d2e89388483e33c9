"""When the driver may leave."""

from __future__ import annotations

from dranet.driver.serving.shutdown import may_leave, wait_for_successor, wait_until_quiet


def test_without_pods_at_once() -> None:
    assert may_leave([], {}, began=0, now=0)


def test_a_pod_whose_container_was_just_created_is_waited_for() -> None:
    assert not may_leave(["p"], {"p": 95.0}, began=90, now=100)
    assert may_leave(["p"], {"p": 95.0}, began=90, now=105)


def test_a_pod_never_seen_counts_from_the_moment_stopping_began() -> None:
    assert not may_leave(["p"], {}, began=100, now=109)
    assert may_leave(["p"], {}, began=100, now=110)


def test_after_five_minutes_nobody_waits() -> None:
    assert may_leave(["p"], {"p": 399.0}, began=100, now=400)


def test_a_driver_whose_successor_serves_leaves_however_many_pods_start() -> None:
    assert not may_leave(["p"], {"p": 109.0}, began=100, now=109, relieved=108)
    assert may_leave(["p"], {"p": 110.0}, began=100, now=110, relieved=108)


async def test_a_successor_that_dies_again_relieves_nobody() -> None:
    ticks, living = iter(range(100)), iter([True, False, True, True, True, True])
    asked = []

    def has_successor() -> bool:
        asked.append(next(living))
        return asked[-1]

    await wait_until_quiet(lambda: ["p"], {"p": 50.0}, has_successor, 0, clock=lambda: next(ticks), poll=0)
    assert len(asked) == 4


async def test_claims_are_served_until_a_successor_is_there() -> None:
    living = iter([False, False, True])
    await wait_for_successor(lambda: ["p"], lambda: next(living), 0, clock=lambda: 1, poll=0)
    assert list(living) == []


async def test_nobody_waits_for_a_successor_without_pods_or_for_ever() -> None:
    ticks = iter(range(100))
    await wait_for_successor(list, lambda: False, 0, clock=lambda: 0, poll=0)
    await wait_for_successor(lambda: ["p"], lambda: False, 0, clock=lambda: next(ticks), poll=0)
    assert next(ticks) == 11
