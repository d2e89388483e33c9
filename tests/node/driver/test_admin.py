"""adminAccess: access to a device that other claims hold blocks no claim and moves nothing."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from dranet.core.names import ClaimRef
from dranet.core.netconfig_parse import parse
from dranet.kubernetes.api import resources
from dranet.linux.netlink import NetlinkSocket
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest
from dranet.node.features.rdma import RdmaFeature
from dranet.node.features.registry import FEATURES
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.records.plan import AttachMode, CharDevice, ClaimPlan, RdmaRecord
from dranet.node.server.node_devices import in_use
from dranet.testing.waiting import until

from .conftest import TestNode, claim_plan
from .daemon_bench import Bench, bench
from .test_prepare import a_claim, prepare, preparer

NODES = (CharDevice(path="/dev/infiniband/uverbs0", major=231, minor=192),)


def admins(name: str, *devices: str) -> dict[str, object]:
    claim = a_claim(name, *devices)
    for result in claim["status"]["allocation"]["devices"]["results"]:
        result["adminAccess"] = True
    return claim


async def test_admin_access_does_not_block_and_is_not_blocked(node: TestNode) -> None:
    made = preparer(node, a_claim("owner", "nic0"), admins("first", "nic0"), admins("second", "nic0"))
    await prepare(made, "first")  # before a claim holds the NIC
    await prepare(made, "owner")
    await prepare(made, "second")  # while it is held
    assert set(node.store.plans) == {"first", "owner", "second"}
    assert node.store.holder("nic0", other_than="") == "claim default/owner of pod pod-of-owner"


async def test_released_admin_access_leaves_the_device(node: TestNode) -> None:
    made = preparer(node, a_claim("owner", "nic0"), admins("look", "nic0"))
    await prepare(made, "owner")
    pod = node.pod()
    node.lifecycle.attach("pod-of-owner", pod.path)
    await prepare(made, "look")
    node.lifecycle.attach("pod-of-look", node.pod().path)
    await made.unprepare(ClaimRef("default", "look", "look"))
    assert node.names(pod) == {"nic0"}
    assert node.lifecycle.gates.exists("owner")


async def test_device_with_admin_access_is_published_as_scanned(node: TestNode) -> None:
    made = preparer(node, admins("look", "nic0"), a_claim("owner", "nic1"))
    await prepare(made, "look")
    await prepare(made, "owner")
    assert set(in_use(node.store)) == {"nic1"}


def look_at(node: TestNode, rdma: RdmaRecord | None) -> ClaimPlan:
    found = msgspec.structs.replace(node.device("nic0"), rdma_device="mlx5_0")
    (device,) = node.planner.plan([DeviceRequest(AllocatedDevice("r", "node", "nic0", None, True), found, parse(None))])
    assert device.mode is AttachMode.ADMIN
    plan = claim_plan(msgspec.structs.replace(device, rdma=rdma), uid="look")
    node.store.put(plan)
    return plan


@pytest.mark.parametrize("name", ["", "mlx5_0"], ids=["ours", "of the first version"])
def test_admin_access_moves_no_rdma_device(node: TestNode, name: str) -> None:
    def never(_: int) -> NetlinkSocket | None:
        raise AssertionError("the RDMA mode was read, as before a move")

    plan = look_at(node, RdmaRecord(device=name, char_devices=NODES))
    lifecycle = DeviceLifecycle(
        node.host, node.store, node.lifecycle.gates, features=FEATURES.with_feature(RdmaFeature(never))
    )
    before = node.picture("nic0")
    lifecycle.set_up(plan)
    (attached,) = lifecycle.attach("pod-1", node.pod().path)
    assert [(c.type, c.status, c.reason) for c in attached.conditions] == [("Ready", True, "AdminAccessReady")]
    assert attached.link is None
    assert plan.char_devices == NODES
    assert lifecycle.detach(plan.uid) == []
    assert node.picture("nic0") == before
    lifecycle.close()


def with_admin_access(b: Bench, claim: ClaimRef) -> None:
    stored = b.api.find(resources.RESOURCE_CLAIMS, claim.name, claim.namespace)
    assert stored is not None
    for result in stored["status"]["allocation"]["devices"]["results"]:
        result["adminAccess"] = True
    b.api.put(resources.RESOURCE_CLAIMS, stored)


@pytest.mark.usefixtures("may_make_namespaces")
async def test_driver_gives_admin_access_to_a_device_in_use() -> None:
    async with bench() as b:
        before = b.picture("nic0")
        owner, admin = b.claim("nic0"), b.claim("nic0")
        with_admin_access(b, admin.claims[0])
        await b.node.start_pod(admin)
        assert b.picture("nic0") == before
        await b.node.start_pod(owner)
        assert (b.names(owner.netns), b.names(admin.netns)) == ({"nic0"}, set())
        assert (await b.node.create_container(admin)).environment
        await until(lambda: b.status(admin.claims[0]))
        (status,) = b.status(admin.claims[0])
        (condition,) = status["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "True", "AdminAccessReady")
        assert "networkData" not in status
        await asyncio.gather(b.node.stop_pod(admin), b.node.stop_pod(owner))
        assert b.picture("nic0") == before
