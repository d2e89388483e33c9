"""Delays between retries: exponential with jitter and a limit."""

from __future__ import annotations

import random


class Backoff:
    """Doubles each time. Half of a delay is random, so that a thousand nodes do not retry in step."""

    def __init__(self, rng: random.Random | None = None, *, first: float = 0.1, limit: float = 30.0) -> None:
        self._rng = rng or random.Random()
        self._first = first
        self._limit = limit
        self._delay = first

    def next(self) -> float:
        """Seconds to wait now; grows until :meth:`reset`."""
        delay = self._delay
        self._delay = min(delay * 2, self._limit)
        return delay / 2 + self._rng.random() * delay / 2

    def reset(self) -> None:
        """Start with the first delay again, after a success."""
        self._delay = self._first
