"""A pod with CAP_NET_ADMIN may be malicious: whatever it does to its NICs, the node and the next tenant do not notice.

Each test is one attack; `tests/campaign` runs them in sequences.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from dranet.core.errors import KernelError
from dranet.linux import codec, links, sysctl, virtual_links
from dranet.linux.ethtool import Ethtool
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.traffic import tc
from dranet.node.features.base import Problems
from dranet.node.features.netdev import NetdevFeature
from dranet.node.features.netdev_search import LinkNotFound, find_in_pod, reclaim
from dranet.node.features.registry import FEATURES
from dranet.node.lifecycle.device_lifecycle import DetachError, DeviceLifecycle
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import DevicePlan
from tests import pictures
from tests.campaign import attacks, attacks_on_settings
from tests.campaign.attacker import Act, PodNetwork

from .conftest import TestNode

Trick = Callable[[TestNode, Namespace], None]


def in_pod(node: TestNode, *names: str) -> Namespace:
    return node.attach(*names)


def ip(node: TestNode, pod: Namespace, *words: str) -> None:
    node.run("ip", *words, where=pod)


# Names.


@pytest.mark.parametrize("name", ["nic1", "eth0", "dranet2", "dranet3"])
def test_altname_on_the_host_does_not_block_the_return(node: TestNode, name: str) -> None:
    before = node.picture("nic0")
    node.add_nic("eth0")
    pod = in_pod(node, "nic0")
    ip(node, pod, "link", "property", "add", "dev", "nic0", "altname", name)
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


class StubbornNic0(NetdevFeature):
    """The kernel will not let go of one NIC."""

    def detach(self, host: Host, pod: PodNamespace, device: DevicePlan, nic: Link | None) -> Problems:
        if device.name == "nic0":
            raise KernelError("nic0 stays where it is")
        return (yield from super().detach(host, pod, device, nic))

    def reclaim(self, host: Host, device: DevicePlan, *, last_resort: bool) -> None:
        """Nor is there another way to it."""


def test_failed_detach_does_not_block_other_devices(node: TestNode) -> None:
    before = [node.picture(name) for name in ("nic0", "nic1")]
    pod = in_pod(node, "nic0", "nic1")
    stubborn = DeviceLifecycle(
        node.host, node.store, node.lifecycle.gates, features=FEATURES.with_feature(StubbornNic0())
    )
    with pytest.raises(DetachError, match="nic0 stays where it is"):
        stubborn.detach("uid-1")
    assert node.picture("nic1") == before[1]
    assert node.names(pod) == {"nic0"}
    kept = node.store.get("uid-1")
    assert kept is not None and kept.netns == pod.path
    assert node.lifecycle.detach("uid-1") == []
    assert [node.picture(name) for name in ("nic0", "nic1")] == before


def test_altnames_are_restored(node: TestNode) -> None:
    node.run("ip", "link", "property", "add", "dev", "nic0", "altname", "rail0", "altname", "a-long-name-of-a-rail")
    before = node.picture("nic0")
    pod = in_pod(node, "nic0")
    ip(node, pod, "link", "property", "del", "dev", "nic0", "altname", "rail0")
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


def test_swapped_names_are_restored(node: TestNode) -> None:
    before = [node.picture(name) for name in ("nic0", "nic1")]
    pod = in_pod(node, "nic0", "nic1")
    for old, new in (("nic0", "x"), ("nic1", "nic0"), ("x", "nic1")):
        ip(node, pod, "link", "set", old, "down")
        ip(node, pod, "link", "set", old, "name", new)
    assert node.lifecycle.detach("uid-1") == []
    assert [node.picture(name) for name in ("nic0", "nic1")] == before


def test_swapped_names_are_restored_after_namespace_removal(node: TestNode) -> None:
    """What hardware does when its namespace dies."""
    before = [node.picture(name) for name in ("nic0", "nic1")]
    node.plan("nic0", "nic1")
    for old, new in (("nic0", "x"), ("nic1", "nic0"), ("x", "nic1")):
        node.run("ip", "link", "set", old, "down")
        node.run("ip", "link", "set", old, "name", new)
    assert node.lifecycle.detach("uid-1") == []
    assert [node.picture(name) for name in ("nic0", "nic1")] == before


def test_foreign_altnames_are_removed(node: TestNode) -> None:
    """What hardware does when its namespace dies; here it never left."""
    before = node.picture("nic0")
    node.plan("nic0")
    node.run("ip", "link", "property", "add", "dev", "nic0", "altname", "evil", "altname", "dranet3")
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


# Settings that the next tenant would inherit.


def _features(node: TestNode, pod: Namespace) -> None:
    with Ethtool(pod.fd) as tool, NetlinkSocket(namespace_fd=pod.fd) as route:
        nic = links.get_link(route, "nic0")
        assert nic is not None
        known = tool.features(nic.index)
        tool.set_features(nic.index, {n: not f.active for n, f in known.items() if f.changeable and "tso" not in n})


def _channels(node: TestNode, pod: Namespace) -> None:
    with Ethtool(pod.fd) as tool, NetlinkSocket(namespace_fd=pod.fd) as route:
        nic = links.get_link(route, "nic0")
        assert nic is not None
        most = tool.tables(nic.index)["channels"][2]
        tool.set_table(nic.index, "channels", {6: most, 7: most})


def _ipv4_sizes(node: TestNode, pod: Namespace) -> None:
    """Many an `ip` does not know them."""
    with NetlinkSocket(namespace_fd=pod.fd) as route:
        nic = links.get_link(route, "nic0")
        assert nic is not None
        route.request(links.change(nic.index, gso_ipv4_max_size=9000, gro_ipv4_max_size=9000))


SETTINGS: dict[str, Trick | list[str]] = {
    "gso_max_segs": ["gso_max_segs", "7"],
    "gso_max_size": ["gso_max_size", "9000"],
    "gro_max_size": ["gro_max_size", "9000"],
    "gso_ipv4_max_size": _ipv4_sizes,
    "link mode": ["mode", "dormant"],
    "broadcast": ["broadcast", "33:33:00:00:00:01"],
    "mac": ["address", "02:00:00:00:00:77"],
    "promiscuity": ["promisc", "on"],
    "allmulti": ["allmulticast", "on"],
    "arp": ["arp", "off"],
    "group": ["group", "7"],
    "alias": ["alias", "mine"],
    "features": _features,
    "channels": _channels,
}


@pytest.mark.parametrize("what", SETTINGS)
def test_next_pod_inherits_no_settings(node: TestNode, what: str) -> None:
    before = node.picture("nic0")
    pod = in_pod(node, "nic0")
    trick = SETTINGS[what]
    inside = pictures.take(pod.fd, "nic0")
    trick(node, pod) if callable(trick) else ip(node, pod, "link", "set", "nic0", *trick)
    assert pictures.take(pod.fd, "nic0") != inside, "the trick had no effect, so this test would prove nothing"
    assert node.lifecycle.detach("uid-1") == []
    assert pictures.differences(before, node.picture("nic0")) == []


def test_ipv6_settings_are_restored_after_removal(node: TestNode) -> None:
    """Below 1280 bytes the kernel takes IPv6 off a link; with the old size it comes back, with settings by default."""
    paths = {f"net/ipv6/conf/nic0/{name}": value for name, value in (("hop_limit", "33"), ("accept_dad", "-1"))}
    sysctl.write_all(node.host.namespace.fd, paths)
    node.run("ip", "address", "add", "fd00:7::1/64", "dev", "nic0", "nodad")
    before = node.picture("nic0")
    pod = in_pod(node, "nic0")
    ip(node, pod, "link", "set", "nic0", "mtu", "68")
    assert node.lifecycle.detach("uid-1") == []
    assert pictures.differences(before, node.picture("nic0")) == []


def test_qdisc_of_the_administrator_is_restored(node: TestNode) -> None:
    """The kernel forgets disciplines with every move."""
    node.run("tc", "qdisc", "replace", "dev", "nic0", "root", "pfifo", "limit", "33")
    node.run("tc", "qdisc", "add", "dev", "nic0", "clsact")
    before = node.picture("nic0")
    pod = in_pod(node, "nic0")
    node.run("tc", "qdisc", "replace", "dev", "nic0", "root", "pfifo", "limit", "5", where=pod)
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


def test_foreign_qdiscs_are_removed(node: TestNode) -> None:
    before = node.picture("nic0")
    node.lifecycle.set_up(node.plan("nic0"))
    nic = node.link("nic0")
    limit = codec.u32(0, 5)[4:]
    node.host.route.request(
        tc.replace_qdisc(tc.Qdisc(index=nic.index, parent=tc.ROOT, handle=0x10000, kind="pfifo", options=limit))
    )
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


# Impostors and hiding places.

IMPOSTORS = [
    attacks.impostor_by_mac,
    attacks.impostor_by_name,
    attacks.impostor_by_index,
    attacks.impostor_with_temporary_name,
]


@pytest.mark.parametrize("impostor", IMPOSTORS, ids=lambda act: act.__name__)
def test_impostor_link_stays_in_the_pod(node: TestNode, impostor: Act) -> None:
    before = node.picture("nic0")
    pod = in_pod(node, "nic0")
    made = run_attack(pod, impostor)
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before
    assert node.names() == {"nic0", "nic1"}
    assert {name for name in made if not name.startswith("p")} <= node.names(pod)


def run_attack(pod: Namespace, act: Act) -> set[str]:
    """Do it from inside; the names that the pod made for itself."""

    def work() -> set[str]:
        with NetlinkSocket() as route:
            prey = PodNetwork(route, random.Random(1), ("nic0", "nic1"), Path("/nowhere"), own_root=False)
            act(prey)
            return prey.made

    return pod.run(work)


def test_nic_with_changed_name_mac_and_index_is_found(node: TestNode) -> None:
    before = node.picture("nic0")
    pod = in_pod(node, "nic0")
    run_attack(pod, attacks.impostor_by_index)
    run_attack(pod, attacks_on_settings.mac)
    assert node.lifecycle.detach("uid-1") == []
    assert node.picture("nic0") == before


def test_nic_in_a_foreign_namespace_is_fetched(node: TestNode) -> None:
    before = node.picture("nic0")
    pod = in_pod(node, "nic0")
    with kept_elsewhere(node, pod, "nic0"):
        assert node.lifecycle.detach("uid-1") == []
        assert node.picture("nic0") == before


@contextmanager
def kept_elsewhere(node: TestNode, pod: Namespace, nic: str) -> Iterator[None]:
    """Another process has a namespace of its own, and the pod has moved its NIC there."""
    keeper = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    try:
        while os.stat(f"/proc/{keeper.pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            pass
        ip(node, pod, "link", "set", nic, "netns", str(keeper.pid))
        yield
    finally:
        keeper.send_signal(signal.SIGKILL)
        keeper.wait()


def test_similar_link_is_not_fetched(node: TestNode) -> None:
    """Its peer has the same index, but is somewhere else."""
    nic = links.get_link(node.host.route, "nic0")
    assert nic is not None and nic.parent_index is not None
    plan = node.plan("nic0")
    node.host.route.request(links.delete(nic.index))
    with Namespace.create() as other, Namespace.create() as far, NetlinkSocket(namespace_fd=other.fd) as route:
        similar = attacks._veth("nic0", index=nic.index, peer_index=nic.parent_index, mac=nic.mac, peer_fd=far.fd)
        route.request(similar)
        problems = node.lifecycle.detach(plan.uid)
        assert problems == ["nic0 is not on this node: the kernel removed it with the pod's network namespace"]
        assert links.get_link(route, "nic0") is not None


def test_deleted_virtual_nic_does_not_block_others(node: TestNode) -> None:
    before = node.picture("nic1")
    pod = in_pod(node, "nic0", "nic1")
    ip(node, pod, "link", "delete", "nic0")
    assert node.lifecycle.detach("uid-1") == [
        "nic0 is not on this node: the kernel removed it with the pod's network namespace"
    ]
    assert node.picture("nic1") == before


def test_lost_hardware_keeps_its_claim(node: TestNode) -> None:
    """A NIC that says it is a PCI function: its netdev is somewhere as long as the function has a driver."""
    device = node.plan("nic0").devices[0]
    assert device.host_state is not None
    address = "0000:01:00.0"
    row = msgspec.structs.replace(
        device.host_state.link, kind="device", parent_device=address, permanent_mac="02:00:00:00:00:01"
    )
    found = msgspec.structs.replace(device.host_state, link=row, pci=address)
    function = node.folder / "sys/devices/pci0000:00" / address
    function.mkdir(parents=True)
    (function / "class").write_text("0x020000\n")
    (node.folder / "sys/bus/pci/devices").mkdir(parents=True)
    (node.folder / "sys/bus/pci/devices" / address).symlink_to(f"../../../devices/pci0000:00/{address}")
    node.host.sysfs_root = str(node.folder / "sys")
    reclaim(node.host, (found, device.pod_config), last_resort=True)  # no driver: it has no netdev anywhere
    (node.folder / "sys/bus/pci/drivers/e1000e").mkdir(parents=True)
    (function / "driver").symlink_to("../../../bus/pci/drivers/e1000e")
    reclaim(node.host, (found, device.pod_config), last_resort=False)
    node.host.may_rebind = False
    with pytest.raises(LinkNotFound, match=r"may not rebind it \(--rebind-lost-cards\)"):
        reclaim(node.host, (found, device.pod_config), last_resort=True)
    node.host.may_rebind = True
    with pytest.raises(LinkNotFound, match="is sysfs mounted writable"):
        reclaim(node.host, (found, device.pod_config), last_resort=True)


def test_veth_is_identified_by_its_peer(node: TestNode) -> None:
    plan = node.plan("nic0")
    found, wanted = plan.devices[0].host_state, plan.devices[0].pod_config
    assert found is not None
    pod = node.pod()
    with PodNamespace.open(pod.path) as inside:
        inside.route.request(virtual_links.create_veth("nic0", "other"))
        assert find_in_pod(inside, [(found, wanted)], node.host) == [None]
