"""Repair of a running pod: it removes nothing that was in the pod, and one failing device costs no other one."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from dranet.kubernetes.api import resources
from dranet.linux import links, sysctl
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.node.features.base import AttachError
from dranet.node.lifecycle.device_lifecycle import AttachedDevice
from dranet.testing.node import RuntimeProfile, SandboxPod
from dranet.testing.waiting import until

from .conftest import TestNode
from .daemon_bench import Bench, bench


@pytest.fixture
def three(node: TestNode) -> TestNode:
    """A node with three NICs."""
    node.add_nic("nic2", "10.3.0.1/24")
    return node


def unplug(node: TestNode, name: str) -> None:
    """The NIC dies, wherever it is: its far end is deleted."""
    node.run("ip", "link", "del", name, where=node.fabric)


def repair(node: TestNode, pod: Namespace) -> list[AttachedDevice]:
    plan = node.store.plans["uid-1"]
    return node.lifecycle.attach("pod-1", pod.path, repair_of=plan)


def has_address(node: TestNode, pod: Namespace, name: str, address: str) -> bool:
    (found,) = node.ip("addr", "show", name, where=pod)
    return "UP" in found["flags"] and address in [a["local"] for a in found["addr_info"]]


def test_dead_device_leaves_its_siblings_in_the_pod(three: TestNode) -> None:
    pod = three.attach("nic0", "nic1", "nic2")
    unplug(three, "nic1")
    found = repair(three, pod)
    assert three.names(pod) == {"nic0", "nic2"}
    assert has_address(three, pod, "nic0", "10.1.0.1") and has_address(three, pod, "nic2", "10.3.0.1")
    assert three.lifecycle.gates.exists("uid-1")
    assert {item.device.name: bool(item.problem) for item in found} == {"nic0": False, "nic1": True, "nic2": False}
    assert list(three.lifecycle.missing) == ["nic1"]


def test_dead_device_of_another_claim_leaves_the_pod_its_devices(three: TestNode) -> None:
    pod = three.attach("nic0", "nic1")
    three.plan("nic2", uid="uid-2")
    three.lifecycle.attach("pod-1", pod.path)
    unplug(three, "nic2")
    three.lifecycle.attach("pod-1", pod.path, repair_of=three.store.plans["uid-2"])
    assert three.names(pod) == {"nic0", "nic1"}
    assert three.lifecycle.gates.exists("uid-1") and three.lifecycle.gates.exists("uid-2")


def test_lost_device_is_attached_again_with_a_dead_sibling(three: TestNode) -> None:
    """The pod has returned one NIC to the host itself; the repair brings it back."""
    pod = three.attach("nic0", "nic1", "nic2")
    unplug(three, "nic1")
    with NetlinkSocket(namespace_fd=pod.fd) as route:
        link = links.get_link(route, "nic2")
        assert link is not None
        route.request(links.change(link.index, namespace_fd=three.host.namespace.fd))
    repair(three, pod)
    assert three.names(pod) == {"nic0", "nic2"}


def test_refused_setting_keeps_the_devices_and_the_gate(node: TestNode) -> None:
    """The CDI folder was cleared, and the pod has switched off IPv6, so that its IPv6 address is refused."""
    pod = node.attach("nic0", "nic1")
    node.run("sysctl", "-qw", "net/ipv6/conf/nic0/disable_ipv6=1", where=pod)
    node.lifecycle.gates.path("uid-1").unlink()
    found = repair(node, pod)
    assert node.names(pod) == {"nic0", "nic1"}
    assert node.lifecycle.gates.exists("uid-1")
    assert [bool(item.problem) for item in found] == [True, False]
    assert not node.lifecycle.missing


def test_unfinished_attach_with_a_dead_device_opens_no_gate(three: TestNode) -> None:
    """The driver was killed while it attached: no container has run yet, and none may without all devices."""
    three.plan("nic0", "nic1", "nic2")
    pod = three.pod()
    plan = three.store.change("uid-1", netns=pod.path)
    assert plan is not None
    with NetlinkSocket(namespace_fd=three.host.namespace.fd) as route:
        route.request(links.change(three.link("nic0").index, namespace_fd=pod.fd))
    unplug(three, "nic1")
    repair(three, pod)
    assert "nic0" in three.names(pod)
    assert not three.lifecycle.gates.exists("uid-1")


def test_failed_attach_of_a_second_claim_keeps_the_first(node: TestNode) -> None:
    pod = node.attach("nic0")
    node.plan("nic1", uid="uid-2", config={"interface": {"name": "nic0"}})
    with pytest.raises(AttachError, match="already has an interface named nic0"):
        node.lifecycle.attach("pod-1", pod.path)
    assert node.names(pod) == {"nic0"}
    assert (node.lifecycle.gates.exists("uid-1"), node.lifecycle.gates.exists("uid-2")) == (True, False)


def test_missing_device_is_forgotten_with_its_claim(node: TestNode) -> None:
    pod = node.attach("nic0", "nic1")
    unplug(node, "nic1")
    repair(node, pod)
    node.lifecycle.detach("uid-1", stopping=pod.path)
    assert not node.lifecycle.missing
    assert node.names() == {"nic0"}


def taints(b: Bench) -> dict[str, list[str]]:
    devices = [d for s in b.api.objects(resources.RESOURCE_SLICES) for d in s["spec"]["devices"]]
    return {d["name"]: [t["key"] for t in d["taints"]] for d in devices if d.get("taints")}


def ready(b: Bench, pod: SandboxPod) -> dict[str, str]:
    """The Ready condition of each device in the claim's status."""
    found = {d["device"]: d["conditions"] for d in b.status(pod.claims[0])}
    return {name: next(c["status"] for c in given if c["type"] == "Ready") for name, given in found.items()}


@pytest.mark.usefixtures("may_make_namespaces")
@pytest.mark.parametrize("restarts", ["driver", "runtime"])
async def test_restart_keeps_a_pod_with_a_dead_device(restarts: str, runtime: RuntimeProfile) -> None:
    async with bench(nics=3, runtime=runtime) as b:
        pod = await b.start("nic0", "nic1", "nic2")
        await until(lambda: ready(b, pod) == {"nic0": "True", "nic1": "True", "nic2": "True"})
        with NetlinkSocket(namespace_fd=b.fabric.fd) as far:
            peer = links.get_link(far, "nic1")
            assert peer is not None
            far.request(links.delete(peer.index))
        if restarts == "driver":
            await b.restart_driver()
        else:
            await b.node.runtime.stop()
            await b.node.runtime.start()
            await b.node.driver_ready()
        await until(lambda: ready(b, pod) == {"nic0": "True", "nic1": "False", "nic2": "True"})
        assert b.names(pod.netns) == {"nic0", "nic2"}
        assert (await b.node.create_container(pod)).environment
        await until(lambda: taints(b) == {"nic1": ["dra.net/device-gone"]})
        await b.node.stop_pod(pod)
        assert b.names() == {"nic0", "nic2"}


def addresses(pod: SandboxPod) -> dict[str, list[str]]:
    """The interfaces of a pod with their IPv4 addresses, as `ip` shows them."""
    assert pod.netns is not None
    command = ["ip", "-j", "-4", "addr", "show"]
    shown = json.loads(pod.netns.run(lambda: subprocess.check_output(command)))
    found = {link["ifname"]: [a["local"] for a in link["addr_info"]] for link in shown}
    return {name: cidrs for name, cidrs in found.items() if name != "lo"}


def indexes(where: Namespace, name: str) -> tuple[int, str]:
    with NetlinkSocket(namespace_fd=where.fd) as route:
        link = links.get_link(route, name)
        assert link is not None
        return link.index, link.mac


def run(where: Namespace, *command: str) -> None:
    where.run(lambda: subprocess.check_call(command))


@pytest.mark.usefixtures("may_make_namespaces")
async def test_device_that_dies_in_a_running_pod_is_reported_and_attached_again_when_it_returns() -> None:
    """No restart: the driver looks itself."""
    async with bench(nics=3) as b:
        index, mac = indexes(b.node.namespace, "nic1")
        peer, _ = indexes(b.fabric, "nic1")
        pod = await b.start("nic0", "nic1", "nic2")
        await until(lambda: ready(b, pod) == {"nic0": "True", "nic1": "True", "nic2": "True"})
        run(b.fabric, "ip", "link", "del", "nic1")
        await until(lambda: ready(b, pod) == {"nic0": "True", "nic1": "False", "nic2": "True"})
        await until(lambda: taints(b) == {"nic1": ["dra.net/device-gone"]})
        assert addresses(pod) == {"nic0": ["10.0.0.1"], "nic2": ["10.2.0.1"]}
        assert (await b.node.create_container(pod)).environment

        # The kernel identifies a veth by its peer, so the same NIC is one with the same indexes.
        target = f"/proc/{os.getpid()}/fd/{b.node.namespace.fd}"
        new = f"ip link add nic1 index {peer} type veth peer name nic1 index {index} address {mac} netns {target}"
        run(b.fabric, *new.split())
        run(b.fabric, "ip", "link", "set", "nic1", "up")
        await until(lambda: set(ready(b, pod).values()) == {"True"})
        await until(lambda: taints(b) == {})
        assert addresses(pod) == {"nic0": ["10.0.0.1"], "nic1": ["10.1.0.1"], "nic2": ["10.2.0.1"]}
        await b.node.stop_pod(pod)
        assert b.names() == {"nic0", "nic1", "nic2"}


@pytest.mark.usefixtures("may_make_namespaces")
async def test_device_that_the_pod_moved_to_the_host_returns_to_the_pod() -> None:
    async with bench() as b:
        pod = await b.start("nic0", "nic1")
        assert pod.netns is not None
        target = f"/proc/{os.getpid()}/fd/{b.node.namespace.fd}"
        run(pod.netns, "ip", "link", "set", "nic1", "netns", target)
        await until(lambda: addresses(pod) == {"nic0": ["10.0.0.1"], "nic1": ["10.1.0.1"]})


@pytest.mark.usefixtures("may_make_namespaces")
async def test_device_that_the_pod_moved_into_a_namespace_of_its_own_stays_there() -> None:
    """It is not gone: only the NIC that died is tainted."""
    async with bench() as b:
        pod = await b.start("nic0", "nic1")
        assert pod.netns is not None
        with Namespace.create() as nested:
            run(pod.netns, "ip", "link", "set", "nic0", "netns", f"/proc/{os.getpid()}/fd/{nested.fd}")
            run(b.fabric, "ip", "link", "del", "nic1")
            await until(lambda: taints(b) == {"nic1": ["dra.net/device-gone"]})
            assert b.names(nested) == {"nic0"}


@pytest.mark.usefixtures("may_make_namespaces")
async def test_cleared_cdi_folder_and_a_refused_setting_keep_the_pod() -> None:
    async with bench() as b:
        pod = await b.start("nic0", parameters={"interface": {"addresses": ["fd00:9::9/64"]}})
        assert pod.netns is not None
        await b.kill_driver()
        for path in (b.node.folder / "cdi").iterdir():
            path.unlink()
        sysctl.write_all(pod.netns.fd, {"net/ipv6/conf/nic0/disable_ipv6": "1"})
        await b.node.start_driver()
        await b.compared()
        assert b.names(pod.netns) == {"nic0"}
        assert (await b.node.create_container(pod)).environment
