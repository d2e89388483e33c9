"""Points brought to the range from 0 to 100."""

from __future__ import annotations

MOST = 100


def normal(points: list[int], *, fewer_is_better: bool = False) -> list[int]:
    """In proportion to the highest."""
    highest = max(points, default=0)
    if not highest:
        return [MOST if fewer_is_better else 0] * len(points)
    found = [MOST * one // highest for one in points]
    return [MOST - one for one in found] if fewer_is_better else found
