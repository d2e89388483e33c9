"""What prepare leaves until the kubelet is answered: whatever happens in between, detach restores the NICs.

The order in question: prepare answers; how the NIC was found is noted; the NIC is taken down; the pod starts. A
driver may die after each, and the pod may start, stop or be given up before the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from dranet.core.errors import DranetError
from dranet.core.names import ClaimRef
from dranet.linux import links
from dranet.linux.ethtool import Ethtool
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.node import faultpoints
from dranet.node.claims.prepare import Preparer
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.records.plan import DevicePlan, SavedSettings
from dranet.node.store import Store

from .conftest import OpenStore, TestNode
from .test_prepare import a_claim, prepare, preparer

REF = ClaimRef("default", "one", "one")
POD = "pod-of-one"


def on_disk(node: TestNode) -> DevicePlan:
    """The claim's one device, as a driver that starts now would read it."""
    assert node.store.path is not None
    (device,) = Store.read_copy(node.store.path).plans["one"].devices
    assert device.host_state is not None
    return device


def noted(node: TestNode) -> SavedSettings | None:
    found = on_disk(node).host_state
    return found.saved_settings if found else None


@contextmanager
def setup_steps(node: TestNode) -> Iterator[list[tuple[str, bool, bool]]]:
    """The steps of early setup: whether the settings are saved then, and whether the NIC is up."""
    steps: list[tuple[str, bool, bool]] = []

    def add(point: str) -> None:
        if point in ("prepare.settings_saved", "prepare.set_up"):
            steps.append((point, noted(node) is not None, is_up(node)))

    with faultpoints.observed(add):
        yield steps


def is_up(node: TestNode) -> bool:
    nic = node.link("nic0")
    return nic.is_up


def switch_off_gro(pod: Namespace) -> None:
    """What a pod may do without having asked, and what stays with a NIC when it moves."""
    with NetlinkSocket(namespace_fd=pod.fd) as route, Ethtool(pod.fd) as ethtool:
        nic = links.get_link(route, "nic0")
        assert nic is not None
        ethtool.set_features(nic.index, {"rx-gro": False})


@pytest.fixture
def made(node: TestNode) -> Preparer:
    return preparer(node, a_claim("one", "nic0"))


@pytest.fixture
def next_driver(node: TestNode, open_store: OpenStore) -> Iterator[DeviceLifecycle]:
    """The one that comes when ours has died: it knows what is in the file and nothing else."""
    assert node.store.path is not None
    store = open_store(node.store.path)
    lifecycle = DeviceLifecycle(node.host, store, node.lifecycle.gates)
    yield lifecycle
    lifecycle.close()
    store.close()


async def test_prepare_replies_after_storing_and_before_setup(node: TestNode, made: Preparer) -> None:
    before = node.picture("nic0")
    await prepare(made, "one")
    assert on_disk(node).host_state is not None
    assert noted(node) is None
    assert node.picture("nic0") == before


async def test_settings_are_saved_before_early_setup(node: TestNode, made: Preparer) -> None:
    with setup_steps(node) as order:
        await prepare(made, "one")
        await made.after_reply(REF)
    assert order == [("prepare.settings_saved", True, True), ("prepare.set_up", True, False)]


async def test_settings_that_may_fail_are_applied_before_the_reply(node: TestNode) -> None:
    made = preparer(node, a_claim("one", "nic0", interface={"mtu": 1400}))
    with setup_steps(node) as order:
        await prepare(made, "one")
    assert order == [("prepare.settings_saved", True, True), ("prepare.set_up", True, False)]
    nic = node.link("nic0")
    assert nic.mtu == 1400


async def test_refused_setting_fails_prepare_and_restores_the_nic(node: TestNode) -> None:
    made = preparer(
        node, a_claim("one", "nic0", interface={"hardwareAddr": "01:00:5e:00:00:01"})
    )  # a multicast address
    before = node.picture("nic0")
    with pytest.raises(DranetError):
        await prepare(made, "one")
    assert node.picture("nic0") == before
    assert not node.store.plans


async def test_attach_before_settings_are_saved_restores_the_nic(node: TestNode, made: Preparer) -> None:
    before = node.picture("nic0")
    await prepare(made, "one")
    pod = node.pod()
    node.lifecycle.attach(POD, pod.path)
    was = noted(node)
    assert was is not None, "noted before the nic moved"
    switch_off_gro(pod)
    await made.after_reply(REF)
    assert node.names(pod) == {"nic0"}
    assert noted(node) == was, "not what the pod has made of it"
    await made.unprepare(REF)
    assert node.picture("nic0") == before


async def test_detach_before_early_setup_restores_the_nic(node: TestNode, made: Preparer) -> None:
    before = node.picture("nic0")
    await prepare(made, "one")
    pod = node.pod()
    node.lifecycle.attach(POD, pod.path)
    node.lifecycle.detach("one", stopping=pod.path)
    await made.after_reply(REF)
    assert node.picture("nic0") == before, "a restored NIC is not taken down again"
    await made.unprepare(REF)
    assert node.picture("nic0") == before


def test_changed_plan_skips_early_setup(node: TestNode) -> None:
    before = node.picture("nic0")
    plan, pod = node.plan("nic0"), node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    node.lifecycle.detach(plan.uid)
    node.lifecycle.set_up(plan)
    assert node.picture("nic0") == before


async def test_release_before_early_setup_restores_the_nic(node: TestNode, made: Preparer) -> None:
    before = node.picture("nic0")
    await prepare(made, "one")
    await made.unprepare(REF)
    await made.after_reply(REF)
    assert node.picture("nic0") == before


async def test_crash_before_saving_settings_is_recovered(
    node: TestNode, made: Preparer, next_driver: DeviceLifecycle
) -> None:
    before = node.picture("nic0")
    await prepare(made, "one")
    pod = node.pod()
    next_driver.attach(POD, pod.path)
    switch_off_gro(pod)
    assert next_driver.detach("one") == []
    assert node.picture("nic0") == before


@pytest.mark.parametrize("point", ["prepare.settings_saved", "prepare.set_up"])
async def test_crash_after_early_setup_is_recovered(
    point: str, node: TestNode, made: Preparer, next_driver: DeviceLifecycle
) -> None:
    before = node.picture("nic0")

    def die(here: str) -> None:
        if here == point:
            raise InterruptedError(point)

    await prepare(made, "one")
    with faultpoints.observed(die), pytest.raises(InterruptedError):
        await made.after_reply(REF)
    was = noted(node)
    assert was is not None
    pod = node.pod()
    next_driver.attach(POD, pod.path)
    assert node.names(pod) == {"nic0"}
    assert noted(node) == was
    switch_off_gro(pod)
    assert next_driver.detach("one") == []
    assert node.picture("nic0") == before


async def test_release_after_early_setup_brings_the_nic_up(node: TestNode, made: Preparer) -> None:
    before = node.picture("nic0")
    await prepare(made, "one")
    await made.after_reply(REF)
    assert not is_up(node)
    await made.unprepare(REF)
    assert node.picture("nic0") == before


async def test_repair_saves_no_settings_from_a_pod(node: TestNode, made: Preparer) -> None:
    """What a pod has made of its NIC is not how it was found. A driver from before wrote such plans without notes."""
    await prepare(made, "one")
    pod = node.pod()
    node.lifecycle.attach(POD, pod.path)
    (device,) = node.store.plans["one"].devices
    assert device.host_state is not None
    without = msgspec.structs.replace(device.host_state, saved_settings=None)
    node.store.change("one", devices=(msgspec.structs.replace(device, host_state=without),))
    switch_off_gro(pod)
    node.lifecycle.attach(POD, pod.path, repair_of=node.store.plans["one"])
    assert noted(node) is None


async def test_detached_nic_is_not_set_up_again(node: TestNode, made: Preparer) -> None:
    """After a lost store, a NIC that was found in a pod has no saved settings when it is restored, and the
    kubelet, after a restart, has its claim prepared again."""
    before = node.picture("nic0")
    await prepare(made, "one")
    assert node.lifecycle.detach("one") == []
    await made.after_reply(REF)
    assert not is_up(node)
    await made.unprepare(REF)
    assert node.picture("nic0") == before
