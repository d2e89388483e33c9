"""Plans of small inputs on one shape."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dranet.advise.plan.planning import Plan, plan
from tests.inputs import manifests, shapes

Planner = Callable[..., Plan]


@pytest.fixture
def planned() -> Planner:
    def make(*sources: str | Path, shape: str = "a4-highgpu-8g") -> Plan:
        return plan(manifests(*sources), shapes(shape))

    return make
