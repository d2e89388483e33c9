"""A NIC with an address from DHCP, from prepare to release."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dranet.linux import addresses, links
from dranet.linux.dhcp import DhcpError, Lease, LeaseRefused
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.node.claims.leases import Leases
from dranet.node.features import lease as leases
from dranet.node.records.plan import ClaimPlan, DevicePlan
from dranet.node.records.store_file import StoreError
from dranet.node.store import Store
from dranet.testing.waiting import until
from tests.dhcp_server import NAK, RELEASE, REQUEST, Behaviour, Server, obliging, option, reply

from .conftest import TestNode


@pytest.fixture
def dhcp_node(node: TestNode) -> TestNode:
    """nic0 without addresses; its network has a server at 10.0.0.254."""
    node.run("ip", "addr", "flush", "dev", "nic0")
    with NetlinkSocket(namespace_fd=node.fabric.fd) as far:
        peer = links.get_link(far, "nic0")
        assert peer is not None
        far.request(addresses.add(addresses.from_cidr("10.0.0.254/24", peer.index, broadcast="10.0.0.255")))
    return node


def _server(node: TestNode, behaviour: Behaviour = obliging) -> Server:
    return Server(node.fabric, behaviour, "nic0")


def aged(kept: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The record of a lease as if it had been granted earlier."""
    return {**kept, "granted": kept["granted"] - seconds, "uptime": kept["uptime"] - seconds}


async def _obtain(node: TestNode, patience: float = 5.0) -> tuple[Leases, ClaimPlan]:
    keeper = Leases(node.host, node.store, patience=patience)
    plan = node.plan("nic0", config={"interface": {"name": "net0", "dhcp": True}})
    plan = msgspec.structs.replace(plan, devices=tuple(await keeper.obtain(plan.devices)))
    node.store.put(plan)
    return keeper, plan


async def test_address_router_and_mtu_come_from_the_server(dhcp_node: TestNode) -> None:
    server = _server(dhcp_node)
    try:
        _, plan = await _obtain(dhcp_node)
        dhcp_node.lifecycle.set_up(plan)
        pod = dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        (found,) = dhcp_node.ip("addr", "show", "net0", where=pod)
        assert [a["local"] for a in found["addr_info"] if a["scope"] == "global"] == ["10.0.0.7"]
        assert found["mtu"] == 1400
        assert any(r["dst"] == "default" and r["gateway"] == "10.0.0.254" for r in dhcp_node.ip("route", where=pod))
    finally:
        server.close()


async def test_mtu_of_the_claim_counts_more_than_that_of_the_server(dhcp_node: TestNode) -> None:
    server = _server(dhcp_node)
    try:
        keeper = Leases(dhcp_node.host, dhcp_node.store, patience=5.0)
        plan = dhcp_node.plan("nic0", config={"interface": {"name": "net0", "dhcp": True, "mtu": 1300}})
        plan = msgspec.structs.replace(plan, devices=tuple(await keeper.obtain(plan.devices)))
        dhcp_node.store.put(plan)
        dhcp_node.lifecycle.set_up(plan)
        pod = dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        (found,) = dhcp_node.ip("link", "show", "net0", where=pod)
        assert found["mtu"] == 1300  # the server says 1400
    finally:
        server.close()


async def test_lease_is_renewed_in_the_newest_sandbox_only(
    dhcp_node: TestNode, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewal in the sandbox before fails, for the NIC has left it; in the end it would take the address away."""
    server = _server(dhcp_node, renewing_often)
    try:
        keeper, plan = await _obtain(dhcp_node)
        before, pod = dhcp_node.pod(), dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        plan = nearly_expired(dhcp_node, plan, pod)
        server.heard.clear()
        keeper.keep([plan], before.path)
        keeper.keep([plan], pod.path)
        await until(lambda: len(server.heard) >= 4)
        (kept,) = (dhcp_node.store.get(plan.uid) or plan).devices
        assert kept.pod_config is not None
        assert [address.local for address in kept.pod_config.addresses] == ["10.0.0.7"]
        assert "DHCP lease expired" not in caplog.text
        keeper.close()
    finally:
        server.close()


async def test_lease_is_renewed_in_the_pod_and_released_after_detach(dhcp_node: TestNode) -> None:
    server = _server(dhcp_node)
    try:
        keeper, plan = await _obtain(dhcp_node)
        pod = dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        (device,) = plan.devices
        old = aged(device.lease, 590)  # nearly over: renewed at once
        plan = msgspec.structs.replace(plan, devices=(msgspec.structs.replace(device, lease=old),), netns=pod.path)
        dhcp_node.store.put(plan)
        server.heard.clear()
        keeper.keep([plan], "/run/netns/of-a-sandbox-before")
        keeper.keep([plan], pod.path)
        await until(lambda: (REQUEST, "10.0.0.7") in server.heard)
        await until(lambda: (dhcp_node.store.get(plan.uid) or plan).devices[0].lease["granted"] > old["granted"])
        keeper.stop(plan)
        dhcp_node.lifecycle.detach(plan.uid)
        await keeper.release(plan)
        await until(lambda: any(kind == RELEASE for kind, _ in server.heard))
    finally:
        server.close()


def refusing_to_renew(kind: int, request: bytes) -> list[bytes]:
    renewing = kind == REQUEST and request[12:16] != bytes(4)
    return [reply(request, NAK)] if renewing else obliging(kind, request)


def silent_when_renewing(kind: int, request: bytes) -> list[bytes]:
    return [] if kind == REQUEST and request[12:16] != bytes(4) else obliging(kind, request)


@pytest.mark.parametrize(
    ("behaviour", "age", "why"),
    [(refusing_to_renew, 590, "refused"), (silent_when_renewing, 601, "no server renewed it in 600 s")],
    ids=["refused", "expired"],
)
async def test_expired_lease_removes_the_address_from_the_pod(
    dhcp_node: TestNode, behaviour: Behaviour, age: float, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = _server(dhcp_node, behaviour)
    try:
        keeper, plan = await _obtain(dhcp_node)
        pod = dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        dhcp_node.run("ip", "addr", "add", "10.77.0.1/24", "dev", "net0", where=pod)
        (device,) = plan.devices
        old = msgspec.structs.replace(device, lease=aged(device.lease, age))
        plan = msgspec.structs.replace(plan, devices=(old,), netns=pod.path)
        dhcp_node.store.put(plan)
        keeper.keep([plan], pod.path)

        def global_addresses() -> list[str]:
            (found,) = dhcp_node.ip("addr", "show", "net0", where=pod)
            return [a["local"] for a in found["addr_info"] if a["scope"] == "global"]

        await until(lambda: global_addresses() == ["10.77.0.1"])
        assert not any(route["dst"] == "default" for route in dhcp_node.ip("route", where=pod))

        def stored() -> DevicePlan:
            (device,) = (dhcp_node.store.get(plan.uid) or plan).devices
            return device

        await until(lambda: stored().lease == {})  # the plan follows the pod
        kept = stored()
        assert kept.pod_config is not None
        assert (kept.pod_config.addresses, kept.pod_config.routes) == ((), ())
        assert (
            "DHCP lease expired; removing its address from the pod address=10.0.0.7" in caplog.text
            and why in caplog.text
        )
        keeper.close()
    finally:
        server.close()


def renewing_often(kind: int, request: bytes) -> list[bytes]:
    """The server wants a renewal every second (option 58), long before the lease expires."""
    return [answer[:-1] + option(58, struct.pack("!I", 1)) + b"\xff" for answer in obliging(kind, request)]


class FullDisk:
    """A store whose first writes fail."""

    def __init__(self, store: Store, failures: int) -> None:
        self._store, self.failures = store, failures

    def get(self, uid: str) -> ClaimPlan | None:
        return self._store.get(uid)

    def change(self, uid: str, **changes: Any) -> ClaimPlan | None:
        if self.failures:
            self.failures -= 1
            raise StoreError("cannot write: database or disk is full")
        return self._store.change(uid, **changes)


def nearly_expired(node: TestNode, plan: ClaimPlan, pod: Namespace) -> ClaimPlan:
    """The stored plan with a lease that is renewed at once."""
    (device,) = plan.devices
    old = msgspec.structs.replace(device, lease=aged(device.lease, 599))
    plan = msgspec.structs.replace(plan, devices=(old,), netns=pod.path)
    node.store.put(plan)
    return plan


async def test_renewal_continues_after_a_failed_write(dhcp_node: TestNode) -> None:
    server = _server(dhcp_node, renewing_often)
    try:
        _, plan = await _obtain(dhcp_node)
        pod = dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        full: Any = FullDisk(dhcp_node.store, 1)
        keeper = Leases(dhcp_node.host, full)
        granted = plan.devices[0].lease["granted"]
        keeper.keep([plan], pod.path)
        await until(lambda: dhcp_node.store.plans[plan.uid].devices[0].lease["granted"] > granted)
        assert full.failures == 0
        keeper.close()
    finally:
        server.close()


async def test_refused_lease_removes_the_address_although_nothing_can_be_written(dhcp_node: TestNode) -> None:
    server = _server(dhcp_node, refusing_to_renew)
    try:
        _, plan = await _obtain(dhcp_node)
        pod = dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        plan = nearly_expired(dhcp_node, plan, pod)
        full: Any = FullDisk(dhcp_node.store, 3)
        keeper = Leases(dhcp_node.host, full, retry_seconds=0.01)
        keeper.keep([plan], pod.path)
        await until(lambda: not (dhcp_node.store.get(plan.uid) or plan).devices[0].lease)
        (found,) = dhcp_node.ip("addr", "show", "net0", where=pod)
        assert [a["local"] for a in found["addr_info"] if a["scope"] == "global"] == []
        keeper.close()
    finally:
        server.close()


LEASE = Lease(address="10.0.0.7", prefix=24, server="10.0.0.1", lifetime=3600, renew_after=1800, rebind_after=3000)


@pytest.mark.parametrize("clock", [-86_400.0, 86_400.0])
def test_wall_clock_change_keeps_the_lease_age(clock: float) -> None:
    kept = leases.record(LEASE, "this boot")
    set_since = {**kept, "granted": kept["granted"] - clock}
    assert 0 <= leases.read(set_since, "this boot")[1] < 60


def test_lease_age_after_a_reboot_uses_the_wall_clock() -> None:
    kept = leases.record(LEASE, "the boot before")
    assert 100 <= leases.read({**kept, "granted": kept["granted"] - 100}, "this boot")[1] < 160
    assert leases.read({**kept, "granted": kept["granted"] + 86_400}, "this boot")[1] == LEASE.renew_after


def test_lease_record_of_the_previous_version_is_read() -> None:
    kept = {"lease": leases.record(LEASE, "")["lease"], "granted": time.time() - 100}
    assert 100 <= leases.read(kept, "this boot")[1] < 160


@pytest.mark.parametrize(("age", "keeps"), [(400, True), (530, False)], ids=["before T2", "after T2"])
async def test_another_server_refuses_a_lease_only_after_t2(dhcp_node: TestNode, age: float, keeps: bool) -> None:
    """The lease's server has gone, and another one on its network refuses everything that it hears."""
    server = _server(dhcp_node, refusing_to_renew)
    try:
        _, plan = await _obtain(dhcp_node)
        (device,) = plan.devices
        lease = {**device.lease["lease"], "server": "10.0.0.253", "renew_after": 300, "rebind_after": 525}
        pod = dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        server.heard.clear()
        stored = aged({**device.lease, "lease": lease}, age)
        with pytest.raises(DhcpError) as raised:
            await asyncio.to_thread(leases.renew, dhcp_node.host, device, stored, pod.path, 1.0)
        assert isinstance(raised.value, LeaseRefused) is not keeps
        assert bool(server.heard) is not keeps
    finally:
        server.close()


async def test_missing_dhcp_server_is_an_error_and_restores_the_nic(dhcp_node: TestNode) -> None:
    before = dhcp_node.picture("nic0")
    with pytest.raises(DhcpError, match="no DHCP server answered"):
        await _obtain(dhcp_node, patience=0.3)
    dhcp_node.lifecycle.detach("uid-1")
    assert dhcp_node.picture("nic0") == before


def test_renewal_waits_half_of_the_remaining_time() -> None:
    lease = Lease(address="10.0.0.7", prefix=24, server="10.0.0.1", lifetime=600, renew_after=300, rebind_after=500)
    assert leases.pause_before_renewal(lease, 0) == 300
    assert leases.pause_before_renewal(lease, 400) == 50  # half of the time to T2
    assert leases.pause_before_renewal(lease, 500) == 50
    assert leases.pause_before_renewal(lease, 599.9) == leases.SHORTEST_PAUSE


async def test_silent_dhcp_servers_do_not_block_others(dhcp_node: TestNode) -> None:
    keeper = Leases(dhcp_node.host, dhcp_node.store, patience=2.0)
    plan = dhcp_node.plan("nic0", config={"interface": {"name": "net0", "dhcp": True}})
    waiting = [asyncio.ensure_future(keeper.obtain(plan.devices)) for _ in range(50)]
    await asyncio.sleep(0.1)  # all of them wait now
    hook = asyncio.ensure_future(asyncio.to_thread(dhcp_node.device, "nic0"))
    done, _ = await asyncio.wait({hook, *waiting}, return_when=asyncio.FIRST_COMPLETED)
    assert done == {hook}
    for one in waiting:
        one.cancel()
    assert all(isinstance(end, BaseException) for end in await asyncio.gather(*waiting, return_exceptions=True))
    keeper.close()  # before the node of this test goes


async def test_child_gets_a_lease_of_its_own(dhcp_node: TestNode) -> None:
    before = dhcp_node.picture("nic0")
    asked: list[str] = []

    def listening(kind: int, request: bytes) -> list[bytes]:
        asked.append(request[28:34].hex(":"))
        return obliging(kind, request)

    server = _server(dhcp_node, listening)
    try:
        keeper = Leases(dhcp_node.host, dhcp_node.store, patience=5.0)
        config = {"interface": {"type": "Macvlan", "addressing": "DHCP", "name": "net1"}}
        plan = dhcp_node.plan("nic0", config=config)
        plan = msgspec.structs.replace(plan, devices=tuple(await keeper.obtain(plan.devices)))
        dhcp_node.store.put(plan)
        dhcp_node.lifecycle.set_up(plan)
        pod = dhcp_node.pod()
        dhcp_node.lifecycle.attach("pod-1", pod.path)
        (found,) = dhcp_node.ip("addr", "show", "net1", where=pod)
        assert [a["local"] for a in found["addr_info"] if a["scope"] == "global"] == ["10.0.0.7"]
        assert found["mtu"] == 1400
        assert set(asked) == {found["address"]}
        (device,) = plan.devices
        again = await asyncio.to_thread(leases.renew, dhcp_node.host, device, device.lease, pod.path)
        assert again.address == "10.0.0.7"
        dhcp_node.lifecycle.detach(plan.uid)
        await keeper.release(plan)
        await until(lambda: server.heard and server.heard[-1][0] == RELEASE)
        assert set(asked) == {found["address"]}
        assert dhcp_node.picture("nic0") == before
    finally:
        server.close()
