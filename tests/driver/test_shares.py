"""What a claim may ask of a card it has a share of."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.driver.claims.allotment import Allotted, allotted
from dranet.driver.claims.shares import with_share
from dranet.inventory.sharing import shared
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.model.device import Device
from dranet.model.errors import DranetError
from dranet.model.netconfig_parse import parse

CARD = shared(
    NodeDevice(
        device=Device(
            name="card0", attributes={"dra.net/encapsulation": "ether"}, capacity={"dra.net/linkSpeed": "400G"}
        ),
        netdev=Netdev(place=Place.HERE, name="card0", index=2),
    )
)


def given(bandwidth: str, **fields: Any) -> Allotted:
    return Allotted("r", "node", "card0", "share-1", fields.get("admin", False), {"dra.net/bandwidth": bandwidth})


def test_a_share_is_a_child_and_ipvlan_where_nobody_says_which() -> None:
    assert with_share(given("100G"), CARD, parse({})).link.type == "IPVLAN"
    asked = parse({"interface": {"type": "Macvlan", "mtu": 1400}})
    assert with_share(given("100G"), CARD, asked) == asked


def test_the_whole_card_is_moved_as_ever() -> None:
    assert with_share(given("400G"), CARD, parse({})) == parse({})


def test_a_card_that_is_not_shared_is_moved() -> None:
    plain = NodeDevice(device=Device(name="card0"), netdev=Netdev(place=Place.HERE, name="card0", index=2))
    assert with_share(Allotted("r", "node", "card0", None, False), plain, parse({})) == parse({})


def test_part_of_a_card_cannot_be_moved_and_that_is_said() -> None:
    with pytest.raises(DranetError, match="100G of 400G"):
        with_share(given("100G"), CARD, parse({"interface": {"type": "Passthrough"}}))


def test_an_admin_s_look_is_no_share() -> None:
    assert with_share(given("100G", admin=True), CARD, parse({})) == parse({})


def test_what_was_consumed_is_read_from_the_claim() -> None:
    result = {
        "request": "r",
        "driver": "dra.net",
        "pool": "node",
        "device": "card0",
        "shareID": "3f0c",
        "consumedCapacity": {"dra.net/bandwidth": "100G", "dra.net/linkSpeed": "0"},
    }
    (item,) = allotted({"status": {"allocation": {"devices": {"results": [result]}}}})
    assert (item.share_id, item.consumed["dra.net/bandwidth"]) == ("3f0c", "100G")
