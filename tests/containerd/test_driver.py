"""The driver at a real containerd: a sandbox made through its CRI gets its card, whatever is restarted or stopped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import grpc
import pytest
from ctrdbed import Containerd, Cri
from ctrdbed.driver import CDI, CLAIM, POD, SLEEP, DriverBed, driver_bed, eventually
from kubebed.images import BUSYBOX_IMAGE

RESTARTS = int(os.environ.get("DRANET_RESTARTS", "6"))
"""Of the driver beside ended sandboxes, by the many orders in which containerd lists them; by hand 50."""

pytestmark = pytest.mark.timeout(300)  # every start of the driver is a second or two, and ten on busy cores
PATIENT = pytest.mark.parametrize("containerd", [10], indirect=True)
"""A runtime that waits so long for the driver as no machine needs: how it goes with less is told by test_slow_cards."""
HASTY = pytest.mark.parametrize("containerd", [0.5], indirect=True)


@pytest.fixture
async def bed(containerd: Containerd) -> AsyncIterator[DriverBed]:
    async with driver_bed(containerd) as made:
        yield made


@PATIENT
async def test_a_sandbox_gets_its_card_a_container_runs_and_the_card_comes_home(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    sandbox = await cri.run_sandbox(*POD, own_network=True)
    assert "card0" not in bed.names()
    await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    assert "card0" in bed.names()
    await bed.kubelet.unprepare("dra.net", CLAIM)


@PATIENT
async def test_it_survives_a_restart_of_containerd_in_the_middle(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    sandbox = await cri.run_sandbox(*POD, own_network=True)
    await asyncio.to_thread(bed.containerd.stop)
    await asyncio.to_thread(bed.containerd.start)
    await bed.connected(times=2)
    await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "card0" in bed.names()


@HASTY
@pytest.mark.parametrize("healed_by", ["SIGCONT", "restart"])
async def test_a_stopped_driver_lets_no_container_start_and_heals(bed: DriverBed, cri: Cri, healed_by: str) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    bed.signal(signal.SIGSTOP)
    sandbox = await cri.run_sandbox(*POD, own_network=True)  # containerd gives up on the plugin and goes on
    with pytest.raises(grpc.aio.AioRpcError, match="CDI device injection failed"):
        await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    if healed_by == "SIGCONT":
        bed.signal(signal.SIGCONT)
    else:
        await bed.kill()
        await bed.start()
    await eventually(cri, sandbox, CDI)
    assert "card0" not in bed.names()
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "card0" in bed.names()


async def _ended_sandboxes(bed: DriverBed, cri: Cri) -> str:
    """Three sandboxes of the pod that have ended: two stopped, and one that died and whose network is still there."""
    for attempt in range(2):
        await cri.stop_sandbox(await cri.run_sandbox(*POD, own_network=True, attempt=attempt))
    died = await cri.run_sandbox(*POD, own_network=True, attempt=2)
    await asyncio.to_thread(bed.containerd.kill_sandbox, died)
    return died


@PATIENT
async def test_a_restarted_driver_leaves_the_card_in_a_pod_that_has_ended_sandboxes(bed: DriverBed, cri: Cri) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    died = await _ended_sandboxes(bed, cri)
    sandbox = await cri.run_sandbox(*POD, own_network=True, attempt=3)
    for restart in range(RESTARTS):
        await bed.kill()
        await bed.start()
        await bed.compared(restart + 2)
        container = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        assert await cri.network_of(container) == {"lo", "card0"}, f"after restart {restart + 1}"
        await cri.remove_container(container)
    await cri.stop_sandbox(died)  # late: the kubelet has only now come to it
    assert "card0" not in bed.names()
    await cri.stop_sandbox(sandbox)
    assert "card0" in bed.names()
    await bed.kubelet.unprepare("dra.net", CLAIM)


@PATIENT
async def test_a_sandbox_that_starts_while_the_driver_is_away_gets_the_card_of_one_that_died(
    bed: DriverBed, cri: Cri
) -> None:
    await bed.kubelet.prepare("dra.net", CLAIM)
    await _ended_sandboxes(bed, cri)
    await bed.kill()
    sandbox = await cri.run_sandbox(*POD, own_network=True, attempt=3)
    await bed.start()
    container = await eventually(cri, sandbox, CDI)
    assert await cri.network_of(container) == {"lo", "card0"}
    await cri.stop_sandbox(sandbox)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "card0" in bed.names()


@PATIENT
async def test_a_second_pod_that_names_the_claim_does_not_start_its_container(bed: DriverBed, cri: Cri) -> None:
    """The receipt of the first pod is there, so containerd alone would start it."""
    await bed.kubelet.prepare("dra.net", CLAIM)
    first = await cri.run_sandbox(*POD, own_network=True)
    second = ("second", "second-uid")
    sandbox = await cri.run_sandbox(*second, own_network=True)
    with pytest.raises(grpc.aio.AioRpcError, match="belongs to one pod at a time"):
        await cri.run_container(sandbox, second, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.run_container(first, POD, BUSYBOX_IMAGE, SLEEP, CDI)
    await cri.stop_sandbox(sandbox)
    await cri.stop_sandbox(first)
    await bed.kubelet.unprepare("dra.net", CLAIM)
    assert "card0" in bed.names()
