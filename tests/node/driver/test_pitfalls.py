"""The reference driver's traps, by their number, each with the better behaviour.

Those of discovery (12, 14, 16, 17) are in tests/node/inventory/test_traps.py, the others next to the code they concern.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dranet.core.names import ClaimRef
from dranet.core.netconfig_parse import parse, parse_leniently
from dranet.kubernetes.nri.messages import Container
from dranet.linux.codec import Message, Reply
from dranet.linux.namespaces import Namespace
from dranet.node.claims.allocation import network_config
from dranet.node.edits.container_edits import cdi_spec
from dranet.node.features.base import AttachError
from dranet.node.features.rdma import RdmaFeature
from dranet.node.lifecycle.feature_steps import run_batched
from dranet.node.namespaces import PodNamespace
from dranet.node.records.plan import AttachMode, CharDevice, ClaimPlan, DevicePlan, RdmaRecord
from dranet.node.server import runtime
from dranet.testing.node import ContainerRefused, RuntimeProfile

from .conftest import TestNode, claim_plan
from .daemon_bench import bench


def test_trap_01_forwarding_is_applied(node: TestNode) -> None:
    node.plan("nic0", config={"interface": {"forwarding": True}})
    pod = node.pod()
    node.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward", where=pod)
    node.lifecycle.attach("pod-1", pod.path)
    for family in ("ipv4", "ipv6"):
        assert node.run("cat", f"/proc/sys/net/{family}/conf/nic0/forwarding", where=pod) == "1\n"


def test_trap_03_host_routes_that_do_not_fit_the_users_addresses_are_not_applied(node: TestNode) -> None:
    node.run("ip", "route", "add", "10.77.0.0/16", "via", "10.1.0.254", "dev", "nic0", "src", "10.1.0.1")
    node.run("ip", "route", "add", "10.78.0.0/16", "via", "10.1.0.254", "dev", "nic0", "table", "100")
    node.run("ip", "rule", "add", "from", "10.20.0.0/16", "table", "100", "priority", "500")
    pod = node.attach("nic0", config={"interface": {"addresses": ["192.168.5.1/24"]}})
    assert [r["dst"] for r in node.ip("route", where=pod)] == ["192.168.5.0/24"]
    assert not any(r["priority"] == 500 for r in node.ip("rule", where=pod))


def test_trap_03_host_routes_that_fit_move_with_the_nic(node: TestNode) -> None:
    node.run("ip", "route", "add", "10.78.0.0/16", "via", "10.1.0.254", "dev", "nic0", "table", "100")
    node.run("ip", "rule", "add", "from", "10.20.0.0/16", "table", "100", "priority", "500")
    pod = node.attach("nic0", config={"interface": {"addresses": ["10.1.0.99/24"]}})
    assert [r["dst"] for r in node.ip("route", "show", "table", "100", where=pod)] == ["10.78.0.0/16"]
    assert any(r["priority"] == 500 for r in node.ip("rule", where=pod))


def test_trap_04_a_partial_attach_is_rolled_back(node: TestNode) -> None:
    node.plan("nic0", uid="uid-1")
    node.plan("nic1", uid="uid-2", config={"interface": {"name": "nic0"}})
    pod = node.pod()
    with pytest.raises(AttachError, match="already has an interface named nic0"):
        node.lifecycle.attach("pod-1", pod.path)
    assert node.names(pod) == set()
    assert node.names() == {"nic0", "nic1"}


def _rdma_plan(uid: str, minor: int, *, named: bool) -> ClaimPlan:
    nodes = (CharDevice(path=f"/dev/infiniband/uverbs{minor}", major=231, minor=minor),)
    device = DevicePlan(name=f"d{minor}", pool="n", request="r", rdma=RdmaRecord(device="m", char_devices=nodes))
    return claim_plan(device, uid=uid, named=named)


def test_trap_05_only_containers_that_name_the_claim_get_its_rdma_devices() -> None:
    named, unnamed = _rdma_plan("a", 1, named=True), _rdma_plan("b", 2, named=False)
    for_all = runtime.container_adjustment([named, unnamed], Container()).adjust.linux.devices
    assert [device.path for device in for_all] == ["/dev/infiniband/uverbs2"]
    (edits,) = (device["containerEdits"] for device in cdi_spec(named)["devices"])
    assert [node["path"] for node in edits["deviceNodes"]] == ["/dev/infiniband/uverbs1"]


async def test_trap_06_unpreparing_one_claim_of_a_pod_leaves_the_other(may_make_namespaces: None) -> None:
    async with bench() as b:
        first, second = b.claim("nic0", pod="p"), b.claim("nic1", pod="p")
        both = first
        both.claims = [*first.claims, *second.claims]
        await b.node.start_pod(both)
        await b.node.kubelet.unprepare("dra.net", first.claims[0])
        assert b.names(both.netns) == {"nic1"}
        assert b.names() == {"nic0"}


async def test_trap_07_a_claim_of_the_same_name_is_another_claim(may_make_namespaces: None) -> None:
    async with bench() as b:
        pod = await b.start("nic0", name="mine")
        await b.node.kubelet.unprepare("dra.net", ClaimRef("default", "mine", "another-uid"))
        assert b.names(pod.netns) == {"nic0"}


def _claim(*entries: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    config = [{"source": s, "requests": [], "opaque": {"driver": "dra.net", "parameters": p}} for s, p in entries]
    return {"metadata": {"namespace": "d"}, "status": {"allocation": {"devices": {"config": config}}}}


def test_trap_09_the_claims_config_wins_over_the_classes() -> None:
    of_class = ("FromClass", {"interface": {"mtu": 9000, "arpIgnore": 1}})
    of_claim = ("FromClaim", {"interface": {"mtu": 1400}})
    assert network_config(_claim(of_class, of_claim), "r", {}) == parse({"interface": {"mtu": 1400, "arpIgnore": 1}})


def test_trap_11_a_rule_without_priority_gets_the_kernels_not_zero(node: TestNode) -> None:
    pod = node.attach("nic0", config={"rules": [{"source": "10.20.0.0/16", "table": 100}]})
    (rule,) = [r for r in node.ip("rule", where=pod) if r.get("src") == "10.20.0.0"]
    assert 0 < rule["priority"] < 32766


class _RdmaSocket:
    """A kernel that reports these RDMA modes, one after the other."""

    def __init__(self, modes: list[int]) -> None:
        self.modes = modes

    def request(self, message: Message) -> list[Reply]:
        return [Reply(message.type, b"\x05\x00\x42\x00" + bytes([self.modes.pop(0)]) + b"\0\0\0")]

    def dump(self, message: Message) -> list[Reply]:
        return []

    def close(self) -> None:
        return


def test_trap_15_rdma_mode_is_read_each_time(node: TestNode) -> None:
    modes = [1, 0]  # shared, then exclusive
    part = RdmaFeature(lambda fd: _RdmaSocket(modes))  # type: ignore[return-value, arg-type]
    device = DevicePlan(name="d", pool="n", request="r", mode=AttachMode.RDMA_ONLY, rdma=RdmaRecord(device="mlx5_0"))
    with PodNamespace(Namespace.create()) as pod:
        for _ in range(2):
            run_batched(node.host.route, [part.bring_up(node.host, pod, device, None)])
    assert modes == []


async def test_trap_18_ready_waits_for_the_runtime(may_make_namespaces: None) -> None:
    async with bench(start=False) as b:
        await b.node.runtime.stop()
        starting = asyncio.create_task(b.node.start_driver())
        await b.node.kubelet.wait_for(lambda plugins: bool(plugins))
        assert not starting.done()
        await b.node.runtime.start()
        await starting


def test_trap_20_a_lease_brings_router_and_mtu_and_is_renewed() -> None:
    from dranet.linux.dhcp import Lease
    from dranet.node.features.lease import with_lease
    from dranet.node.records.plan import PodConfig

    lease = Lease(
        address="10.0.0.5",
        prefix=24,
        server="10.0.0.1",
        lifetime=60,
        renew_after=30,
        rebind_after=50,
        routers=("10.0.0.1",),
        mtu=1400,
    )
    pod = with_lease(PodConfig(name="eth1"), lease)
    assert [a.cidr for a in pod.addresses] == ["10.0.0.5/24"]
    assert [(r.destination, r.gateway) for r in pod.routes] == [("0.0.0.0/0", "10.0.0.1")]
    assert pod.mtu == 1400


def test_trap_21_a_field_that_only_the_documentation_knows_is_named_with_the_right_ones() -> None:
    _, problems = parse_leniently('{"neighbors": [{"ipAddress": "10.0.0.1", "hardwareAddr": "00:11:22:33:44:55"}]}')
    assert "neighbors[0].ipAddress: unknown field; known fields: destination, hardwareAddr" in map(str, problems)


async def test_trap_23_unprepare_before_the_stop_hook_detaches(
    may_make_namespaces: None, runtime: RuntimeProfile
) -> None:
    async with bench(runtime=runtime) as b:
        before = b.picture("nic0"), b.picture("nic1")
        pod = await b.start("nic0", "nic1")
        await b.node.unprepare(pod)
        assert (b.picture("nic0"), b.picture("nic1")) == before
        await b.node.stop_sandbox(pod)
        assert (b.picture("nic0"), b.picture("nic1")) == before


async def test_trap_24_expired_request_is_not_carried_out(may_make_namespaces: None, runtime: RuntimeProfile) -> None:
    import signal

    async with bench(runtime=runtime) as b:
        pod = b.claim("nic0")
        await b.node.prepare(pod)
        b.driver.signal(signal.SIGSTOP)
        with b.real_patience():
            await b.node.run_sandbox(pod)
        with pytest.raises(ContainerRefused):
            await b.node.create_container(pod)
        netns = pod.netns
        b.node.pods.clear()  # the pod ends before the driver wakes: nothing may move into it any more
        b.driver.signal(signal.SIGCONT)
        await b.node.driver_ready()
        await asyncio.sleep(0.5)
        assert b.names(netns) == set()
        assert netns is not None
        netns.close()
