"""Searches that explode for the scheduler: same verdict, same number of steps, few places visited."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import pytest

from dranet.scheduler.allocation import Allocation, AllocationError, ClusterDevices, NoFit, SearchLimits
from tests.scheduler.allocation.allocation_objects import NODE, claim, class_, device, distinct, match, slice_, want


def allocate(devices: list[Any], *claims: Any, version: str = "1.37", limits: SearchLimits | None = None) -> Any:
    cluster = ClusterDevices([slice_("p", devices)], [class_()], version=version, limits=limits)
    return cluster.allocate(NODE, list(claims))


def spread(count: int, groups: int) -> list[Any]:
    """Devices in groups by their `root` attribute, one after the other."""
    return [device(f"d{number:02d}", root=f"r{number % groups}") for number in range(count)]


def steps_of_unsatisfiable_match(count: int, group: int, groups: int) -> int:
    """Root, one step per non-empty subset of each group, and the empty one."""
    assert count > group
    return 1 + groups * sum(comb(group, size) for size in range(1, group + 1))


def test_eight_of_sixteen_on_roots_of_four_is_refused_with_the_schedulers_step_count() -> None:
    outcome = allocate(spread(16, 4), claim("c", [match("root")], r=want(count=8)))
    assert outcome == NoFit(steps_of_unsatisfiable_match(8, 4, 4))


def test_eight_of_sixteen_against_a_later_impossible_request() -> None:
    """Every choice of eight is tried, and for each the second request fails."""
    nothing = want('device.driver == "nope"')
    outcome = allocate(spread(16, 1), claim("c", r=want(count=8), s=nothing))
    subsets = sum(comb(16, size) for size in range(9))
    assert outcome == NoFit(subsets + comb(16, 8))


def test_thirty_of_sixty_four_is_answered_although_no_scheduler_could() -> None:
    outcome = allocate(spread(64, 1), claim("c", r=want(count=30), s=want('device.driver == "nope"')))
    subsets = sum(comb(64, size) for size in range(31))
    assert outcome == NoFit(subsets + comb(64, 30))


def test_distinct_values_that_are_too_few_are_refused() -> None:
    outcome = allocate(spread(24, 6), claim("c", [distinct("root")], r=want(count=8)))
    assert isinstance(outcome, NoFit)
    picked = sum(comb(6, size) * 4**size for size in range(1, 7))
    assert outcome.steps == 1 + picked


def test_a_solution_behind_a_long_search_is_found() -> None:
    devices = [*spread(16, 4), *[device(f"e{number}", root="last") for number in range(8)]]
    outcome = allocate(devices, claim("c", [match("root")], r=want(count=8)))
    assert isinstance(outcome, Allocation)
    assert [entry["device"] for entry in outcome.devices] == [f"e{number}" for number in range(8)]


@pytest.mark.parametrize("version", ["1.36", "1.37"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_remembering_failures_changes_neither_answer_nor_steps(version: str, count: int) -> None:
    """The walk without memory is the reference; both must agree on problems with every kind of constraint."""
    groups = [
        claim("c", [distinct("root"), match("half")], r=want(count=count), s=want(count=2)),
        claim("c", [match("half", "r")], r=want(count=count), s=[("a", want(count=5)), ("b", want(count=2))]),
        claim("c", [distinct("root", "r", "s/b")], r=want(count=count), s=[("a", want(count=4)), ("b", want())]),
    ]
    devices = [device(f"d{number}", root=f"r{number % 3}", half=number // 4) for number in range(7)]
    for first, second in combinations(groups, 2):
        answers = [
            allocate(devices, first, second, version=version, limits=SearchLimits(patience)) for patience in (0, 10**9)
        ]
        assert answers[0] == answers[1]


def test_a_search_without_end_is_reported_as_the_schedulers_timeout() -> None:
    ask = claim("c", [match("root")], r=want(count=8))
    outcome = allocate(spread(16, 4), ask, limits=SearchLimits(patience=0, places=20))
    assert isinstance(outcome, AllocationError)
    assert (outcome.kind, outcome.message) == ("timeout", "node node-1: timed out trying to allocate devices")


def test_counters_limit_how_many_partitions_fit() -> None:
    """Three of ten partitions fit into the counter; a fourth never does, whichever three were taken."""

    def part(name: str) -> Any:
        return device(name, extra={"consumesCounters": [{"counterSet": "cs", "counters": {"m": {"value": "3"}}}]})

    counters = slice_("p", [], name="s0", count=2, sharedCounters=[{"name": "cs", "counters": {"m": {"value": "10"}}}])
    counters["spec"].pop("devices")
    parts = slice_("p", [part(f"p{number}") for number in range(10)], name="s1", count=2)
    cluster = ClusterDevices([counters, parts], [class_()], version="1.37")
    assert isinstance(cluster.allocate(NODE, [claim("c", r=want(count=3))]), Allocation)
    refused = cluster.allocate(NODE, [claim("c", r=want(count=4))])
    assert refused == NoFit(1 + sum(comb(10, size) for size in (1, 2, 3)))
