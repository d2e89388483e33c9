"""A containerd for these tests, from the cache of the cluster bed; skipped where it cannot run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cluster.kubebed import parts
from tests.cluster.kubebed.cache import cache_root
from tests.cluster.kubebed.images import BUSYBOX_IMAGE, busybox_image
from tests.containerd.ctrdbed import Containerd, Cri

NEEDED = (parts.CONTAINERD, parts.RUNC, parts.BUSYBOX)
REQUEST_TIMEOUT = 0.5


@pytest.fixture(scope="module")
def containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """It gives a plugin so many seconds as the test's parameter says."""
    _skip_unless_possible()
    daemon = Containerd(
        Path(tempfile.mkdtemp(prefix="ctrd")),
        programs=parts.containerd_dir(),
        runc=parts.runc(),
        request_timeout=getattr(request, "param", REQUEST_TIMEOUT),
    )
    try:
        daemon.up(busybox_image(), BUSYBOX_IMAGE)
        yield daemon
    finally:
        daemon.down()


@pytest.fixture
async def cri(containerd: Containerd) -> AsyncIterator[Cri]:
    """Sandboxes the test leaves behind are removed."""
    async with Cri(containerd.cri_socket) as client:
        yield client
        await client.remove_all()


def _skip_unless_possible() -> None:
    if os.geteuid() != 0:
        pytest.skip("containerd needs root")
    missing = [package.name for package in NEEDED if not (cache_root() / package.key).is_dir()]
    if missing:
        pytest.skip(f"not fetched yet: {', '.join(missing)}; `python tests/cluster/kubebed build` does it")
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us make namespaces")
