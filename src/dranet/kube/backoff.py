"""Waiting before trying again: exponential, jittered, capped, from a random source the caller owns."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

Now = Callable[[], datetime]
"""The wall clock as a seam; waiting itself goes through the event loop, whose time a test can own."""


def utc_now() -> datetime:
    """The real wall clock."""
    return datetime.now(UTC)


def timestamp(moment: datetime) -> str:
    """A moment in the API's form: seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Backoff:
    """Half fixed, half random, doubling: a thousand nodes must not return in step after an API server restart."""

    def __init__(self, rng: random.Random, *, first: float = 0.1, limit: float = 30.0) -> None:
        self._rng = rng
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
