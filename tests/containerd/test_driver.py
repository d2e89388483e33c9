"""The driver with a real container runtime: a sandbox gets its device, whatever is restarted or stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import grpc
import pytest

from dranet.testing.waiting import until
from tests.cluster.kubebed.images import BUSYBOX_IMAGE
from tests.containerd.runtimebed import Cri, Runtime
from tests.containerd.runtimebed.driver import CDI, CLAIM, POD, SLEEP, DriverBed, driver_bed, eventually

RESTARTS = int(os.environ.get("DRANET_RESTARTS", "6"))
"""Restarts of the driver: runtimes list sandboxes in many orders; 50 by hand."""

pytestmark = pytest.mark.timeout(300)  # a start of the driver takes one or two seconds, and ten on busy cores
PATIENT = pytest.mark.parametrize("runtime", [10], indirect=True)
"""A runtime that waits longer than any machine needs; test_slow_attach has shorter timeouts."""
HASTY = pytest.mark.parametrize("runtime", [0.5], indirect=True)


@pytest.fixture
async def bed(runtime: Runtime) -> AsyncIterator[DriverBed]:
    async with driver_bed(runtime) as made:
        yield made


@PATIENT
async def test_attaches_runs_a_container_and_detaches(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    sandbox = await cri.run_sandbox(*POD, own_network=True)
    assert "nic0" not in bed.names()
    await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    assert "nic0" in bed.names()
    await bed.kubelet.unprepare("dra.net", CLAIM)


@PATIENT
async def test_survives_a_restart_of_the_runtime(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    sandbox = await cri.run_sandbox(*POD, own_network=True)
    await asyncio.to_thread(bed.runtime.stop)
    await asyncio.to_thread(bed.runtime.start)
    await bed.connected(times=2)
    await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "nic0" in bed.names()


@PATIENT
@pytest.mark.parametrize("restarted", ["driver", "runtime"])
async def test_restart_keeps_the_other_devices_of_a_pod_with_a_dead_one(
    runtime: Runtime, cri: Cri, restarted: str
) -> None:
    async with driver_bed(runtime, nics=3) as bed:
        await bed.kubelet.prepare("dra.net", CLAIM)
        sandbox = await cri.run_sandbox(*POD, own_network=True)
        container = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        assert await cri.network_of(container) == {"lo", "nic0", "nic1", "nic2"}
        bed.unplug(1)
        if restarted == "driver":
            await bed.kill()
            await bed.start()
        else:
            await asyncio.to_thread(bed.runtime.stop)
            await asyncio.to_thread(bed.runtime.start)
        await bed.compared(2)
        assert await cri.network_of(container) == {"lo", "nic0", "nic2"}
        await cri.remove_container(container)
        again = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)  # the readiness gate is still open
        assert await cri.network_of(again) == {"lo", "nic0", "nic2"}
        await until(lambda: sorted(status for _, status in bed.conditions()) == ["False", "True", "True"])
        await cri.stop_sandbox(sandbox)
        await bed.kubelet.unprepare("dra.net", CLAIM)
        assert bed.on_host() == {"nic0", "nic2"}


@HASTY
@pytest.mark.parametrize("healed_by", ["SIGCONT", "restart"])
async def test_no_container_starts_while_the_driver_is_stopped(bed: DriverBed, cri: Cri, healed_by: str) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    bed.signal(signal.SIGSTOP)
    sandbox = await cri.run_sandbox(*POD, own_network=True)  # the runtime drops the plugin and continues
    with pytest.raises(grpc.aio.AioRpcError, match=bed.runtime.no_cdi_device):
        await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    if healed_by == "SIGCONT":
        bed.signal(signal.SIGCONT)
    else:
        await bed.kill()
        await bed.start()
    await eventually(cri, sandbox, CDI)
    assert "nic0" not in bed.names()
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "nic0" in bed.names()


async def _ended_sandboxes(bed: DriverBed, cri: Cri) -> str:
    """Three ended sandboxes of the pod: two stopped, and one that died and still has its network namespace."""
    if not bed.runtime.can_kill_sandbox:
        pytest.skip(f"a sandbox of {bed.runtime.name} has no process that could die")
    for attempt in range(2):
        await cri.stop_sandbox(await cri.run_sandbox(*POD, own_network=True, attempt=attempt))
    died = await cri.run_sandbox(*POD, own_network=True, attempt=2)
    await asyncio.to_thread(bed.runtime.kill_sandbox, died)
    return died


@PATIENT
async def test_restart_keeps_the_device_in_a_pod_with_ended_sandboxes(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    died = await _ended_sandboxes(bed, cri)
    sandbox = await cri.run_sandbox(*POD, own_network=True, attempt=3)
    for restart in range(RESTARTS):
        await bed.kill()
        await bed.start()
        await bed.compared(restart + 2)
        container = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        assert await cri.network_of(container) == {"lo", "nic0"}, f"after restart {restart + 1}"
        await cri.remove_container(container)
    await cri.stop_sandbox(died)  # late, as a busy kubelet does
    assert "nic0" not in bed.names()
    await cri.stop_sandbox(sandbox)
    assert "nic0" in bed.names()
    await bed.kubelet.unprepare("dra.net", CLAIM)


@PATIENT
async def test_a_sandbox_started_without_the_driver_gets_the_device_of_a_dead_one(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    await _ended_sandboxes(bed, cri)
    await bed.kill()
    sandbox = await cri.run_sandbox(*POD, own_network=True, attempt=3)
    await bed.start()
    container = await eventually(cri, sandbox, CDI)
    assert await cri.network_of(container) == {"lo", "nic0"}
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "nic0" in bed.names()


@PATIENT
async def test_a_second_pod_of_the_claim_does_not_start_its_container(bed: DriverBed, cri: Cri) -> None:
    """The gate of the first pod is open, so the runtime alone would start it."""
    await bed.kubelet.prepare("dra.net", CLAIM)
    first = await cri.run_sandbox(*POD, own_network=True)
    second = ("second", "second-uid")
    sandbox = await cri.run_sandbox(*second, own_network=True)
    with pytest.raises(grpc.aio.AioRpcError, match="is in one pod at a time"):
        await cri.run_container(sandbox, second, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.run_container(first, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    await cri.stop_sandbox(first)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "nic0" in bed.names()
