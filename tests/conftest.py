"""What holds for every test: generated inputs, and the stage that runs it.

Hypothesis draws the same inputs in every run, so that a run says something about the change it is for;
`--hypothesis-profile=new-inputs` draws others. Tests are judged by their answers, never by the time these take.

Long tests belong to stages of their own (`make browser`, `make containerd`, `make campaign-short`, `make long`),
which `make test` leaves out.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("new-inputs", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same-inputs", settings.get_profile("new-inputs"), derandomize=True)
settings.load_profile("same-inputs")

_TESTS = Path(__file__).parent
STAGES = {
    "containerd": "containerd",
    "campaign": "campaign",
    "mutations": "campaign",
    "node/driver/test_crash_points.py": "long",
    "kubernetes/api/test_convergence.py": "long",
    "testing/test_demo.py": "long",
    "testing/test_demo_web.py": "long",
}
"""The stage of the tests of a folder or file. Tests that use the browser's window are of the stage `browser`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(_TESTS) if item.path.is_relative_to(_TESTS) else Path()
        for stage in (STAGES.get(path.parts[0] if path.parts else ""), STAGES.get(path.as_posix())):
            if stage:
                item.add_marker(stage)
        if "window" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
