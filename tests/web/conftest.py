"""One browser for all tests of this folder: starting it costs more than using it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .browser import MISSING, Browser, available, browser
from .lab import Lab, lab


@pytest.fixture(scope="session")
def _window() -> Iterator[Browser]:
    if not available():
        pytest.skip(MISSING)
    with browser() as window:
        yield window


@pytest.fixture
def window(_window: Browser) -> Iterator[Browser]:
    """A browser window; light, and on an empty page afterwards."""
    _window.colours("light")
    yield _window
    _window.call("POST", "/url", {"url": "about:blank"})


@pytest.fixture
def cluster() -> Iterator[Lab]:
    """An empty cluster with its page."""
    with lab() as made:
        yield made
