"""Which cards are on their way by our own doing: a link that we took down is no fault of the cable.

Every move counts twice, when it begins and when it ends, so an odd number means a card on its way, and two equal even
numbers that it stayed where it was in between. Links and error counters are compared only then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dranet.driver.records.plan import DevicePlan, Use


class Moves:
    """Begun and ended moves of each card since the driver started."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @contextmanager
    def of(self, devices: Sequence[DevicePlan]) -> Iterator[None]:
        """These devices are on their way; a card that is only shared stays where it is, and up."""
        names = [device.name for device in devices if device.use in (Use.MOVED, Use.RDMA_ONLY)]
        self._counts.update(names)
        try:
            yield
        finally:
            self._counts.update(names)

    def count(self, name: str) -> int:
        return self._counts[name]
