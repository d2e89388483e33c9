"""Detach restores a NIC exactly."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.node.features.rdma import RdmaFeature
from dranet.node.features.registry import FEATURES
from dranet.node.lifecycle.device_lifecycle import DetachError, DeviceLifecycle
from dranet.node.records.plan import RdmaRecord

from .conftest import TestNode

RICH = {
    "interface": {
        "name": "eth9",
        "addresses": ["192.168.7.1/24"],
        "mtu": 1400,
        "hardwareAddr": "02:00:00:00:00:99",
        "gsoMaxSize": 50000,
    },
    "ethtool": {"features": {"tso": False}},
}


@pytest.fixture
def rich_node(node: TestNode) -> TestNode:
    """nic0 has everything a NIC can have."""
    node.run("ip", "link", "set", "nic0", "alias", "rail zero", "mtu", "1600", "txqueuelen", "500")
    node.run("ip", "addr", "add", "10.1.0.5/24", "dev", "nic0", "label", "nic0:x")
    node.run("ip", "route", "add", "10.77.0.0/16", "via", "10.1.0.254", "dev", "nic0", "metric", "7", "mtu", "1300")
    node.run("ip", "route", "add", "10.78.0.0/16", "via", "10.1.0.254", "dev", "nic0", "table", "100")
    node.run("ip", "rule", "add", "from", "10.20.30.0/24", "table", "100", "priority", "500")
    node.run("ip", "-6", "route", "add", "fd00:77::/64", "via", "fd00:1::fe", "dev", "nic0")
    node.run("ip", "neigh", "add", "10.1.0.9", "lladdr", "00:11:22:33:44:55", "dev", "nic0", "nud", "permanent")
    return node


@pytest.mark.parametrize("config", [None, RICH], ids=["nothing-asked", "much-asked"])
def test_detach_restores_the_nic(rich_node: TestNode, config: object) -> None:
    before, rules = rich_node.picture("nic0"), rich_node.ip("rule")
    plan = rich_node.plan("nic0", config=config)
    rich_node.lifecycle.set_up(plan)
    rich_node.lifecycle.attach("pod-1", rich_node.pod().path)
    assert rich_node.lifecycle.detach(plan.uid) == []
    assert rich_node.picture("nic0") == before
    assert rich_node.ip("rule") == rules
    assert not rich_node.lifecycle.gates.exists(plan.uid)
    assert rich_node.store.plans[plan.uid].netns is None


def test_detach_keeps_a_nic_down(node: TestNode) -> None:
    node.run("ip", "link", "set", "nic0", "down")
    before = node.picture("nic0")
    node.attach("nic0")
    node.lifecycle.detach("uid-1")
    assert node.picture("nic0") == before


def test_early_setup_is_undone_without_attach(node: TestNode) -> None:
    before = node.picture("nic0")
    plan = node.plan("nic0", config=RICH)
    node.lifecycle.set_up(plan)
    assert node.picture("nic0") != before
    node.lifecycle.detach(plan.uid)
    assert node.picture("nic0") == before


def test_renamed_interface_is_found(node: TestNode) -> None:
    before = node.picture("nic0")
    pod = node.attach("nic0")
    node.run("ip", "link", "set", "nic0", "down", where=pod)
    node.run("ip", "link", "set", "nic0", "name", "mine", where=pod)
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


def test_name_taken_on_the_host_costs_only_the_name(node: TestNode) -> None:
    node.attach("nic0")
    node.run("ip", "link", "add", "nic0", "type", "bridge")
    problems = node.lifecycle.detach("uid-1")
    assert any("nic0" in problem for problem in problems)
    assert len([link for link in node.ip("-d", "link") if link.get("linkinfo", {}).get("info_kind") == "veth"]) == 2


def test_removed_namespace_returns_the_nic(node: TestNode) -> None:
    before = node.picture("nic0")
    pod = node.attach("nic0")
    pod.close()
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


def test_deleted_virtual_nic_is_logged(node: TestNode) -> None:
    pod = node.attach("nic0")
    next_driver = DeviceLifecycle(node.host, node.store, node.lifecycle.gates)
    node.lifecycle.close()
    pod.close()
    problems = next_driver.detach("uid-1")
    assert len(problems) == 1 and "removed it with the pod's network namespace" in problems[0]


def test_detach_after_a_reboot_changes_nothing(node: TestNode) -> None:
    plan = node.plan("nic0", boot="the boot before", netns="/gone")
    node.run("ip", "addr", "replace", "10.1.0.77/24", "dev", "nic0")
    now = node.picture("nic0")
    assert node.lifecycle.detach(plan.uid) == []
    assert node.picture("nic0") == now


def test_attach_after_a_reboot_reads_the_host_state_again(node: TestNode) -> None:
    plan = node.plan("nic0", boot="the boot before", config=RICH)
    node.run("ip", "addr", "replace", "10.1.0.77/24", "dev", "nic0")
    now = node.picture("nic0")
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    assert node.names(pod) == {"eth9"}
    assert node.lifecycle.detach(plan.uid) == []
    assert node.picture("nic0") == now


def test_ip_settings_and_flags_are_restored(node: TestNode) -> None:
    """The kernel forgets the settings with every move; the flags are the pod's doing."""
    for path in ("ipv4/conf/nic0/rp_filter=2", "ipv4/conf/nic0/arp_ignore=1", "ipv6/conf/nic0/accept_ra=0"):
        node.run("sysctl", "-qw", f"net/{path}")
    before = node.picture("nic0")
    pod = node.attach("nic0", "nic1", config={"interface": {"arpIgnore": 2, "forwarding": True}})
    node.run("ip", "link", "set", "nic0", "promisc", "on", "allmulticast", "on", "arp", "off", where=pod)
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


def test_forwarding_enabled_on_the_node_stays_on(node: TestNode) -> None:
    node.attach("nic0")
    node.run("sysctl", "-qw", "net/ipv4/ip_forward=1")
    assert node.lifecycle.detach("uid-1") == []
    assert node.run("cat", "/proc/sys/net/ipv4/conf/nic0/forwarding").strip() == "1"


def test_repeated_detach_changes_nothing(node: TestNode) -> None:
    before = node.picture("nic0")
    node.attach("nic0", config=RICH)
    node.lifecycle.detach("uid-1")
    node.lifecycle.detach("uid-1")
    assert node.picture("nic0") == before


def test_restarted_pod_gets_its_device_again(node: TestNode) -> None:
    node.attach("nic0", config=RICH)
    node.lifecycle.detach("uid-1")
    pod = node.pod()
    node.lifecycle.attach("pod-1", pod.path)
    (link,) = node.ip("link", "show", "eth9", where=pod)
    assert (link["mtu"], link["address"]) == (1400, "02:00:00:00:00:99")


def test_nic_returns_although_its_rdma_device_does_not(node: TestNode) -> None:
    def refuse(_: int) -> NetlinkSocket | None:
        raise NetlinkError(errno.EBUSY, "", "move the RDMA device mlx5_0")

    before = node.picture("nic0")
    node.attach("nic0")
    with_rdma = msgspec.structs.replace(node.store.plans["uid-1"].devices[0], rdma=RdmaRecord(device="mlx5_0"))
    node.store.change("uid-1", devices=(with_rdma,))
    stuck = DeviceLifecycle(
        node.host, node.store, node.lifecycle.gates, features=FEATURES.with_feature(RdmaFeature(refuse))
    )
    (problem,) = stuck.detach("uid-1")
    assert problem.startswith("RDMA device mlx5_0 cannot return to the host network namespace: cannot move")
    assert node.picture("nic0") == before


def test_exhausted_file_descriptors_are_not_a_deleted_pod(node: TestNode) -> None:
    pod = node.attach("nic0")
    node.lifecycle.close()  # as after a restart: the namespace has to be opened
    with no_descriptors_left(), pytest.raises(DetachError, match="Too many open files"):
        node.lifecycle.detach("uid-1")
    kept = node.store.get("uid-1")
    assert kept is not None
    assert kept.netns == pod.path
    assert node.lifecycle.detach("uid-1") == []
    assert node.names() == {"nic0", "nic1"}


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """The limit is what is open now, with the one that the lock of the pod takes."""
    _, most = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_deleted_rule_is_restored_with_its_table(rich_node: TestNode) -> None:
    """Some network managers remove the rules of a table whose last route has left with a NIC."""
    rules = rich_node.ip("rule")
    rich_node.attach("nic0")
    rich_node.run("ip", "rule", "del", "from", "10.20.30.0/24", "table", "100", "priority", "500")
    assert rich_node.lifecycle.detach("uid-1") == []
    assert rich_node.ip("rule") == rules
