"""Finding helm and the folders under test."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parent.parent.parent / "deploy"


@pytest.fixture(scope="session")
def deploy() -> Path:
    return DEPLOY


@pytest.fixture(scope="session")
def helm() -> str:
    return program("helm")


@pytest.fixture(scope="session")
def kubectl() -> str:
    return program("kubectl")


@pytest.fixture(scope="session")
def actionlint() -> str:
    return program("actionlint")


def program(name: str) -> str:
    """From $HELM and the like, the PATH or the cluster bed's cache, which `make parts` fills."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dranet" / "cluster"
    cached = [*cache.glob(f"go/{name}-*/{name}"), *cache.glob(f"deb/*-{name}/**/usr/bin/{name}")]
    built = sorted(str(path) for path in cached)
    for found in (os.environ.get(name.upper()), shutil.which(name), *built):
        if found:
            return found
    pytest.skip(f"no {name}: set {name.upper()}, put it on the PATH, or `make parts`")
