"""What the hook says of limits, obeyed by a real containerd: a container with RDMA devices may pin all it wants."""

from __future__ import annotations

import resource
import subprocess
import sys

import grpc
import pytest

from dranet.kubernetes.nri import Handler, RequestContext, messages
from dranet.node.records.plan import CharDevice, ClaimPlan, DevicePlan, PodRef, RdmaRecord
from dranet.node.server.runtime import container_adjustment
from tests.cluster.kubebed.images import BUSYBOX_IMAGE
from tests.containerd.runtimebed import Cri, Runtime

from .test_nri import connected

POD = ("pins", "uid-pins")
SLEEP = ("/bin/busybox", "sleep", "1000")
NODE = CharDevice(path="/dev/stand-in-for-uverbs", major=1, minor=3)
LIFT = "import resource as r; r.setrlimit(r.RLIMIT_MEMLOCK, (r.RLIM_INFINITY, r.RLIM_INFINITY))"


class Answering(Handler):
    """Answers for a pod with one RDMA NIC, as the driver's own hook does."""

    def __init__(self, lift: bool) -> None:
        self._lift = lift

    async def create_container(
        self, pod: messages.PodSandbox, container: messages.Container, context: RequestContext
    ) -> messages.CreateContainerResponse:
        device = DevicePlan(name="d", pool="n", request="r", rdma=RdmaRecord(device="m", char_devices=(NODE,)))
        user = PodRef(uid=pod.uid, name=pod.name, namespace=pod.namespace)
        plan = ClaimPlan(uid="u", namespace="d", name="c", pod=user, devices=(device,), named=False)
        return container_adjustment([plan], container, lift_memlock=self._lift)


def may_raise_limits() -> bool:
    """Whether what we start may; asked of a process that ends with it."""
    return subprocess.run([sys.executable, "-c", LIFT], capture_output=True).returncode == 0


async def limits(runtime: Runtime, cri: Cri, lift: bool) -> list[str]:
    """Soft and hard limit of locked memory of a container's first process."""
    async with connected(runtime, Answering(lift)):
        sandbox = await cri.run_sandbox(*POD, own_network=True)
        container = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP)
        line = await cri.run_inside(container, "grep", "Max locked memory", "/proc/1/limits")
        await cri.remove_container(container)
    return line.split()[3:5]


async def test_the_limit_of_locked_memory_is_lifted_where_the_driver_does(runtime: Runtime, cri: Cri) -> None:
    """A runtime that may not raise limits itself says so: then nothing is lifted in silence, and nothing started."""
    if may_raise_limits():
        assert await limits(runtime, cri, lift=True) == ["unlimited", "unlimited"]
    else:
        with pytest.raises(grpc.aio.AioRpcError, match="error setting rlimit type 8: operation not permitted"):
            await limits(runtime, cri, lift=True)


async def test_the_limit_of_locked_memory_is_the_runtimes_otherwise(runtime: Runtime, cri: Cri) -> None:
    own = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    shown = ["unlimited" if limit == resource.RLIM_INFINITY else str(limit) for limit in own]
    assert await limits(runtime, cri, lift=False) == shown
