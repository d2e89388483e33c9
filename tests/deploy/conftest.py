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
    """helm from $HELM, the PATH or the cluster bed's cache (`python -m kubebed build helm` in tests/cluster)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dranet" / "cluster" / "go"
    built = sorted(str(path) for path in cache.glob("helm-*/helm"))
    for found in (os.environ.get("HELM"), shutil.which("helm"), *built):
        if found:
            return found
    pytest.skip("no helm: set HELM, put it on the PATH, or build the cluster bed's helm")
