"""Cards that can be shared: what is published, and that nothing changes where nobody asked."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.inventory import Inventory, Options, Snapshot
from dranet.inventory.pciids import PciIds
from dranet.inventory.sharing import is_whole
from dranet.model.device import Device

EVERY = "true"


def look(machine: Any, world: Any, ids: PciIds, expression: str, speed: object = 400_000, **link: Any) -> Snapshot:
    path = machine.card("0000:c1:00.0", netdevs=["rdma0"])
    machine.write(f"{path}/net/rdma0/speed", speed)
    world.link("rdma0", **link)
    return Inventory(Options(shared_cards=expression), world, pci_ids=ids).look()


def card(snapshot: Snapshot) -> dict[str, Any]:
    (device,) = snapshot.published
    return device.to_api()


def test_a_shared_card_gives_all_of_itself_to_who_names_no_share(machine: Any, world: Any, ids: PciIds) -> None:
    found = card(look(machine, world, ids, EVERY))
    assert found["allowMultipleAllocations"] is True
    assert found["capacity"]["dra.net/bandwidth"] == {
        "value": "400G",
        "requestPolicy": {"default": "400G", "validRange": {"min": "1G", "step": "1G"}},
    }


def test_the_speed_of_its_link_is_not_used_up(machine: Any, world: Any, ids: PciIds) -> None:
    found = card(look(machine, world, ids, EVERY))
    assert found["capacity"]["dra.net/linkSpeed"]["requestPolicy"] == {"default": "0", "validRange": {"min": "0"}}


def test_without_the_flag_a_slice_is_as_it_was(machine: Any, world: Any, ids: PciIds) -> None:
    found = card(look(machine, world, ids, ""))
    assert "allowMultipleAllocations" not in found
    assert found["capacity"] == {"dra.net/linkSpeed": {"value": "400G"}}


@pytest.mark.parametrize(
    ("expression", "is_shared"),
    [
        ('attributes["dra.net/ifName"].StringValue == "rdma0"', True),
        ('attributes["dra.net/ifName"].StringValue == "rdma1"', False),
        ('attributes["dra.net/nothing"].StringValue == "x"', False),
    ],
)
def test_the_expression_says_which_and_an_error_in_it_shares_nothing(
    machine: Any, world: Any, ids: PciIds, expression: str, is_shared: bool
) -> None:
    assert ("allowMultipleAllocations" in card(look(machine, world, ids, expression))) is is_shared


@pytest.mark.parametrize("unfit", [{"speed": -1}, {"encapsulation": "infiniband"}])
def test_what_has_no_known_speed_or_is_no_ethernet_is_not_shared(
    machine: Any, world: Any, ids: PciIds, unfit: dict[str, Any]
) -> None:
    assert "allowMultipleAllocations" not in card(look(machine, world, ids, EVERY, **unfit))


@pytest.mark.parametrize(
    ("megabits", "step"),
    [(400_000, "1G"), (25_000, "100M"), (2_500, "10M"), (1_000, "10M"), (100, "1M"), (54_200, "100M")],
)
def test_the_whole_card_is_a_number_of_steps(machine: Any, world: Any, ids: PciIds, megabits: int, step: str) -> None:
    policy = card(look(machine, world, ids, EVERY, megabits))["capacity"]["dra.net/bandwidth"]["requestPolicy"]
    assert policy["validRange"] == {"min": step, "step": step}


def test_a_shared_device_reads_back_as_it_was_published(machine: Any, world: Any, ids: PciIds) -> None:
    (device,) = look(machine, world, ids, EVERY).published
    assert Device.from_api(device.to_api()) == device


@pytest.mark.parametrize(
    ("consumed", "whole"),
    [({"dra.net/bandwidth": "400G"}, True), ({"dra.net/bandwidth": "100G"}, False), ({}, True)],
)
def test_who_was_given_all_of_it_has_the_card_to_itself(
    machine: Any, world: Any, ids: PciIds, consumed: dict[str, str], whole: bool
) -> None:
    (device,) = look(machine, world, ids, EVERY).published
    assert is_whole(device, consumed) is whole


@pytest.mark.parametrize(("expression", "capacity"), [("", {}), (EVERY, {"dra.net/bandwidth", "dra.net/linkSpeed"})])
def test_a_link_without_a_card_has_a_speed_only_where_it_is_shared(
    machine: Any, world: Any, ids: PciIds, expression: str, capacity: Any
) -> None:
    machine.write("devices/virtual/net/bond7/speed", 20_000)
    machine.link("class/net/bond7", "devices/virtual/net/bond7")
    world.link("bond7", kind="dummy")
    found = card(Inventory(Options(shared_cards=expression), world, pci_ids=ids).look())
    assert set(found.get("capacity", {})) == set(capacity)
