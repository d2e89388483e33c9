"""How long to wait before the next attempt: longer each time, never the same on two machines."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds. `jitter` is the part of each delay left to chance: a runtime's plugins must not all return at once."""

    first: float = 0.1
    limit: float = 5.0
    factor: float = 2.0
    jitter: float = 0.3

    def delays(self, chance: Callable[[], float] = random.random) -> Iterator[float]:
        """Delays without end."""
        delay = self.first
        while True:
            yield delay * (1 - self.jitter * chance())
            delay = min(self.limit, delay * self.factor)
