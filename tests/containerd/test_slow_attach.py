"""Devices that take longer to attach than a real containerd waits: no pod starts without its devices.

The cases cover every timeout, number of devices and speed; DRANET_SLOW=all runs the whole matrix and every fault point.
The six cases of the reference driver's suite for slow devices are here under their numbers, with its figures: six
devices of 0.7 s each. Where that driver uses OCI hooks and flags, these tests use the equivalent here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator

import grpc
import pytest

from dranet.node.claim_states import crash_points
from dranet.node.features import FEATURES
from dranet.testing.waiting import until
from tests.cluster.kubebed.images import BUSYBOX_IMAGE
from tests.containerd.runtimebed import Cri, Runtime
from tests.containerd.runtimebed.driver import CDI, CLAIM, POD, SLEEP, DriverBed, driver_bed, eventually

EVERYTHING = os.environ.get("DRANET_SLOW") == "all"
TIMEOUTS, DEVICES, SECONDS = (2, 5, 10), (1, 2, 4, 8), (0.1, 0.5, 1.0, 3.0)
SOME = [(2, 8, 0.1), (2, 1, 3.0), (2, 4, 0.5), (5, 2, 3.0), (10, 4, 1.0)]
MATRIX = list(itertools.product(TIMEOUTS, DEVICES, SECONDS)) if EVERYTHING else SOME
DEFAULT_STEPS = ["attach.one_moved:2", "attach.moved", "attach.done"]
ALL_STEPS = [f"attach.{feature.tag}" for feature in FEATURES] + [p for p in crash_points() if p.startswith("attach.")]
STEPS = sorted({*DEFAULT_STEPS, *ALL_STEPS}) if EVERYTHING else DEFAULT_STEPS
DEFERRED = "NetworkDeviceAttachDeferred"
pytestmark = pytest.mark.timeout(300)  # a start of the driver takes one or two seconds, and ten on busy cores
LOADED_SECONDS = 0.2
"""Extra time for each move on a loaded machine: the kernel has one lock for all links."""


async def check_events(bed: DriverBed, reasons: list[str]) -> None:
    """The driver sends events in the background."""
    if reasons:
        await until(bed.events, "an event")
    assert bed.events() == reasons


async def all_on_host(bed: DriverBed) -> None:
    await until(lambda: bed.on_host() == set(bed.nics), "all NICs on the host", seen=bed.on_host)


@contextlib.asynccontextmanager
async def slow(runtime: Runtime, nics: int, seconds: float, **environment: str) -> AsyncIterator[DriverBed]:
    """A prepared claim of devices that each take so long to attach; checks that all are on the host at the end."""
    async with driver_bed(runtime, nics, DRANET_SLOW_ATTACH=str(seconds), **environment) as bed:
        await bed.kubelet.prepare("dra.net", CLAIM)
        yield bed
        await bed.kubelet.unprepare("dra.net", CLAIM)
        assert bed.on_host() == set(bed.nics)
        assert bed.gates() == []


def is_late(timeout: float, nics: int, seconds: float) -> bool | None:
    """Whether the sandbox starts before its devices are attached; None where it depends on the machine's load."""
    needed = nics * seconds
    if needed > timeout:
        return True
    return False if needed + nics * LOADED_SECONDS < 0.6 * timeout else None


@pytest.mark.parametrize(("runtime", "nics", "seconds"), MATRIX, indirect=["runtime"])
async def test_a_pod_gets_all_its_slow_devices(
    runtime: Runtime, cri: Cri, nics: int, seconds: float, request: pytest.FixtureRequest
) -> None:
    async with slow(runtime, nics, seconds) as bed:
        sandbox = await cri.run_sandbox(*POD, own_network=True)
        late = is_late(request.node.callspec.params["runtime"], nics, seconds)
        if late is not None:
            assert (not bed.gates()) is late
        container = await eventually(cri, sandbox, CDI)
        assert await cri.network_of(container) == {"lo", *bed.nics}
        assert bed.connections() == 1, "containerd has dropped the driver"
        await cri.stop_sandbox(sandbox)
        await all_on_host(bed)
        if late is not None:
            await check_events(bed, [DEFERRED] if late else [])


@pytest.mark.parametrize("runtime", [0.5], indirect=True)
@pytest.mark.parametrize("step", STEPS)
async def test_a_driver_killed_during_attach_finishes_after_its_restart(runtime: Runtime, cri: Cri, step: str) -> None:
    async with slow(runtime, 3, 0.4, DRANET_FAULT_POINT=step) as bed:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await cri.run_sandbox(*POD, own_network=True)
        await bed.ended()
        if step == "attach.gate_written":  # all devices are attached and the gate is open: a container needs no driver
            container = await cri.run_container(cri.latest, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        else:
            with pytest.raises(grpc.aio.AioRpcError):
                await cri.run_container(cri.latest, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        await bed.start(DRANET_SLOW_ATTACH="0.4")
        await bed.compared(2)
        if step != "attach.gate_written":
            container = await eventually(cri, cri.latest, CDI)
        assert await cri.network_of(container) == {"lo", *bed.nics}
        await cri.stop_sandbox(cri.latest)
        await all_on_host(bed)


@pytest.mark.parametrize("runtime", [2], indirect=True)
async def test_slow_detach_completes_and_the_driver_stays_connected(runtime: Runtime, cri: Cri) -> None:
    async with driver_bed(runtime, 3, DRANET_SLOW_DETACH="0.8") as bed:
        await bed.kubelet.prepare("dra.net", CLAIM)
        sandbox = await cri.run_sandbox(*POD, own_network=True)
        await eventually(cri, sandbox, CDI)
        await cri.stop_sandbox(sandbox)
        assert bed.gates() == []
        await bed.kubelet.unprepare("dra.net", CLAIM)
        assert bed.on_host() == set(bed.nics)
        assert bed.connections() == 1


class TestReferenceSuite:
    """`nri_timeout.bats`: six devices of 0.7 s each, and a runtime that waits two seconds by default."""

    pytestmark = pytest.mark.parametrize("runtime", [2], indirect=True)

    async def test_1_prepare_returns_a_cdi_device_without_a_spec(self, runtime: Runtime) -> None:
        """The reference uses a program and a socket to make containers wait."""
        async with slow(runtime, 6, 0.7) as bed:
            prepared = await bed.kubelet.prepare("dra.net", CLAIM)
            assert {name for device in prepared for name in device.cdi_ids} == set(CDI)
            assert bed.gates() == []

    async def test_2_a_slow_attach_continues_and_the_pod_gets_all_devices(self, runtime: Runtime, cri: Cri) -> None:
        async with slow(runtime, 6, 0.7) as bed:
            sandbox = await cri.run_sandbox(*POD, own_network=True)
            container = await eventually(cri, sandbox, CDI)
            assert await cri.network_of(container) == {"lo", *bed.nics}
            ready = [("NetworkDeviceReady", "True")] * 6
            await until(lambda: bed.conditions() == ready, "six ready devices", seen=bed.conditions)
            await check_events(bed, [DEFERRED])
            assert bed.connections() == 1
            await cri.stop_sandbox(sandbox)

    async def test_3_the_first_container_has_all_devices_and_a_restarted_one_does_not_wait(
        self, runtime: Runtime, cri: Cri
    ) -> None:
        async with slow(runtime, 6, 0.7) as bed:
            sandbox = await cri.run_sandbox(*POD, own_network=True)
            first = await eventually(cri, sandbox, CDI)
            assert await cri.network_of(first) == {"lo", *bed.nics}
            await cri.remove_container(first)
            await bed.attached(len(bed.nics))
            again = await cri.run_container(
                sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI
            )  # a container that has to wait would be refused
            assert await cri.network_of(again) == {"lo", *bed.nics}
            assert bed.attach_count() == len(bed.nics), "devices were moved again"
            await cri.stop_sandbox(sandbox)

    async def test_4_the_hook_refuses_a_container_that_does_not_name_the_claim(
        self, runtime: Runtime, cri: Cri
    ) -> None:
        """The reference has an empty `--hook-path` here."""
        async with slow(runtime, 6, 0.7) as bed:
            sandbox = await cri.run_sandbox(*POD, own_network=True)
            with pytest.raises(grpc.aio.AioRpcError, match="devices of claim default/nics are not attached yet"):
                await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP)
            container = await eventually(cri, sandbox, [])
            assert await cri.network_of(container) == {"lo", *bed.nics}
            assert bed.connections() == 1
            await cri.stop_sandbox(sandbox)

    async def test_5_deleting_a_pod_during_attach_leaves_all_devices_on_the_host(
        self, runtime: Runtime, cri: Cri
    ) -> None:
        """The reference refuses it with `--device-attach-timeout=0`; this driver always continues to attach."""
        async with slow(runtime, 6, 0.7) as bed:
            sandbox = await cri.run_sandbox(*POD, own_network=True)
            assert bed.gates() == []
            await cri.stop_sandbox(sandbox)
            await all_on_host(bed)
            assert bed.gates() == []
            assert bed.connections() == 1


@pytest.mark.parametrize("runtime", [10], indirect=True)
async def test_6_of_the_reference_suite_attaches_all_devices_in_the_hook_within_ten_seconds(
    runtime: Runtime, cri: Cri
) -> None:
    async with slow(runtime, 6, 0.7) as bed:
        sandbox = await cri.run_sandbox(*POD, own_network=True)
        assert len(bed.gates()) == 1
        container = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        assert await cri.network_of(container) == {"lo", *bed.nics}
        assert bed.events() == []
        await cri.stop_sandbox(sandbox)
