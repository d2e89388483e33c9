"""adminAccess: a look at a device that others may hold takes nothing from anybody and moves nothing."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.planner import Wish
from dranet.driver.moving.cards import Cards
from dranet.driver.parts.rdma import RdmaPart
from dranet.driver.parts.registry import PARTS
from dranet.driver.records.plan import CharDevice, ClaimPlan, PodRef, RdmaRecord, Use
from dranet.driver.serving.node_devices import in_use
from dranet.kernel.netlink import NetlinkSocket
from dranet.kube import resources
from dranet.kubelet.handler import ClaimRef
from dranet.model.netconfig_parse import parse

from .conftest import TestNode
from .daemon_bench import Bench, bench, until
from .test_prepare import a_claim, prepare, preparer

NODES = (CharDevice(path="/dev/infiniband/uverbs0", major=231, minor=192),)


def admins(name: str, *devices: str) -> dict[str, object]:
    claim = a_claim(name, *devices)
    for result in claim["status"]["allocation"]["devices"]["results"]:
        result["adminAccess"] = True
    return claim


async def test_a_look_waits_for_nobody_and_nobody_waits_for_it(node: TestNode) -> None:
    made = preparer(node, a_claim("owner", "card0"), admins("first", "card0"), admins("second", "card0"))
    await prepare(made, "first")  # before anybody holds the card
    await prepare(made, "owner")
    await prepare(made, "second")  # while it is held
    assert set(node.store.plans) == {"first", "owner", "second"}
    assert node.store.holder("card0", other_than="") == "claim default/owner of pod pod-of-owner"


async def test_a_look_that_ends_leaves_the_card_with_its_owner(node: TestNode) -> None:
    made = preparer(node, a_claim("owner", "card0"), admins("look", "card0"))
    await prepare(made, "owner")
    pod = node.pod()
    node.cards.attach("pod-of-owner", pod.path)
    await prepare(made, "look")
    node.cards.attach("pod-of-look", node.pod().path)
    await made.unprepare(ClaimRef("default", "look", "look"))
    assert node.names(pod) == {"card0"}
    assert node.cards.receipts.exists("owner")


async def test_a_device_that_is_only_looked_at_is_published_as_it_is_now(node: TestNode) -> None:
    made = preparer(node, admins("look", "card0"), a_claim("owner", "card1"))
    await prepare(made, "look")
    await prepare(made, "owner")
    assert set(in_use(node.store)) == {"card1"}


def look_at(node: TestNode, rdma: RdmaRecord | None) -> ClaimPlan:
    found = msgspec.structs.replace(node.device("card0"), rdma_device="mlx5_0")
    (device,) = node.planner.plan([Wish(Allotted("r", "node", "card0", None, True), found, parse(None))])
    assert device.use is Use.ADMIN
    pod = PodRef(uid="pod-1", name="pod-1", namespace="default")
    device = msgspec.structs.replace(device, rdma=rdma)
    plan = ClaimPlan(uid="look", namespace="default", name="look", pod=pod, devices=(device,))
    node.store.put(plan)
    return plan


@pytest.mark.parametrize("name", ["", "mlx5_0"], ids=["ours", "of the first version"])
def test_no_rdma_device_is_touched_in_whatever_mode_the_machine_is(node: TestNode, name: str) -> None:
    def never(_: int) -> NetlinkSocket | None:
        raise AssertionError("somebody asked for the RDMA mode, to move something")

    plan = look_at(node, RdmaRecord(device=name, char_devices=NODES))
    cards = Cards(node.host, node.store, node.cards.receipts, parts=PARTS.with_part(RdmaPart(never)))
    before = node.picture("card0")
    cards.ready(plan)
    (attached,) = cards.attach("pod-1", node.pod().path)
    assert [(c.type, c.status, c.reason) for c in attached.conditions] == [("Ready", True, "AdminAccessReady")]
    assert attached.link is None
    assert plan.char_devices == NODES
    assert cards.bring_home(plan.uid) == []
    assert node.picture("card0") == before
    cards.close()


def with_admin_access(b: Bench, claim: ClaimRef) -> None:
    stored = b.api.find(resources.RESOURCE_CLAIMS, claim.name, claim.namespace)
    assert stored is not None
    for result in stored["status"]["allocation"]["devices"]["results"]:
        result["adminAccess"] = True
    b.api.put(resources.RESOURCE_CLAIMS, stored)


@pytest.mark.usefixtures("may_make_namespaces")
async def test_the_whole_driver_lets_an_admin_look_at_a_card_in_use() -> None:
    async with bench() as b:
        before = b.picture("card0")
        owner, admin = b.claim("card0"), b.claim("card0")
        with_admin_access(b, admin.claims[0])
        await b.node.start_pod(admin)
        assert b.picture("card0") == before
        await b.node.start_pod(owner)
        assert (b.names(owner.netns), b.names(admin.netns)) == ({"card0"}, set())
        assert (await b.node.create_container(admin)).environment
        await until(lambda: b.status(admin.claims[0]))
        (status,) = b.status(admin.claims[0])
        (condition,) = status["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "True", "AdminAccessReady")
        assert "networkData" not in status
        await asyncio.gather(b.node.stop_pod(admin), b.node.stop_pod(owner))
        assert b.picture("card0") == before
