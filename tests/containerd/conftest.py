"""A container runtime for these tests, from the cache of the cluster bed; skipped where it cannot run.

containerd 2, or with DRANET_RUNTIME another one: containerd-1.7 (`make containerd-1.7`), crio (`make crio`).
"""

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
from tests.containerd.runtimebed import Containerd, Containerd17, Cri, Crio, Runtime

RUNTIMES: dict[str, type[Runtime]] = {"containerd": Containerd, "containerd-1.7": Containerd17, "crio": Crio}
KIND = os.environ.get("DRANET_RUNTIME", "containerd")
NEEDED = {
    "containerd": (parts.CONTAINERD, parts.RUNC, parts.BUSYBOX),
    "containerd-1.7": (parts.CONTAINERD_17, parts.RUNC, parts.BUSYBOX),
    "crio": (parts.CRIO, parts.CONMON, parts.RUNC, parts.BUSYBOX, parts.REGISTRY),
}
REQUEST_TIMEOUT = 0.5


@pytest.fixture(scope="module")
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """It gives a plugin so many seconds as the test's parameter says."""
    _skip_unless_possible()
    timeout = getattr(request, "param", REQUEST_TIMEOUT)
    daemon = RUNTIMES[KIND](Path(tempfile.mkdtemp(prefix="ctrd")), request_timeout=timeout)
    try:
        daemon.up(busybox_image(), BUSYBOX_IMAGE)
        yield daemon
    finally:
        daemon.down()


@pytest.fixture
async def cri(runtime: Runtime) -> AsyncIterator[Cri]:
    """Sandboxes the test leaves behind are removed."""
    async with Cri(runtime.cri_socket, runtime.cgroup_parent) as client:
        yield client
        await client.remove_all()


def _skip_unless_possible(kind: str = KIND) -> None:
    if os.geteuid() != 0:
        pytest.skip("a container runtime needs root")
    missing = [part.name for part in NEEDED[kind] if not (cache_root() / part.key).is_dir()]
    if missing:
        how = "`python tests/cluster/kubebed build`" if kind == "containerd" else f"`make {kind}`"
        pytest.skip(f"not fetched yet: {', '.join(missing)}; {how} does it")
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let us make namespaces")
