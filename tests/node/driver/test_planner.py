"""Plans come from the machine as it is at that moment, not as it was when the driver started."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dranet.core.device import Device
from dranet.core.errors import InvalidInput
from dranet.core.netconfig import NetworkConfig
from dranet.core.netconfig_parse import parse
from dranet.core.pci import PciAddress
from dranet.linux import links
from dranet.machines.shape import load_shape
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice
from dranet.testing.sysfs_tree import write_sysfs
from tests.node.driver.conftest import TestNode


def test_rdma_device_added_later_has_character_devices(
    new_node: Callable[[], TestNode],
) -> None:
    node = new_node()
    found = NodeDevice(device=Device(name="ib0"), netdev=Netdev(location=NetdevLocation.NONE), rdma_device="mlx5_0")
    request = DeviceRequest(AllocatedDevice("nic", "n", "ib0", None, False), found, NetworkConfig())
    (before,) = node.planner.plan([request])
    assert before.rdma is not None
    assert before.rdma.char_devices == ()
    write_sysfs(load_shape("nd-gb300-v6"), node.folder)
    folder = node.folder / "dev/infiniband"
    folder.mkdir(parents=True)
    os.mknod(folder / "uverbs0", stat.S_IFCHR | 0o666, os.makedev(0, 0))
    (after,) = node.planner.plan([request])
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
def test_rdma_only_device_refuses_interface_settings(
    new_node: Callable[[], TestNode], config: dict[str, Any], path: str
) -> None:
    found = NodeDevice(device=Device(name="ib0"), netdev=Netdev(location=NetdevLocation.NONE), rdma_device="mlx5_0")
    request = DeviceRequest(AllocatedDevice("nic", "n", "ib0", None, False), found, parse(config))
    with pytest.raises(InvalidInput, match=rf"{path}: cannot be set: this device is RDMA only"):
        new_node().planner.plan([request])


def request_for(node: TestNode, name: str = "nic0", **changes: Any) -> DeviceRequest:
    found = msgspec.structs.replace(node.device(name), **changes)
    return DeviceRequest(AllocatedDevice("nic", "n", name, None, False), found, NetworkConfig())


def is_up(node: TestNode, name: str) -> bool:
    link = links.get_link(node.host.route, name)
    return link is not None and link.is_up


def test_bridge_port_is_refused_and_stays_up(node: TestNode) -> None:
    request = request_for(node)
    node.run("ip", "link", "add", "br0", "type", "bridge")
    node.run("ip", "link", "set", "nic0", "master", "br0")
    with pytest.raises(InvalidInput, match="nic0: it is now a port of br0"):
        node.planner.plan([request])
    assert is_up(node, "nic0")
    (plan,) = node.planner.plan([request_for(node, offered_explicitly=True)])
    assert plan.host_state is not None and plan.host_state.link.name == "nic0"


def test_bridge_is_refused_even_if_offered_explicitly(node: TestNode) -> None:
    node.run("ip", "link", "add", "cni0", "type", "bridge")
    node.run("ip", "link", "set", "cni0", "up")
    found = NodeDevice(
        device=Device(name="cni0"), netdev=Netdev(location=NetdevLocation.HOST, name="cni0"), offered_explicitly=True
    )
    request = DeviceRequest(AllocatedDevice("nic", "n", "cni0", None, False), found, NetworkConfig())
    with pytest.raises(InvalidInput, match="cni0: it is a bridge and cannot leave"):
        node.planner.plan([request])
    assert is_up(node, "cni0")


def test_nic_with_upper_links_is_refused(node: TestNode) -> None:
    """Which sysfs shows, of the node's own namespace; this tree is hand-made."""
    (node.folder / "class/net/nic0/upper_flannel.1").mkdir(parents=True)
    with pytest.raises(InvalidInput, match=r"nic0: flannel\.1 now use it"):
        node.planner.plan([request_for(node)])
    node.planner.plan([request_for(node, offered_explicitly=True)])


def test_nic_with_virtual_functions_is_refused(node: TestNode) -> None:
    folder = node.folder / "bus/pci/devices/0000:8a:00.0"
    folder.mkdir(parents=True)
    (folder / "sriov_numvfs").write_text("4\n")
    with pytest.raises(InvalidInput, match="nic0: it now has virtual functions"):
        node.planner.plan([request_for(node, pci=PciAddress.find("0000:8a:00.0"))])
