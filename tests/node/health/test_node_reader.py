"""NICs where they are: on the node in a made sysfs, and in a pod in the real one of its network namespace."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dranet.core.device import Device, FaultKind
from dranet.core.pci import PciAddress
from dranet.linux import links, virtual_links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.node.health.node_reader import ClaimedDevice, NodeReader
from dranet.node.inventory import Netdev, NetdevLocation, NodeDevice, Snapshot
from tests.node.health.test_device_reader import NIC, Tree

pytestmark = pytest.mark.usefixtures("may_make_namespaces")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.function(NIC, "0x020000")
    return made


def device(place: NetdevLocation = NetdevLocation.OTHER_NETNS) -> Snapshot:
    nic = NodeDevice(
        device=Device(name="nic"), netdev=Netdev(location=place, name="rdma0"), pci=PciAddress.find("0000:c3:00.0")
    )
    return Snapshot(devices=(nic,))


def put(pod: Namespace, *, up: bool, peer_up: bool) -> None:
    with NetlinkSocket(namespace_fd=pod.fd) as route:
        route.request(virtual_links.create_veth("net1", "far"))
        for name, wanted in (("net1", up), ("far", peer_up)):
            link = links.get_link(route, name)
            assert link is not None
            route.request(links.change(link.index, mtu=1432, up=wanted))
        # The kernel tells a carrier some time after it has answered.
        while up and peer_up and not _is_up(route):
            time.sleep(0.01)


def _is_up(route: NetlinkSocket) -> bool:
    link = links.get_link(route, "net1")
    return link is not None and link.operstate == "up"


def held(pod: Namespace) -> dict[str, ClaimedDevice]:
    return {"nic": ClaimedDevice("claim-1", f"/proc/self/fd/{pod.fd}", "net1")}


def test_a_nic_in_a_pod_is_read_in_its_namespace(tree: Tree) -> None:
    reader = NodeReader(str(tree.root))
    with Namespace.create() as pod:
        put(pod, up=True, peer_up=True)
        (found,) = reader(device(), held(pod))
        assert (found.interface, found.mtu, found.is_up, found.claim) == ("net1", 1432, True, "claim-1")
        assert found.carrier_changes is not None and found.known_faults == ()
        assert set(found.traffic) == {"rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"}
    reader.close()


def test_a_nic_in_a_pod_that_is_on_without_carrier_is_at_fault(tree: Tree) -> None:
    reader = NodeReader(str(tree.root))
    with Namespace.create() as pod:
        put(pod, up=True, peer_up=False)
        (found,) = reader(device(), held(pod))
        assert [fault for fault, _ in found.known_faults] == [FaultKind.LINK_DOWN]
    reader.close()


def test_a_nic_whose_pod_switched_it_off_is_not_at_fault(tree: Tree) -> None:
    reader = NodeReader(str(tree.root))
    with Namespace.create() as pod:
        put(pod, up=False, peer_up=True)
        (found,) = reader(device(), held(pod))
        assert found.known_faults == ()
    reader.close()


def test_an_interface_that_comes_after_the_first_scan_is_seen_at_the_next(tree: Tree) -> None:
    reader = NodeReader(str(tree.root))
    with Namespace.create() as pod:
        (found,) = reader(device(), held(pod))
        assert found.mtu is None
        put(pod, up=True, peer_up=True)
        (found,) = reader(device(), held(pod))
        assert found.mtu == 1432
    reader.close()


def test_a_pod_that_is_gone_leaves_the_nic_s_hardware(tree: Tree) -> None:
    (found,) = NodeReader(str(tree.root))(device(), {"nic": ClaimedDevice("claim-1", "/nowhere/net", "net1")})
    assert (found.interface, found.mtu, found.model) == ("", None, "15b3:1021")


def test_a_reader_does_not_keep_a_pod_s_namespace_alive(tree: Tree) -> None:
    reader = NodeReader(str(tree.root))
    with Namespace.create() as node, NetlinkSocket(namespace_fd=node.fd) as route:
        with Namespace.create() as pod:
            route.request(virtual_links.create_veth("here", "net1", peer_namespace_fd=pod.fd))
            (found,) = reader(device(), held(pod))
            assert found.mtu is not None
        for _ in range(6000):  # the kernel clears one namespace away after the other, and other tests have some, too
            if links.get_link(route, "here") is None:
                break
            time.sleep(0.01)
        assert links.get_link(route, "here") is None, "its namespace lives on, and the veth's other end with it"
    reader.close()
