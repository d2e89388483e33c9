"""A release of this tree, made once for all tests of the tier."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.kubebed import parts
from tests.release.making import release

LONGEST_TEST = 300
"""Seconds, with the release that the first one waits for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_TEST))


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release(tmp_path_factory.mktemp("release") / "dist")


@pytest.fixture(scope="session")
def kubectl() -> str:
    return str(parts.kubectl())
