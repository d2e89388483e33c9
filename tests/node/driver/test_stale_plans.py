"""Released plans that a crash brings back, and unprepare after a stop hook."""

from __future__ import annotations

import os
import stat
from typing import Any, cast

import msgspec
import pytest

from dranet.core.device import Device
from dranet.core.errors import Busy
from dranet.core.names import ClaimRef
from dranet.kubernetes.kubelet.handler import PreparedDevice
from dranet.machines.shape import load_shape
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice
from dranet.node.records.plan import ClaimPlan
from dranet.testing.sysfs_tree import write_sysfs

from .conftest import OpenStore, TestNode
from .test_prepare import Cluster, a_claim, prepare, preparer


async def with_a_plan_from_before_a_reboot(node: TestNode, old: dict[str, Any] | None) -> list[PreparedDevice]:
    """Prepare a claim whose NIC such a plan has; `old` is what the API server says of the plan's claim."""
    made = preparer(node, a_claim("old", "nic0"), a_claim("new", "nic0"))
    await prepare(made, "old")
    node.store.change("old", boot="the one before")
    cast("Cluster", made.cluster).has(a_claim("new", "nic0"), *([old] if old else []))
    return await prepare(made, "new")


@pytest.mark.parametrize("became", ["deleted", "recreated", "not reserved any more"])
async def test_stale_plan_of_a_deleted_claim_is_released(node: TestNode, became: str) -> None:
    old = a_claim("old", "nic0")
    if became == "recreated":
        old["metadata"]["uid"] = "another"
    if became == "not reserved any more":
        old["status"]["reservedFor"] = []
    prepared = await with_a_plan_from_before_a_reboot(node, None if became == "deleted" else old)
    assert [device.device for device in prepared] == ["nic0"]
    assert set(node.store.plans) == {"new"}


async def test_plan_from_before_a_reboot_holds_its_device(node: TestNode) -> None:
    with pytest.raises(Busy, match="nic0 is held by claim default/old"):
        await with_a_plan_from_before_a_reboot(node, a_claim("old", "nic0"))
    assert set(node.store.plans) == {"old"}


async def test_plan_of_this_boot_holds_its_device(node: TestNode) -> None:
    """Its pod may still run: the kubelet has not unprepared it."""
    made = preparer(node, a_claim("old", "nic0"), a_claim("new", "nic0"))
    await prepare(made, "old")
    cast("Cluster", made.cluster).has(a_claim("new", "nic0"))
    with pytest.raises(Busy, match="nic0 is held by claim default/old"):
        await prepare(made, "new")


async def test_unprepare_deletes_the_plan_on_disk(node: TestNode, open_store: OpenStore) -> None:
    made = preparer(node, a_claim("one", "nic0"))
    await prepare(made, "one")
    await made.unprepare(ClaimRef("default", "one", "one"))
    node.store.flush()
    assert node.store.path is not None
    again = open_store(node.store.path)
    assert dict(again.plans) == {}
    again.close()


async def test_unprepare_detaches_a_device_attached_again(node: TestNode) -> None:
    made = preparer(node, a_claim("one", "nic0"))
    before = node.picture("nic0")
    await prepare(made, "one")
    first, second = node.pod(), node.pod()
    node.lifecycle.attach("pod-of-one", first.path)
    node.lifecycle.detach("one", stopping=first.path)
    node.lifecycle.attach("pod-of-one", second.path)
    await made.unprepare(ClaimRef("default", "one", "one"))
    assert node.picture("nic0") == before


async def test_unprepare_detaches_a_device_attached_by_another_driver(node: TestNode) -> None:
    """Two drivers share the store in an update; the other one's move is seen there."""
    made = preparer(node, a_claim("one", "nic0"))
    before = node.picture("nic0")
    await prepare(made, "one")
    first, second = node.pod(), node.pod()
    node.lifecycle.attach("pod-of-one", first.path)
    node.lifecycle.detach("one", stopping=first.path)
    other = type(node.lifecycle)(node.host, node.store, node.lifecycle.gates)
    other.attach("pod-of-one", second.path)
    await made.unprepare(ClaimRef("default", "one", "one"))
    other.close()
    assert node.picture("nic0") == before


async def test_unprepare_retries_a_failed_restore(node: TestNode) -> None:
    made = preparer(node, a_claim("one", "nic0"))
    before = node.picture("nic0")
    await prepare(made, "one")
    pod = node.pod()
    node.lifecycle.attach("pod-of-one", pod.path)
    plan = node.store.plans["one"]
    (device,) = plan.devices
    assert device.host_state is not None
    spoilt = msgspec.structs.replace(device.host_state.link, mtu=10**6)
    found = msgspec.structs.replace(device.host_state, link=spoilt)
    node.store.change("one", devices=(msgspec.structs.replace(device, host_state=found),))
    assert node.lifecycle.detach("one", stopping=pod.path), "the kernel has no such MTU"
    node.store.change("one", devices=plan.devices)
    node.run("ip", "link", "set", "nic0", "mtu", "1400")
    await made.unprepare(ClaimRef("default", "one", "one"))
    assert node.picture("nic0") == before


def before_the_reboot(node: TestNode, name: str = "one") -> ClaimPlan:
    """The machine is rebooted: interfaces and character devices get other numbers, and the pod's namespace is gone."""
    node.store.change(name, boot="the one before", netns="/gone", attached=True)
    for link in ("nic0", "nic1"):
        node.run("ip", "link", "del", link)
    node.add_nic("other")  # takes the index of nic0
    node.add_nic("nic0", "10.1.0.77/24")
    return node.store.plans[name]


async def test_plan_from_before_a_reboot_is_planned_again(node: TestNode) -> None:
    made = preparer(node, a_claim("one", "nic0"))
    await prepare(made, "one")
    await made.after_reply(ClaimRef("default", "one", "one"))
    old = before_the_reboot(node)
    now = node.picture("nic0")
    await prepare(made, "one")
    plan = node.store.plans["one"]
    assert (plan.boot, plan.netns, plan.attached) == (node.host.boot, None, False)
    (device,) = plan.devices
    assert device.host_state is not None and device.host_state.saved_settings is None
    assert [address.cidr for address in device.host_state.addresses] == ["10.1.0.77/24"]
    assert old.devices != plan.devices
    pod = node.pod()
    node.lifecycle.attach("pod-of-one", pod.path)
    assert node.names(pod) == {"nic0"}
    await made.unprepare(ClaimRef("default", "one", "one"))
    assert node.picture("nic0") == now


async def test_child_of_a_nic_with_another_index_after_a_reboot_is_attached(node: TestNode) -> None:
    made = preparer(node, a_claim("one", "nic0", interface={"type": "Macvlan", "addresses": ["10.1.0.50/24"]}))
    await prepare(made, "one")
    before_the_reboot(node)
    await prepare(made, "one")
    pod = node.pod()
    node.lifecycle.attach("pod-of-one", pod.path)
    (child,) = node.ip("-d", "link", "show", "nic0", where=pod)
    assert child["link_index"] == node.link("nic0").index
    await made.unprepare(ClaimRef("default", "one", "one"))


async def test_character_devices_are_read_again_after_a_reboot(node: TestNode) -> None:
    write_sysfs(load_shape("nd-gb300-v6"), node.folder)
    made = preparer(node, a_claim("one", "ib0"))
    made.inventory = RdmaOnly()
    verbs = node.folder / "dev/infiniband/uverbs0"
    verbs.parent.mkdir(parents=True)
    os.mknod(verbs, stat.S_IFCHR | 0o666, os.makedev(231, 192))
    await prepare(made, "one")
    assert [entry.minor for entry in node.store.plans["one"].char_devices] == [192]
    node.store.change("one", boot="the one before", netns="/gone")
    verbs.unlink()
    os.mknod(verbs, stat.S_IFCHR | 0o666, os.makedev(231, 195))
    await prepare(made, "one")
    assert [entry.minor for entry in node.store.plans["one"].char_devices] == [195]


class RdmaOnly:
    """An inventory with one RDMA-only device."""

    def find(self, name: str) -> NodeDevice:
        return NodeDevice(device=Device(name=name), netdev=Netdev(location=NetdevLocation.NONE), rdma_device="mlx5_0")

    def skip_reason(self, name: str) -> str:
        return ""

    async def rescan(self) -> None:
        return
