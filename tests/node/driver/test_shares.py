"""What a claim may ask of a NIC it has a share of."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core.device import Device
from dranet.core.errors import DranetError
from dranet.core.netconfig_parse import parse
from dranet.node.claims.allocation import AllocatedDevice, allocated_devices
from dranet.node.claims.planner import config_for_share
from dranet.node.inventory.sharing import make_shareable
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice

NIC = make_shareable(
    NodeDevice(
        device=Device(
            name="nic0", attributes={"dra.net/encapsulation": "ether"}, capacity={"dra.net/linkSpeed": "400G"}
        ),
        netdev=Netdev(location=NetdevLocation.HOST, name="nic0", index=2),
    )
)


def given(bandwidth: str, **fields: Any) -> AllocatedDevice:
    return AllocatedDevice("r", "node", "nic0", "share-1", fields.get("admin", False), {"dra.net/bandwidth": bandwidth})


def test_share_defaults_to_an_ipvlan_child() -> None:
    assert config_for_share(given("100G"), NIC, parse({})).link.type == "IPVLAN"
    asked = parse({"interface": {"type": "Macvlan", "mtu": 1400}})
    assert config_for_share(given("100G"), NIC, asked) == asked


def test_whole_nic_is_moved() -> None:
    assert config_for_share(given("400G"), NIC, parse({})) == parse({})


def test_unshared_nic_is_moved() -> None:
    plain = NodeDevice(device=Device(name="nic0"), netdev=Netdev(location=NetdevLocation.HOST, name="nic0", index=2))
    assert config_for_share(AllocatedDevice("r", "node", "nic0", None, False), plain, parse({})) == parse({})


def test_share_with_passthrough_is_refused() -> None:
    with pytest.raises(DranetError, match="100G of 400G"):
        config_for_share(given("100G"), NIC, parse({"interface": {"type": "Passthrough"}}))


def test_admin_access_is_not_a_share() -> None:
    assert config_for_share(given("100G", admin=True), NIC, parse({})) == parse({})


def test_consumed_capacity_is_read_from_the_claim() -> None:
    result = {
        "request": "r",
        "driver": "dra.net",
        "pool": "node",
        "device": "nic0",
        "shareID": "3f0c",
        "consumedCapacity": {"dra.net/bandwidth": "100G", "dra.net/linkSpeed": "0"},
    }
    (item,) = allocated_devices({"status": {"allocation": {"devices": {"results": [result]}}}})
    assert (item.share_id, item.consumed["dra.net/bandwidth"]) == ("3f0c", "100G")
