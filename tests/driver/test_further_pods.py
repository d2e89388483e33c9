"""A claim that several pods name: each has an interface of its own, made on top of the same card."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from dranet.driver.claims.further_pods import why_only_one_pod
from dranet.driver.parts.rdma import RdmaPart
from dranet.driver.records.plan import ClaimPlan, DevicePlan, PodRef, RdmaRecord, Use
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.kernel import links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.traffic import htb
from dranet.model.device import Device
from dranet.model.errors import DranetError
from dranet.model.netconfig import NetworkConfig
from dranet.nri.errors import PluginRejected
from dranet.sandbox.node import SandboxPod

from .daemon_bench import Bench, bench, until
from .test_successors import another_pod, reserve

POINTS = ("prepare.stored:2", "attach.entered:2")
if os.environ.get("EVERY_POINT"):
    POINTS += ("prepare.planned:2", "prepare.readied:2", "attach.stored:2", "attach.share:2", "attach.receipt:2")
CHILD = {"interface": {"type": "Macvlan", "addressing": "Unnumbered", "name": "net1"}}


@asynccontextmanager
async def sharing() -> AsyncIterator[Bench]:
    async with bench(cards=1, flags=["--shared-cards=true"], start=False) as b:
        b.show_speed("card0")
        await b.node.start_driver()
        await until(lambda: b.published() == ["card0"])
        yield b


def claim_of_two(b: Bench) -> tuple[SandboxPod, SandboxPod]:
    """Two pods that are both named in one claim with a quarter of the card."""
    first = b.claim("card0", pod="first", parameters=CHILD, share="2500M")
    reserve(b, first.claims[0].name, "first", "second")
    return first, another_pod(b, "second", first)


def mac(netns: Namespace | None) -> str:
    assert netns is not None
    with NetlinkSocket(namespace_fd=netns.fd) as route:
        link = links.get_link(route, "net1")
        assert link is not None
        return link.mac


def receipts(b: Bench) -> list[str]:
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
async def test_two_pods_that_start_at_once_have_a_child_each() -> None:
    async with sharing() as b:
        before = b.picture_with_disciplines("card0")
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
        assert b.picture_with_disciplines("card0") == before
        assert receipts(b) == []


@pytest.mark.usefixtures("may_make_namespaces")
@pytest.mark.parametrize(("earlier", "driver"), [("first", "restarts"), ("second", "stays")])
async def test_a_pod_that_joins_later_has_its_own_child_and_they_end_in_any_order(earlier: str, driver: str) -> None:
    async with sharing() as b:
        before = b.picture_with_disciplines("card0")
        first = b.claim("card0", pod="first", parameters=CHILD, share="2500M")
        await b.node.start_pod(first)
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
        assert b.picture_with_disciplines("card0") == before
        assert receipts(b) == []


@pytest.mark.usefixtures("may_make_namespaces")
async def test_pods_of_one_claim_have_one_share_together() -> None:
    async with sharing() as b:
        first, second = claim_of_two(b)
        await b.node.start_pod(first)
        second.prepared = dict(first.prepared)
        alone = b.classes("card0")
        await b.node.run_sandbox(second)
        assert b.classes("card0") == alone
        await b.node.stop_sandbox(second)
        assert b.classes("card0") == alone
        await b.node.stop_pod(first)
        assert not any(one.handle == htb.HANDLE for one in b.disciplines("card0"))


@pytest.mark.usefixtures("may_make_namespaces")
@pytest.mark.parametrize("point", POINTS)
async def test_a_driver_that_dies_while_a_pod_joins_finishes_after_its_restart(point: str) -> None:
    async with bench(cards=1, flags=["--shared-cards=true"], start=False) as b:
        b.show_speed("card0")
        before = b.picture_with_disciplines("card0")
        await b.node.start_driver(DRANET_FAULT_POINT=point)
        await until(lambda: b.published() == ["card0"])
        first = b.claim("card0", pod="first", parameters=CHILD, share="2500M")
        await b.node.start_pod(first)
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        await until(lambda: b.node.driver is not None and not b.node.driver.running)
        await b.node.runtime.wait_for(lambda plugins: not plugins)
        await b.node.start_driver()
        await until(lambda: b.names(second.netns) == {"net1"})
        await until_started(b, second)
        await until_started(b, first)
        await b.node.stop_sandbox(first)
        await b.node.stop_pod(second)
        assert b.picture_with_disciplines("card0") == before
        assert receipts(b) == []


@pytest.mark.usefixtures("may_make_namespaces")
async def test_with_a_lost_store_both_pods_are_known_again() -> None:
    async with sharing() as b:
        before = b.picture_with_disciplines("card0")
        first, second = claim_of_two(b)
        await b.node.start_pod(first)
        second.prepared = dict(first.prepared)
        await b.node.run_sandbox(second)
        assert b.node.driver is not None
        await b.node.driver.kill()
        await b.node.runtime.wait_for(lambda plugins: not plugins)
        for file in b.node.folder.glob("dranet.sqlite*"):
            file.unlink()
        kept = mac(first.netns), mac(second.netns)
        await b.node.start_driver()
        await until_started(b, first)
        await until_started(b, second)
        assert (mac(first.netns), mac(second.netns)) == kept
        await b.node.stop_sandbox(second)
        await b.node.stop_pod(first)
        assert b.picture("card0") == before[:6]


@pytest.mark.usefixtures("may_make_namespaces")
async def test_claims_that_end_at_the_same_time_leave_the_card_as_it_was() -> None:
    async with sharing() as b:
        before = b.picture_with_disciplines("card0")
        pods = [b.claim("card0", parameters=CHILD, share="2500M") for _ in range(4)]
        await asyncio.gather(*(b.node.start_pod(pod) for pod in pods))
        assert len(b.classes("card0")) == 4 + 2
        await asyncio.gather(*(b.node.stop_sandbox(pod) for pod in pods))
        await asyncio.gather(*(b.node.unprepare(pod) for pod in pods))
        assert b.picture_with_disciplines("card0") == before


def test_an_rdma_device_alone_is_for_all_pods_of_the_claim_and_a_moved_card_for_one() -> None:
    rdma = DevicePlan(name="a", pool="n", request="r", use=Use.RDMA_ONLY, rdma=RdmaRecord(device="rxe0"))
    moved = DevicePlan(name="b", pool="n", request="r", use=Use.MOVED)
    first = ClaimPlan(uid="u", namespace="d", name="c", pod=PodRef(uid="p", name="p", namespace="d"), devices=(rdma,))
    assert why_only_one_pod(first) == ""
    assert "belongs to one pod at a time" in why_only_one_pod(
        ClaimPlan(uid="u", namespace="d", name="c", pod=first.pod, devices=(rdma, moved))
    )


class Apart(RdmaPart):
    """On a node that keeps RDMA devices apart by namespace."""

    def _is_shared(self, host: object) -> bool:
        return False


def test_where_rdma_devices_are_kept_apart_a_second_pod_cannot_have_one() -> None:
    first = DevicePlan(name="a", pool="n", request="r", use=Use.RDMA_ONLY, rdma=RdmaRecord(device="rxe0"))
    seen = NodeDevice(device=Device(name="a"), netdev=Netdev(place=Place.NONE), rdma_device="rxe0")
    node: Any = SimpleNamespace(tables=SimpleNamespace(others=(first,)), host=None)
    with pytest.raises(DranetError, match="exclusive mode"):
        Apart().plan(node, seen, NetworkConfig(), DevicePlan(name="a", pool="n", request="r", use=Use.RDMA_ONLY))
