"""A claim of several pods: each has a child interface of its own on the same NIC."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dranet.core.device import Device
from dranet.core.errors import DranetError
from dranet.core.netconfig import NetworkConfig
from dranet.kubernetes.nri.errors import PluginRejected
from dranet.linux import links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.traffic import htb
from dranet.node.claims.shared_claims import why_exclusive
from dranet.node.features.rdma import RdmaFeature
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice
from dranet.node.records.plan import AttachMode, DevicePlan, RdmaRecord
from dranet.testing.node import CONTAINERD, RuntimeProfile, SandboxPod
from dranet.testing.waiting import until

from .conftest import claim_plan
from .daemon_bench import Bench, bench
from .test_claim_handover import another_pod, reserve

POINTS: tuple[str, ...] = ("prepare.stored:2", "attach.one_moved:2")
if os.environ.get("EVERY_POINT"):
    POINTS += ("prepare.planned:2", "prepare.set_up:2", "attach.stored:2", "attach.share:2", "attach.gate_written:2")
CHILD = {"interface": {"type": "Macvlan", "addressing": "Unnumbered", "name": "net1"}}


@asynccontextmanager
async def sharing(runtime: RuntimeProfile = CONTAINERD) -> AsyncIterator[Bench]:
    async with bench(runtime=runtime, nics=1, flags=["--shared-cards=true"], start=False) as b:
        b.show_speed("nic0")
        await b.node.start_driver()
        await until(lambda: b.published() == ["nic0"])
        yield b


def claim_of_two(b: Bench) -> tuple[SandboxPod, SandboxPod]:
    """Two pods that are both named in one claim with a quarter of the NIC."""
    first = b.claim("nic0", pod="first", parameters=CHILD, share="2500M")
    reserve(b, first.claims[0].name, "first", "second")
    return first, another_pod(b, "second", first)


def mac(netns: Namespace | None) -> str:
    assert netns is not None
    with NetlinkSocket(namespace_fd=netns.fd) as route:
        link = links.get_link(route, "net1")
        assert link is not None
        return link.mac


def gates(b: Bench) -> list[str]:
    return sorted(path.name for path in (b.node.folder / "cdi").glob("*"))


async def can_start(b: Bench, pod: SandboxPod) -> bool:
    """Whether a container that names the claim is created; one that is too early is refused, and asked for again."""
    try:
        return bool((await b.node.create_container(pod)).environment)
    except PluginRejected:
        return False


async def until_started(b: Bench, pod: SandboxPod) -> None:
    async with asyncio.timeout(60):
        while not await can_start(b, pod):  # noqa: ASYNC110 (the other side is another process)
            await asyncio.sleep(0.02)


@pytest.mark.usefixtures("may_make_namespaces")
async def test_concurrent_pods_get_a_child_each() -> None:
    async with sharing() as b:
        before = b.picture_with_disciplines("nic0")
        first, second = claim_of_two(b)
        await b.node.prepare(first)
        second.prepared = dict(first.prepared)
        await asyncio.gather(b.node.run_sandbox(first), b.node.run_sandbox(second))
        assert b.names(first.netns) == b.names(second.netns) == {"net1"}
        assert mac(first.netns) != mac(second.netns)
        assert await can_start(b, first)
        assert await can_start(b, second)
        await asyncio.gather(b.node.stop_sandbox(first), b.node.stop_sandbox(second))
        await b.node.unprepare(first)
        assert b.picture_with_disciplines("nic0") == before
        assert gates(b) == []


@pytest.mark.usefixtures("may_make_namespaces")
@pytest.mark.parametrize(("earlier", "driver"), [("first", "restarts"), ("second", "stays")])
async def test_additional_pod_has_its_own_child(earlier: str, driver: str, runtime: RuntimeProfile) -> None:
    async with sharing(runtime) as b:
        before = b.picture_with_disciplines("nic0")
        first = await b.start("nic0", pod="first", parameters=CHILD, share="2500M")
        assert await can_start(b, first)
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        await until_started(b, second)
        assert b.names(second.netns) == {"net1"}
        if driver == "restarts":
            await b.restart_driver()
        ends, stays = (first, second) if earlier == "first" else (second, first)
        kept = mac(stays.netns)
        await b.node.stop_sandbox(ends)
        reserve(b, first.claims[0].name, stays.name)
        assert mac(stays.netns) == kept
        await until_started(b, stays)
        await b.node.stop_pod(stays)
        assert b.picture_with_disciplines("nic0") == before
        assert gates(b) == []


@pytest.mark.usefixtures("may_make_namespaces")
async def test_pods_of_one_claim_use_one_share() -> None:
    async with sharing() as b:
        first, second = claim_of_two(b)
        await b.node.start_pod(first)
        second.prepared = dict(first.prepared)
        alone = b.classes("nic0")
        await b.node.run_sandbox(second)
        assert b.classes("nic0") == alone
        await b.node.stop_sandbox(second)
        assert b.classes("nic0") == alone
        await b.node.stop_pod(first)
        assert not any(one.handle == htb.HANDLE for one in b.disciplines("nic0"))


@pytest.mark.usefixtures("may_make_namespaces")
@pytest.mark.parametrize("point", POINTS)
async def test_crash_while_adding_a_pod_is_finished_after_restart(point: str) -> None:
    async with bench(nics=1, flags=["--shared-cards=true"], start=False) as b:
        b.show_speed("nic0")
        before = b.picture_with_disciplines("nic0")
        await b.node.start_driver(DRANET_FAULT_POINT=point)
        await until(lambda: b.published() == ["nic0"])
        first = await b.start("nic0", pod="first", parameters=CHILD, share="2500M")
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        await until(lambda: not b.driver.running)
        await b.node.runtime.wait_for(lambda plugins: not plugins)
        await b.node.start_driver()
        await until(lambda: b.names(second.netns) == {"net1"})
        await until_started(b, second)
        await until_started(b, first)
        await b.node.stop_sandbox(first)
        await b.node.stop_pod(second)
        assert b.picture_with_disciplines("nic0") == before
        assert gates(b) == []


@pytest.mark.usefixtures("may_make_namespaces")
async def test_recovery_finds_both_pods_of_a_claim() -> None:
    async with sharing() as b:
        before = b.picture_with_disciplines("nic0")
        first, second = claim_of_two(b)
        await b.node.start_pod(first)
        second.prepared = dict(first.prepared)
        await b.node.run_sandbox(second)
        await b.kill_driver()
        for file in b.node.folder.glob("dranet.sqlite*"):
            file.unlink()
        kept = mac(first.netns), mac(second.netns)
        await b.node.start_driver()
        await until_started(b, first)
        await until_started(b, second)
        assert (mac(first.netns), mac(second.netns)) == kept
        await b.node.stop_sandbox(second)
        await b.node.stop_pod(first)
        assert b.picture("nic0") == before[:6]


@pytest.mark.usefixtures("may_make_namespaces")
async def test_concurrent_releases_restore_the_nic() -> None:
    async with sharing() as b:
        before = b.picture_with_disciplines("nic0")
        pods = [b.claim("nic0", parameters=CHILD, share="2500M") for _ in range(4)]
        await asyncio.gather(*(b.node.start_pod(pod) for pod in pods))
        assert len(b.classes("nic0")) == 4 + 2
        await asyncio.gather(*(b.node.stop_sandbox(pod) for pod in pods))
        await asyncio.gather(*(b.node.unprepare(pod) for pod in pods))
        assert b.picture_with_disciplines("nic0") == before


def test_rdma_only_device_is_shareable_and_moved_nic_is_not() -> None:
    rdma = DevicePlan(name="a", pool="n", request="r", mode=AttachMode.RDMA_ONLY, rdma=RdmaRecord(device="rxe0"))
    moved = DevicePlan(name="b", pool="n", request="r", mode=AttachMode.MOVED)
    assert why_exclusive(claim_plan(rdma)) == ""
    assert "is in one pod at a time" in why_exclusive(claim_plan(rdma, moved))


class Apart(RdmaFeature):
    """On a node that keeps RDMA devices apart by namespace."""

    def _is_shared(self, host: object) -> bool:
        return False


def test_exclusive_rdma_mode_refuses_a_second_pod() -> None:
    first = DevicePlan(name="a", pool="n", request="r", mode=AttachMode.RDMA_ONLY, rdma=RdmaRecord(device="rxe0"))
    seen = NodeDevice(device=Device(name="a"), netdev=Netdev(location=NetdevLocation.NONE), rdma_device="rxe0")
    node: Any = SimpleNamespace(tables=SimpleNamespace(others=(first,)), host=None)
    with pytest.raises(DranetError, match="exclusive mode"):
        Apart().plan(
            node, seen, NetworkConfig(), DevicePlan(name="a", pool="n", request="r", mode=AttachMode.RDMA_ONLY)
        )
