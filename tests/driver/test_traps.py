"""The reference driver's traps, by their number, each with the better behaviour.

Those that lie in discovery (12, 14, 16, 17) are in tests/inventory/test_traps.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dranet.basics.backoff import Backoff
from dranet.driver.claims.allotment import config_for
from dranet.driver.moving.receipt import specification
from dranet.driver.moving.together import together
from dranet.driver.namespaces import PodNamespace
from dranet.driver.parts.base import AttachError
from dranet.driver.parts.rdma import RdmaPart
from dranet.driver.records.plan import CharDevice, ClaimPlan, DevicePlan, PodRef, RdmaRecord, Use
from dranet.driver.serving import containers
from dranet.kernel.codec import Message, Reply
from dranet.kernel.namespaces import Namespace
from dranet.model.device import Device
from dranet.model.names import ClaimRef
from dranet.model.netconfig_merge import merge
from dranet.model.netconfig_parse import examine, parse
from dranet.model.slices import resource_slices
from dranet.nri.messages import Container
from dranet.sandbox.node import ContainerRefused

from .conftest import TestNode
from .daemon_bench import bench, until


def test_trap_01_forwarding_is_applied(node: TestNode) -> None:
    node.plan("card0", config={"interface": {"forwarding": True}})
    pod = node.pod()
    node.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward", where=pod)
    node.cards.attach("pod-1", pod.path)
    for family in ("ipv4", "ipv6"):
        assert node.run("cat", f"/proc/sys/net/{family}/conf/card0/forwarding", where=pod) == "1\n"


def test_trap_02_address_mtu_mac_and_routes_come_home(node: TestNode) -> None:
    node.run("ip", "route", "add", "10.77.0.0/16", "via", "10.1.0.254", "dev", "card0")
    before = node.picture("card0")
    config = {"interface": {"mtu": 1300, "hardwareAddr": "02:00:00:00:00:77", "addresses": ["10.5.0.1/24"]}}
    plan = node.plan("card0", config=config)
    node.cards.attach("pod-1", node.pod().path)
    node.cards.bring_home(plan.uid)
    assert node.picture("card0") == before


def test_trap_03_host_routes_that_do_not_fit_the_users_addresses_stay_behind(node: TestNode) -> None:
    node.run("ip", "route", "add", "10.77.0.0/16", "via", "10.1.0.254", "dev", "card0", "src", "10.1.0.1")
    node.run("ip", "route", "add", "10.78.0.0/16", "via", "10.1.0.254", "dev", "card0", "table", "100")
    node.run("ip", "rule", "add", "from", "10.20.0.0/16", "table", "100", "priority", "500")
    node.plan("card0", config={"interface": {"addresses": ["192.168.5.1/24"]}})
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert [r["dst"] for r in node.ip("route", where=pod)] == ["192.168.5.0/24"]
    assert not any(r["priority"] == 500 for r in node.ip("rule", where=pod))


def test_trap_03_host_routes_that_fit_come_along(node: TestNode) -> None:
    node.run("ip", "route", "add", "10.78.0.0/16", "via", "10.1.0.254", "dev", "card0", "table", "100")
    node.run("ip", "rule", "add", "from", "10.20.0.0/16", "table", "100", "priority", "500")
    node.plan("card0", config={"interface": {"addresses": ["10.1.0.99/24"]}})
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert [r["dst"] for r in node.ip("route", "show", "table", "100", where=pod)] == ["10.78.0.0/16"]
    assert any(r["priority"] == 500 for r in node.ip("rule", where=pod))


def test_trap_04_a_partial_attach_is_rolled_back(node: TestNode) -> None:
    node.plan("card0", uid="uid-1")
    node.plan("card1", uid="uid-2", config={"interface": {"name": "card0"}})
    pod = node.pod()
    with pytest.raises(AttachError, match="already has an interface named card0"):
        node.cards.attach("pod-1", pod.path)
    assert node.names(pod) == set()
    assert node.names() == {"card0", "card1"}


def _rdma_plan(uid: str, minor: int, *, named: bool) -> ClaimPlan:
    nodes = (CharDevice(path=f"/dev/infiniband/uverbs{minor}", major=231, minor=minor),)
    device = DevicePlan(name=f"d{minor}", pool="n", request="r", rdma=RdmaRecord(device="m", char_devices=nodes))
    user = PodRef(uid="p", name="p", namespace="d")
    return ClaimPlan(uid=uid, namespace="d", name=uid, pod=user, devices=(device,), named=named)


def test_trap_05_only_containers_that_name_the_claim_get_its_rdma_devices() -> None:
    named, unnamed = _rdma_plan("a", 1, named=True), _rdma_plan("b", 2, named=False)
    everybody = containers.adjustment([named, unnamed], Container()).adjust.linux.devices
    assert [device.path for device in everybody] == ["/dev/infiniband/uverbs2"]
    (edits,) = (device["containerEdits"] for device in specification(named)["devices"])
    assert [node["path"] for node in edits["deviceNodes"]] == ["/dev/infiniband/uverbs1"]


async def test_trap_06_unpreparing_one_claim_of_a_pod_leaves_the_other(may_make_namespaces: None) -> None:
    async with bench() as b:
        first, second = b.claim("card0", pod="p"), b.claim("card1", pod="p")
        both = first
        both.claims = [*first.claims, *second.claims]
        await b.node.start_pod(both)
        await b.node.kubelet.unprepare("dra.net", first.claims[0])
        assert b.names(both.netns) == {"card1"}
        assert b.names() == {"card0"}


async def test_trap_07_a_claim_of_the_same_name_is_another_claim(may_make_namespaces: None) -> None:
    async with bench() as b:
        pod = b.claim("card0", name="mine")
        await b.node.start_pod(pod)
        await b.node.kubelet.unprepare("dra.net", ClaimRef("default", "mine", "another-uid"))
        assert b.names(pod.netns) == {"card0"}


async def test_trap_08_cards_of_pods_that_are_gone_come_home_at_synchronize(may_make_namespaces: None) -> None:
    async with bench() as b:
        assert b.node.driver is not None
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        held, pod.netns = pod.netns, None
        await b.node.driver.kill()
        b.node.pods.clear()
        await b.node.start_driver()
        await until(lambda: "card0" in b.names())
        assert held is not None
        held.close()


def _claim(*entries: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    config = [{"source": s, "requests": [], "opaque": {"driver": "dra.net", "parameters": p}} for s, p in entries]
    return {"metadata": {"namespace": "d"}, "status": {"allocation": {"devices": {"config": config}}}}


def test_trap_09_the_claims_config_wins_over_the_classes() -> None:
    of_class = ("FromClass", {"interface": {"mtu": 9000, "arpIgnore": 1}})
    of_claim = ("FromClaim", {"interface": {"mtu": 1400}})
    assert config_for(_claim(of_class, of_claim), "r") == parse({"interface": {"mtu": 1400, "arpIgnore": 1}})


def test_trap_10_false_and_zero_override_what_a_provider_says() -> None:
    user, provider = (
        parse({"interface": {"forwarding": False, "arpIgnore": 0}}),
        parse({"interface": {"forwarding": True, "arpIgnore": 2}}),
    )
    assert merge(user, provider) == user


def test_trap_11_a_rule_without_priority_gets_the_kernels_not_zero(node: TestNode) -> None:
    node.plan("card0", config={"rules": [{"source": "10.20.0.0/16", "table": 100}]})
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    (rule,) = [r for r in node.ip("rule", where=pod) if r.get("src") == "10.20.0.0"]
    assert 0 < rule["priority"] < 32766


def test_trap_13_more_than_128_devices_are_published_in_several_slices() -> None:
    made = resource_slices([Device(name=f"d{i}") for i in range(200)], node="n")
    assert [len(item["spec"]["devices"]) for item in made] == [128, 72]


class _RdmaSocket:
    """A kernel that answers the mode question as told, and counts how often it is asked."""

    def __init__(self, modes: list[int]) -> None:
        self.modes = modes

    def request(self, message: Message) -> list[Reply]:
        return [Reply(message.type, b"\x05\x00\x42\x00" + bytes([self.modes.pop(0)]) + b"\0\0\0")]

    def dump(self, message: Message) -> list[Reply]:
        return []

    def close(self) -> None:
        return


def test_trap_15_the_rdma_mode_is_asked_for_each_time(node: TestNode) -> None:
    modes = [1, 0]  # shared, then exclusive
    part = RdmaPart(lambda fd: _RdmaSocket(modes))  # type: ignore[return-value, arg-type]
    device = DevicePlan(name="d", pool="n", request="r", use=Use.RDMA_ONLY, rdma=RdmaRecord(device="mlx5_0"))
    with PodNamespace(Namespace.create()) as pod:
        for _ in range(2):
            together(node.host.route, [part.rise(node.host, pod, device, None)])
    assert modes == []


async def test_trap_18_ready_waits_for_the_runtime(may_make_namespaces: None) -> None:
    async with bench(start=False) as b:
        await b.node.runtime.stop()
        starting = asyncio.create_task(b.node.start_driver())
        await b.node.kubelet.wait_for(lambda plugins: bool(plugins))
        assert not starting.done()
        await b.node.runtime.start()
        await starting


def test_trap_19_reconnecting_slows_down_and_never_gives_up() -> None:
    delays = Backoff()
    taken = [delays.next() for _ in range(200)]
    assert max(taken[:2]) < max(taken[-20:]) <= 60


def test_trap_20_a_lease_brings_router_and_mtu_and_is_renewed() -> None:
    from dranet.driver.parts.lease import with_lease
    from dranet.driver.records.plan import Wanted
    from dranet.kernel.dhcp import Lease

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
    pod = with_lease(Wanted(name="eth1"), lease)
    assert [a.cidr for a in pod.addresses] == ["10.0.0.5/24"]
    assert [(r.destination, r.gateway) for r in pod.routes] == [("0.0.0.0/0", "10.0.0.1")]
    assert pod.mtu == 1400


def test_trap_21_a_field_that_only_the_documentation_knows_is_named_with_the_right_ones() -> None:
    _, problems = examine('{"neighbors": [{"ipAddress": "10.0.0.1", "hardwareAddr": "00:11:22:33:44:55"}]}')
    assert "neighbors[0].ipAddress: unknown field; known fields: destination, hardwareAddr" in map(str, problems)


def test_trap_22_devices_are_attached_in_the_order_of_the_claim_every_time(node: TestNode) -> None:
    node.plan("card1", "card0")
    for _ in range(3):
        attached = node.cards.attach("pod-1", node.pod().path)
        assert [a.device.name for a in attached] == ["card1", "card0"]
        node.cards.bring_home("uid-1")


async def test_trap_23_unprepare_before_the_stop_hook_brings_the_cards_home(may_make_namespaces: None) -> None:
    async with bench() as b:
        before = b.picture("card0"), b.picture("card1")
        pod = b.claim("card0", "card1")
        await b.node.start_pod(pod)
        await b.node.unprepare(pod)
        assert (b.picture("card0"), b.picture("card1")) == before
        await b.node.stop_sandbox(pod)
        assert (b.picture("card0"), b.picture("card1")) == before


async def test_trap_24_a_request_the_runtime_gave_up_on_is_not_carried_out(may_make_namespaces: None) -> None:
    import signal

    async with bench() as b:
        assert b.node.driver is not None
        pod = b.claim("card0")
        await b.node.prepare(pod)
        b.node.driver.signal(signal.SIGSTOP)
        with b.real_patience():
            await b.node.run_sandbox(pod)
        with pytest.raises(ContainerRefused):
            await b.node.create_container(pod)
        netns = pod.netns
        b.node.pods.clear()  # the pod ends before the driver wakes: nothing may move into it any more
        b.node.driver.signal(signal.SIGCONT)
        await b.node.driver_ready()
        await asyncio.sleep(0.5)
        assert b.names(netns) == set()
        assert netns is not None
        netns.close()
