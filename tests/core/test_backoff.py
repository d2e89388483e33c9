"""Delays between attempts."""

from __future__ import annotations

import random

from dranet.core.backoff import Backoff


class Fixed(random.Random):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


def test_delays_double_up_to_the_limit() -> None:
    backoff = Backoff(Fixed(1.0), first=1, limit=5)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_chance_takes_away_at_most_half() -> None:
    backoff = Backoff(Fixed(0.0), first=1, limit=5)
    assert [backoff.next() for _ in range(3)] == [0.5, 1, 2]


def test_two_nodes_wait_for_different_times() -> None:
    assert Backoff().next() != Backoff().next()


def test_after_a_success_it_begins_again() -> None:
    backoff = Backoff(Fixed(1.0), first=1, limit=5)
    backoff.next(), backoff.next()
    backoff.reset()
    assert backoff.next() == 1
