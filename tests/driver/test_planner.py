"""Plans come from the machine as it is at that moment, not as it was when the driver started."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.planner import Wish
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.kernel import links
from dranet.model.device import Device
from dranet.model.errors import InvalidInput
from dranet.model.netconfig import NetworkConfig
from dranet.model.netconfig_parse import parse
from dranet.model.pci import PciAddress
from dranet.sandbox.sysfs_tree import write_sysfs
from dranet.topology.shape import load_shape
from tests.driver.conftest import TestNode


def test_an_rdma_device_that_came_after_the_driver_brings_its_character_devices(
    new_node: Callable[[], TestNode],
) -> None:
    node = new_node()
    found = NodeDevice(device=Device(name="ib0"), netdev=Netdev(place=Place.NONE), rdma_device="mlx5_0")
    wish = Wish(Allotted("nic", "n", "ib0", None, False), found, NetworkConfig())
    (before,) = node.planner.plan([wish])
    assert before.rdma is not None
    assert before.rdma.char_devices == ()
    write_sysfs(load_shape("nd-gb300-v6"), node.folder)
    folder = node.folder / "dev/infiniband"
    folder.mkdir(parents=True)
    os.mknod(folder / "uverbs0", stat.S_IFCHR | 0o666, os.makedev(0, 0))
    (after,) = node.planner.plan([wish])
    assert after.rdma is not None
    assert [entry.path for entry in after.rdma.char_devices] == ["/dev/infiniband/uverbs0"]


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({"interface": {"type": "IPVLAN"}}, "interface.type"),
        ({"interface": {"addressing": "DHCP"}}, "interface.addressing"),
        ({"interface": {"type": "IPVLAN", "ipvlan": {"mode": "L2"}}}, "interface.ipvlan"),
        ({"interface": {"vrf": {"name": "blue"}}}, "interface.vrf"),
        ({"interface": {"forwarding": False}}, "interface.forwarding"),
        ({"interface": {"acceptRA": 0}}, "interface.acceptRA"),
        ({"routes": [{"destination": "10.0.0.0/8", "scope": 253}]}, "routes"),
    ],
)
def test_nothing_that_needs_an_interface_can_be_asked_of_an_rdma_device_without_one(
    new_node: Callable[[], TestNode], config: dict[str, Any], path: str
) -> None:
    found = NodeDevice(device=Device(name="ib0"), netdev=Netdev(place=Place.NONE), rdma_device="mlx5_0")
    wish = Wish(Allotted("nic", "n", "ib0", None, False), found, parse(config))
    with pytest.raises(InvalidInput, match=rf"{path}: cannot be set: this device is RDMA only"):
        new_node().planner.plan([wish])


def wish_for(node: TestNode, name: str = "card0", **changes: Any) -> Wish:
    found = msgspec.structs.replace(node.device(name), **changes)
    return Wish(Allotted("nic", "n", name, None, False), found, NetworkConfig())


def is_up(node: TestNode, name: str) -> bool:
    link = links.get_link(node.host.route, name)
    return link is not None and link.is_up


def test_a_card_that_became_a_port_of_a_bridge_is_refused_and_stays_up(node: TestNode) -> None:
    wish = wish_for(node)
    node.run("ip", "link", "add", "br0", "type", "bridge")
    node.run("ip", "link", "set", "card0", "master", "br0")
    with pytest.raises(InvalidInput, match="card0 stays: it is part of br0 now"):
        node.planner.plan([wish])
    assert is_up(node, "card0")
    (plan,) = node.planner.plan([wish_for(node, insisted=True)])
    assert plan.found is not None and plan.found.link.name == "card0"


def test_a_bridge_is_refused_before_it_is_taken_down_even_when_the_operator_insists(node: TestNode) -> None:
    node.run("ip", "link", "add", "cni0", "type", "bridge")
    node.run("ip", "link", "set", "cni0", "up")
    found = NodeDevice(device=Device(name="cni0"), netdev=Netdev(place=Place.HERE, name="cni0"), insisted=True)
    wish = Wish(Allotted("nic", "n", "cni0", None, False), found, NetworkConfig())
    with pytest.raises(InvalidInput, match="cni0 stays: it is a bridge and cannot leave"):
        node.planner.plan([wish])
    assert is_up(node, "cni0")


def test_a_card_that_others_came_to_stand_on_is_refused(node: TestNode) -> None:
    """Which sysfs shows, of the node's own namespace; this tree is hand-made."""
    (node.folder / "class/net/card0/upper_flannel.1").mkdir(parents=True)
    with pytest.raises(InvalidInput, match=r"card0 stays: flannel\.1 use it now"):
        node.planner.plan([wish_for(node)])
    node.planner.plan([wish_for(node, insisted=True)])


def test_a_card_that_was_given_virtual_functions_is_refused(node: TestNode) -> None:
    folder = node.folder / "bus/pci/devices/0000:8a:00.0"
    folder.mkdir(parents=True)
    (folder / "sriov_numvfs").write_text("4\n")
    with pytest.raises(InvalidInput, match="card0 stays: the card has virtual functions now"):
        node.planner.plan([wish_for(node, pci=PciAddress.find("0000:8a:00.0"))])
