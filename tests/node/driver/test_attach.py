"""Attach, on the real kernel."""

from __future__ import annotations

import errno

import pytest

from dranet.core.errors import DranetError
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.features.base import AttachError
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle

from .conftest import TestNode


def test_nic_keeps_host_name_and_addresses_in_the_pod(node: TestNode) -> None:
    pod = node.attach("nic0")
    (found,) = node.ip("addr", "show", "nic0", where=pod)
    assert {a["local"] for a in found["addr_info"] if a["scope"] == "global"} == {"10.1.0.1", "fd00:1::1"}
    assert "UP" in found["flags"]
    assert node.names() == {"nic1"}


def test_move_counts_include_start_and_end(node: TestNode) -> None:
    moves, counted = node.lifecycle.move_counts, []
    plan = node.plan("nic0")
    node.lifecycle.set_up(plan)
    counted.append(moves.count("nic0"))
    node.lifecycle.attach("pod-1", node.pod().path)
    counted.append(moves.count("nic0"))
    node.lifecycle.detach(plan.uid)
    assert [*counted, moves.count("nic0"), moves.count("nic1")] == [2, 4, 6, 0]


def test_failed_move_is_not_counted_as_moving(node: TestNode) -> None:
    node.plan("nic0", config={"interface": {"name": "lo"}})
    with pytest.raises(AttachError):
        node.lifecycle.attach("pod-1", node.pod().path)
    assert node.lifecycle.move_counts.count("nic0") % 2 == 0


def test_attach_applies_all_settings(node: TestNode) -> None:
    config = {
        "interface": {
            "name": "dranet0",
            "addresses": ["169.254.169.14/24"],
            "mtu": 4321,
            "hardwareAddr": "00:11:22:33:44:55",
            "gsoMaxSize": 60000,
            "groMaxSize": 61000,
            "arpIgnore": 1,
            "arpAnnounce": 2,
            "forwarding": True,
        },
        "routes": [
            {"destination": "10.50.0.0/16", "gateway": "169.254.169.1"},
            {"destination": "10.60.0.0/16", "scope": 253},
            {"destination": "10.70.0.0/16", "gateway": "169.254.169.1", "table": 100},
        ],
        "rules": [{"priority": 500, "source": "10.20.30.0/24", "table": 100}],
        "neighbors": [{"destination": "169.254.169.9", "hardwareAddr": "00:aa:bb:cc:dd:ee"}],
        "ethtool": {"features": {"tcp-segmentation-offload": False, "gro": False}},
    }
    pod = node.attach("nic0", config=config)
    (link,) = node.ip("-d", "link", "show", "dranet0", where=pod)
    assert (link["mtu"], link["address"]) == (4321, "00:11:22:33:44:55")
    assert (link["gso_max_size"], link["gro_max_size"]) == (60000, 61000)
    (found,) = node.ip("addr", "show", "dranet0", where=pod)
    assert [a["local"] for a in found["addr_info"] if a["scope"] == "global"] == ["169.254.169.14"]
    routes = {r["dst"]: r for r in node.ip("route", where=pod)}
    assert routes["10.50.0.0/16"]["gateway"] == "169.254.169.1"
    assert routes["10.60.0.0/16"]["scope"] == "link"
    assert [r["dst"] for r in node.ip("route", "show", "table", "100", where=pod)] == ["10.70.0.0/16"]
    assert any(r["priority"] == 500 and r["src"] == "10.20.30.0" for r in node.ip("rule", where=pod))
    assert node.ip("neigh", where=pod)[0]["lladdr"] == "00:aa:bb:cc:dd:ee"
    settings = ("arp_ignore", "arp_announce", "forwarding")
    read = [node.run("cat", f"/proc/sys/net/ipv4/conf/dranet0/{key}", where=pod).strip() for key in settings]
    assert read == ["1", "2", "1"]


def test_gate_is_written_after_all_devices_are_attached(node: TestNode) -> None:
    plan = node.plan("nic0", "nic1")
    assert not node.lifecycle.gates.exists(plan.uid)
    node.lifecycle.attach("pod-1", node.pod().path)
    assert node.lifecycle.gates.exists(plan.uid)


def test_failed_device_rolls_back_the_others(node: TestNode) -> None:
    before = {name: node.picture(name) for name in ("nic0", "nic1")}
    plan = node.plan("nic0", "nic1", config={"routes": [{"destination": "10.9.0.0/16", "gateway": "192.0.2.1"}]})
    pod = node.pod()
    with pytest.raises(AttachError, match=r"10\.9\.0\.0/16 via 192\.0\.2\.1"):
        node.lifecycle.attach("pod-1", pod.path)
    assert node.names(pod) == set()
    assert {name: node.picture(name) for name in before} == before
    assert not node.lifecycle.gates.exists(plan.uid)


def test_name_taken_in_the_pod_is_refused(node: TestNode) -> None:
    node.plan("nic0", config={"interface": {"name": "lo"}})
    with pytest.raises(AttachError, match="the pod already has an interface named lo"):
        node.lifecycle.attach("pod-1", node.pod().path)


def test_attach_twice_changes_nothing(node: TestNode) -> None:
    node.plan("nic0", "nic1")
    pod = node.pod()
    first = node.lifecycle.attach("pod-1", pod.path)
    second = node.lifecycle.attach("pod-1", pod.path)
    assert [(a.device.name, a.link and a.link.name) for a in first] == [
        (a.device.name, a.link and a.link.name) for a in second
    ]


def test_new_sandbox_gets_the_device_of_the_old_one(node: TestNode) -> None:
    """A runtime that crashed while it started a sandbox starts another, and sends no stop hook for the first."""
    before = node.picture("nic0")
    plan = node.plan("nic0")
    old, new = node.pod(), node.pod()
    node.lifecycle.attach("pod-1", old.path)
    node.lifecycle.attach("pod-1", new.path)
    assert (node.names(old), node.names(new)) == (set(), {"nic0"})
    assert node.lifecycle.gates.exists(plan.uid)
    assert node.lifecycle.detach(plan.uid, stopping="") == []
    assert node.picture("nic0") == before


class FullDisk(ReadinessGates):
    """Gates in a folder without free space."""

    def write(self, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_unwritable_gate_rolls_back_the_attach(node: TestNode) -> None:
    before = node.picture("nic0")
    node.plan("nic0")
    pod = node.pod()
    lifecycle = DeviceLifecycle(node.host, node.store, FullDisk(str(node.folder / "cdi")))
    with pytest.raises(OSError, match="No space left"):
        lifecycle.attach("pod-1", pod.path)
    assert node.names(pod) == set()
    assert node.picture("nic0") == before


def test_devices_are_attached_in_the_order_of_the_claim(node: TestNode) -> None:
    node.plan("nic1", "nic0")
    attached = node.lifecycle.attach("pod-1", node.pod().path)
    assert [a.device.name for a in attached] == ["nic1", "nic0"]


def test_deleted_namespace_fails_the_attach(node: TestNode) -> None:
    node.plan("nic0")
    with pytest.raises(DranetError, match="cannot open the network namespace"):
        node.lifecycle.attach("pod-1", str(node.folder / "nowhere"))
    assert "nic0" in node.names()


def test_cancelled_request_moves_nothing(node: TestNode) -> None:
    before = node.picture("nic0")
    node.plan("nic0")
    with pytest.raises(AttachError, match="no longer waits"):
        node.lifecycle.attach("pod-1", node.pod().path, cancelled=lambda: True)
    assert node.picture("nic0") == before


def test_attach_past_its_deadline_is_rolled_back(node: TestNode) -> None:
    node.plan("nic0")
    with pytest.raises(AttachError, match="longer than"):
        node.lifecycle.attach("pod-1", node.pod().path, seconds=-1)
    assert "nic0" in node.names()


def test_conflicting_route_is_reported_and_kept(node: TestNode) -> None:
    config = {"routes": [{"destination": "0.0.0.0/0", "gateway": "10.1.0.254"}]}
    node.plan("nic0", config=config)
    pod = node.pod()
    node.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "p0", where=pod)
    node.run("ip", "addr", "add", "10.200.0.2/24", "dev", "eth0", where=pod)
    node.run("ip", "link", "set", "eth0", "up", where=pod)
    node.run("ip", "link", "set", "p0", "up", where=pod)
    node.run("ip", "route", "add", "default", "via", "10.200.0.1", where=pod)
    (attached,) = node.lifecycle.attach("pod-1", pod.path)
    said = {condition.type: condition for condition in attached.conditions}["NetworkReady"]
    assert said.reason == "RoutesTaken"
    assert "0.0.0.0/0" in said.message
    assert [r["dev"] for r in node.ip("route", "show", "default", where=pod)] == ["eth0"]


def test_repair_recognises_its_own_routes(node: TestNode) -> None:
    node.plan("nic0", config={"routes": [{"destination": "0.0.0.0/0", "gateway": "10.1.0.254"}]})
    pod = node.pod()
    for _ in range(2):
        (attached,) = node.lifecycle.attach("pod-1", pod.path)
        assert [c.reason for c in attached.conditions] == ["NetworkDeviceReady", "NetworkReady"]


def test_both_ends_of_a_veth_pair_are_attached_and_restored(node: TestNode) -> None:
    node.run("ip", "link", "add", "left0", "type", "veth", "peer", "name", "right0")
    for name in ("left0", "right0"):
        node.run("ip", "link", "set", name, "up")
    before = {name: node.picture(name) for name in ("left0", "right0")}
    plans = [
        node.plan(name, uid=f"uid-{name}", pod_uid=f"pod-{name}", config={"interface": {"name": "eth1"}})
        for name in before
    ]
    pods = {plan.pod.uid: node.pod() for plan in plans}
    for plan in plans:
        node.lifecycle.set_up(plan)
    for plan in plans:
        node.lifecycle.attach(plan.pod.uid, pods[plan.pod.uid].path)
    assert [node.names(pod) for pod in pods.values()] == [{"eth1"}, {"eth1"}]
    for plan in plans:
        assert node.lifecycle.detach(plan.uid, stopping="") == []
    assert {name: node.picture(name) for name in before} == before
