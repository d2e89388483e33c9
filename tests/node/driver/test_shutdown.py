"""When the driver may leave."""

from __future__ import annotations

from dranet.node.server.shutdown import may_stop, wait_for_successor, wait_until_quiet


def test_stops_at_once_without_pods() -> None:
    assert may_stop([], {}, began=0, now=0)


def test_waits_for_a_pod_with_a_new_container() -> None:
    assert not may_stop(["p"], {"p": 95.0}, began=90, now=100)
    assert may_stop(["p"], {"p": 95.0}, began=90, now=105)


def test_unseen_pod_counts_from_the_start_of_stopping() -> None:
    assert not may_stop(["p"], {}, began=100, now=109)
    assert may_stop(["p"], {}, began=100, now=110)


def test_stops_after_five_minutes() -> None:
    assert may_stop(["p"], {"p": 399.0}, began=100, now=400)


def test_stops_when_a_successor_serves() -> None:
    assert not may_stop(["p"], {"p": 109.0}, began=100, now=109, relieved=108)
    assert may_stop(["p"], {"p": 110.0}, began=100, now=110, relieved=108)


async def test_crashed_successor_does_not_count() -> None:
    ticks, living = iter(range(100)), iter([True, False, True, True, True, True])
    asked = []

    def has_successor() -> bool:
        asked.append(next(living))
        return asked[-1]

    await wait_until_quiet(lambda: ["p"], {"p": 50.0}, has_successor, 0, clock=lambda: next(ticks), poll=0)
    assert len(asked) == 4


async def test_serves_claims_until_a_successor_is_ready() -> None:
    living = iter([False, False, True])
    await wait_for_successor(lambda: ["p"], lambda: next(living), 0, clock=lambda: 1, poll=0)
    assert list(living) == []


async def test_does_not_wait_for_a_successor_without_pods() -> None:
    ticks = iter(range(100))
    await wait_for_successor(list, lambda: False, 0, clock=lambda: 0, poll=0)
    await wait_for_successor(lambda: ["p"], lambda: False, 0, clock=lambda: next(ticks), poll=0)
    assert next(ticks) == 11
