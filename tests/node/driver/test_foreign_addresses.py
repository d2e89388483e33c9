"""A claim cannot take an address of the node, of a gateway, or of another claim on the same NIC."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core.attributes import BANDWIDTH, LINK_SPEED
from dranet.core.device import Device, SharePolicy
from dranet.core.errors import InvalidInput
from dranet.core.netconfig_parse import parse
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice
from dranet.node.records.plan import ClaimPlan

from .conftest import TestNode


def child(address: str = "10.1.0.50/24", **interface: Any) -> dict[str, Any]:
    return {"interface": {"type": "Macvlan", "addresses": [address], **interface}}


def share(
    node: TestNode, number: int, config: dict[str, Any], *others: ClaimPlan, device: NodeDevice | None = None
) -> ClaimPlan:
    consumed = {BANDWIDTH: "10M"} if device else {}
    item = AllocatedDevice("r", "node", "nic0", f"share-{number}", False, consumed)
    request = DeviceRequest(item, device or node.device("nic0"), parse(config))
    return node.put_plan([request], uid=f"uid-{number}", pod=f"pod-{number}", others=others)


@pytest.mark.parametrize("address", ["10.1.0.1/24", "10.1.0.1/32", "10.2.0.1/24", "fd00:1::1/64", "fd00:1:0::0:1/64"])
def test_child_cannot_take_an_address_of_the_node(node: TestNode, address: str) -> None:
    with pytest.raises(InvalidInput, match=r"interface\.addresses\[0\].* is an address of this node"):
        share(node, 1, child(address))


def test_child_cannot_take_the_address_of_a_gateway(node: TestNode) -> None:
    node.run("ip", "route", "add", "default", "via", "10.1.0.254")
    with pytest.raises(InvalidInput, match=r"10\.1\.0\.254 is a gateway of this node"):
        share(node, 1, child("10.1.0.254/24"))


def test_child_cannot_take_an_address_of_another_claim(node: TestNode) -> None:
    first = share(node, 1, child("10.1.0.50/24"))
    with pytest.raises(InvalidInput, match=r"10\.1\.0\.50 is an address of another claim on this NIC"):
        share(node, 2, child("10.1.0.50/32"), first)
    share(node, 3, child("10.1.0.51/24"), first)


def test_moved_nic_keeps_its_addresses_and_takes_no_others(node: TestNode) -> None:
    node.plan("nic0", config={"interface": {"addresses": ["10.1.0.1/24"]}})
    with pytest.raises(InvalidInput, match=r"10\.2\.0\.1 is an address of this node"):
        node.plan("nic0", config={"interface": {"addresses": ["10.2.0.1/24"]}})


def test_nics_of_separate_networks_may_have_equal_addresses(node: TestNode) -> None:
    config = {"interface": {"addresses": ["192.168.7.7/24"]}}
    first = node.plan("nic0", config=config)
    node.plan("nic1", config=config, uid="uid-2", pod_uid="pod-2", others=[first])


def test_hardware_address_of_node_or_neighbour_is_refused(node: TestNode) -> None:
    node.run("ip", "neigh", "add", "10.1.0.254", "lladdr", "02:aa:bb:cc:dd:ee", "dev", "nic0", "nud", "reachable")
    with pytest.raises(InvalidInput, match=r"02:aa:bb:cc:dd:ee is the address of neighbour 10\.1\.0\.254"):
        share(node, 1, child(hardwareAddr="02-AA-BB-CC-DD-EE"))
    for name in ("nic0", "nic1"):
        with pytest.raises(InvalidInput, match=f"is the address of {name}"):
            share(node, 1, child(hardwareAddr=node.link(name).mac))
    node.plan("nic0", config={"interface": {"hardwareAddr": node.link("nic0").mac}})


def test_hardware_address_of_a_child_is_compared_in_one_form(node: TestNode) -> None:
    first = share(node, 1, child("10.1.0.51/24", hardwareAddr="02-00-00-00-00-AB"))
    with pytest.raises(InvalidInput, match="already has 02:00:00:00:00:ab"):
        share(node, 2, child("10.1.0.52/24", hardwareAddr="0200.0000.00ab"), first)


def test_passthru_needs_the_whole_device(node: TestNode) -> None:
    published = Device(
        name="nic0",
        capacity={BANDWIDTH: "100M", LINK_SPEED: "100M"},
        shares={BANDWIDTH: SharePolicy(default="100M", least="10M", step="10M")},
    )
    nic = node.link("nic0")
    seen = NodeDevice(device=published, netdev=Netdev(location=NetdevLocation.HOST, name="nic0", index=nic.index))
    config = child(macvlan={"mode": "Passthru"})
    with pytest.raises(InvalidInput, match=r"macvlan\.mode.*needs the whole device, not a share"):
        share(node, 1, config, device=seen)
    share(node, 2, config)
