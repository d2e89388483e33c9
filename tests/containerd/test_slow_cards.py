"""Cards that take longer than a real containerd waits: every pod that can start does, and none without its cards.

A few of the cases here, chosen so that every time-out, number of cards and speed is among them; DRANET_SLOW=all runs
the whole matrix and every step at which the driver can die. The six cases of the reference's own suite for slow cards
are here under their names, with its figures: six cards of 0.7 s each. Where it has a program in the OCI hooks and flags
of its own, here is what stands in their place.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os

import grpc
import pytest
from ctrdbed import Containerd, Cri
from ctrdbed.driver import CDI, CLAIM, POD, SLEEP, DriverBed, driver_bed, eventually
from kubebed.images import BUSYBOX_IMAGE

from dranet.driver.faultpoints import POINTS
from dranet.driver.parts.registry import PARTS

EVERYTHING = os.environ.get("DRANET_SLOW") == "all"
TIMEOUTS, CARDS, SECONDS = (2, 5, 10), (1, 2, 4, 8), (0.1, 0.5, 1.0, 3.0)
SOME = [(2, 8, 0.1), (2, 1, 3.0), (2, 4, 0.5), (5, 2, 3.0), (10, 4, 1.0)]
MATRIX = list(itertools.product(TIMEOUTS, CARDS, SECONDS)) if EVERYTHING else SOME
WAY_IN = ["attach.entered:2", "attach.moved", "attach.done"]
ALL_OF_IT = [f"attach.{part.tag}" for part in PARTS] + [p for p in POINTS if p.startswith("attach.")]
STEPS = sorted({*WAY_IN, *ALL_OF_IT}) if EVERYTHING else WAY_IN
DEFERRED = "NetworkDeviceAttachDeferred"
pytestmark = pytest.mark.timeout(300)  # every start of the driver is a second or two, and ten on busy cores
LOADED_SECONDS = 0.2
"""What a move of a card may take besides, where many others move links too: the kernel has one lock for all."""


async def told(bed: DriverBed, reasons: list[str]) -> None:
    """The events that were told, which go out beside the work."""
    async with asyncio.timeout(40):
        while reasons and not bed.events():  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
    assert bed.events() == reasons


async def all_home(bed: DriverBed) -> None:
    async with asyncio.timeout(40):
        while bed.at_home() != set(bed.cards):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def slow(containerd: Containerd, cards: int, seconds: float, **environment: str):
    """A prepared claim of cards, each of which takes so long into a pod; at the end they are home."""
    async with driver_bed(containerd, cards, DRANET_SLOW_MOVE=str(seconds), **environment) as bed:
        await bed.kubelet.prepare("dra.net", CLAIM)
        yield bed
        await bed.kubelet.unprepare("dra.net", CLAIM)
        assert bed.at_home() == set(bed.cards)
        assert bed.receipts() == []


def is_late(timeout: float, cards: int, seconds: float) -> bool | None:
    """Whether the sandbox has to start before its cards are in; None where a loaded machine may decide."""
    needed = cards * seconds
    if needed > timeout:
        return True
    return False if needed + cards * LOADED_SECONDS < 0.6 * timeout else None


@pytest.mark.parametrize(("containerd", "cards", "seconds"), MATRIX, indirect=["containerd"])
async def test_a_pod_gets_all_its_cards_however_slow(
    containerd: Containerd, cri: Cri, cards: int, seconds: float, request: pytest.FixtureRequest
) -> None:
    async with slow(containerd, cards, seconds) as bed:
        sandbox = await cri.run_sandbox(*POD, own_network=True)
        late = is_late(request.node.callspec.params["containerd"], cards, seconds)
        if late is not None:
            assert (not bed.receipts()) is late
        container = await eventually(cri, sandbox, CDI)
        assert await cri.network_of(container) == {"lo", *bed.cards}
        assert bed.connections() == 1, "containerd has dropped the driver"
        await cri.stop_sandbox(sandbox)
        await all_home(bed)
        if late is not None:
            await told(bed, [DEFERRED] if late else [])


@pytest.mark.parametrize("containerd", [0.5], indirect=True)
@pytest.mark.parametrize("step", STEPS)
async def test_a_driver_that_dies_on_the_way_finishes_after_its_restart(
    containerd: Containerd, cri: Cri, step: str
) -> None:
    async with slow(containerd, 3, 0.4, DRANET_FAULT_POINT=step) as bed:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await cri.run_sandbox(*POD, own_network=True)
        await bed.ended()
        if step == "attach.receipt":  # all cards are in, and the receipt says so: a container needs no driver
            container = await cri.run_container(cri.latest, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        else:
            with pytest.raises(grpc.aio.AioRpcError):
                await cri.run_container(cri.latest, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        await bed.start(DRANET_SLOW_MOVE="0.4")
        await bed.compared(2)
        if step != "attach.receipt":
            container = await eventually(cri, cri.latest, CDI)
        assert await cri.network_of(container) == {"lo", *bed.cards}
        await cri.stop_sandbox(cri.latest)
        await all_home(bed)


@pytest.mark.parametrize("containerd", [2], indirect=True)
async def test_cards_that_are_slow_on_their_way_home_come_home_and_the_driver_stays_connected(
    containerd: Containerd, cri: Cri
) -> None:
    async with driver_bed(containerd, 3, DRANET_SLOW_HOME="0.8") as bed:
        await bed.kubelet.prepare("dra.net", CLAIM)
        sandbox = await cri.run_sandbox(*POD, own_network=True)
        await eventually(cri, sandbox, CDI)
        await cri.stop_sandbox(sandbox)
        assert bed.receipts() == []
        await bed.kubelet.unprepare("dra.net", CLAIM)
        assert bed.at_home() == set(bed.cards)
        assert bed.connections() == 1


class TestTheReferencesSuite:
    """`nri_timeout.bats`: six cards, 0.7 s each, and a runtime that waits two seconds unless said otherwise."""

    pytestmark = pytest.mark.parametrize("containerd", [2], indirect=True)

    async def test_1_what_makes_containers_wait_is_in_place(self, containerd: Containerd) -> None:
        """There a program and a socket; here the device that prepare names and whose file is not there yet."""
        async with slow(containerd, 6, 0.7) as bed:
            prepared = await bed.kubelet.prepare("dra.net", CLAIM)
            assert {name for device in prepared for name in device.cdi_ids} == set(CDI)
            assert bed.receipts() == []

    async def test_2_a_slow_attach_goes_on_and_the_pod_runs_with_all_cards(
        self, containerd: Containerd, cri: Cri
    ) -> None:
        async with slow(containerd, 6, 0.7) as bed:
            sandbox = await cri.run_sandbox(*POD, own_network=True)
            container = await eventually(cri, sandbox, CDI)
            assert await cri.network_of(container) == {"lo", *bed.cards}
            async with asyncio.timeout(40):
                while bed.conditions() != [("NetworkDeviceReady", "True")] * 6:  # noqa: ASYNC110 (another process)
                    await asyncio.sleep(0.05)
            await told(bed, [DEFERRED])
            assert bed.connections() == 1
            await cri.stop_sandbox(sandbox)

    async def test_3_the_first_container_sees_all_cards_and_one_that_starts_again_does_not_wait(
        self, containerd: Containerd, cri: Cri
    ) -> None:
        async with slow(containerd, 6, 0.7) as bed:
            sandbox = await cri.run_sandbox(*POD, own_network=True)
            first = await eventually(cri, sandbox, CDI)
            assert await cri.network_of(first) == {"lo", *bed.cards}
            await cri.remove_container(first)
            await bed.arrived(len(bed.cards))
            again = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)  # who has to wait is refused
            assert await cri.network_of(again) == {"lo", *bed.cards}
            assert bed.arrivals() == len(bed.cards), "cards were moved again"
            await cri.stop_sandbox(sandbox)

    async def test_4_a_container_that_nothing_but_the_hook_guards_is_refused_until_then(
        self, containerd: Containerd, cri: Cri
    ) -> None:
        """There with an empty `--hook-path`; here for a container that does not name the claim."""
        async with slow(containerd, 6, 0.7) as bed:
            sandbox = await cri.run_sandbox(*POD, own_network=True)
            with pytest.raises(grpc.aio.AioRpcError, match="must wait: the cards of claim default/nics are not in"):
                await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP)
            container = await eventually(cri, sandbox, [])
            assert await cri.network_of(container) == {"lo", *bed.cards}
            assert bed.connections() == 1
            await cri.stop_sandbox(sandbox)

    async def test_5_a_pod_that_is_deleted_on_the_way_leaves_all_cards_on_the_host(
        self, containerd: Containerd, cri: Cri
    ) -> None:
        """There after `--device-attach-timeout=0` has refused it; here attaching always goes on."""
        async with slow(containerd, 6, 0.7) as bed:
            sandbox = await cri.run_sandbox(*POD, own_network=True)
            assert bed.receipts() == []
            await cri.stop_sandbox(sandbox)
            await all_home(bed)
            assert bed.receipts() == []
            assert bed.connections() == 1


@pytest.mark.parametrize("containerd", [10], indirect=True)
async def test_6_of_the_references_suite_a_runtime_that_waits_ten_seconds_gets_everything_in_the_sandbox_call(
    containerd: Containerd, cri: Cri
) -> None:
    async with slow(containerd, 6, 0.7) as bed:
        sandbox = await cri.run_sandbox(*POD, own_network=True)
        assert len(bed.receipts()) == 1
        container = await cri.run_container(sandbox, POD, BUSYBOX_IMAGE, SLEEP, CDI)
        assert await cri.network_of(container) == {"lo", *bed.cards}
        assert bed.events() == []
        await cri.stop_sandbox(sandbox)
