"""Waiting before trying again: exponential, jittered, capped, from a random source the caller may own."""

from __future__ import annotations

import random


class Backoff:
    """Half fixed, half random, doubling: what a thousand nodes lost at once they must not ask for in step."""

    def __init__(self, rng: random.Random | None = None, *, first: float = 0.1, limit: float = 30.0) -> None:
        self._rng = rng or random.Random()
        self._first = first
        self._limit = limit
        self._delay = first

    def next(self) -> float:
        """Seconds to wait now; longer each time until :meth:`reset`."""
        delay = self._delay
        self._delay = min(delay * 2, self._limit)
        return delay / 2 + self._rng.random() * delay / 2

    def reset(self) -> None:
        """Something worked: start small again."""
        self._delay = self._first
