"""Plans of small worlds on one shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dranet.predict.planning import Plan, plan
from tests.worlds import shapes, world

Planner = Callable[..., Plan]


@pytest.fixture
def planned() -> Planner:
    def make(*sources: str | Path, shape: str = "a4-highgpu-8g") -> Plan:
        return plan(world(*sources), shapes(shape))

    return make
