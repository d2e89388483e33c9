"""Shareable NICs: what is published, and that nothing changes without the flag."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core.device import Device
from dranet.core.pciids import PciIds
from dranet.node.inventory import Inventory, InventoryOptions, Snapshot
from dranet.node.inventory.sharing import consumes_whole_device
from tests.node.inventory.conftest import Machine, World

EVERY = "true"


def scan(
    machine: Machine, world: World, ids: PciIds, expression: str, speed: object = 400_000, **link: Any
) -> Snapshot:
    path = machine.nic("0000:c1:00.0", netdevs=["rdma0"])
    machine.write(f"{path}/net/rdma0/speed", speed)
    world.link("rdma0", **link)
    return Inventory(InventoryOptions(shared_nics=expression), world, pci_ids=ids).scan()


def nic(snapshot: Snapshot) -> dict[str, Any]:
    (device,) = snapshot.published
    return device.to_api()


def test_a_shared_nic_gives_all_of_itself_to_who_names_no_share(machine: Machine, world: World, ids: PciIds) -> None:
    found = nic(scan(machine, world, ids, EVERY))
    assert found["allowMultipleAllocations"] is True
    assert found["capacity"]["dra.net/bandwidth"] == {
        "value": "400G",
        "requestPolicy": {"default": "400G", "validRange": {"min": "1G", "step": "1G"}},
    }


def test_the_speed_of_its_link_is_not_used_up(machine: Machine, world: World, ids: PciIds) -> None:
    found = nic(scan(machine, world, ids, EVERY))
    assert found["capacity"]["dra.net/linkSpeed"]["requestPolicy"] == {"default": "0", "validRange": {"min": "0"}}


def test_without_the_flag_a_slice_is_as_it_was(machine: Machine, world: World, ids: PciIds) -> None:
    found = nic(scan(machine, world, ids, ""))
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
    machine: Machine, world: World, ids: PciIds, expression: str, is_shared: bool
) -> None:
    assert ("allowMultipleAllocations" in nic(scan(machine, world, ids, expression))) is is_shared


@pytest.mark.parametrize("unfit", [{"speed": -1}, {"encapsulation": "infiniband"}])
def test_what_has_no_known_speed_or_is_no_ethernet_is_not_shared(
    machine: Machine, world: World, ids: PciIds, unfit: dict[str, Any]
) -> None:
    assert "allowMultipleAllocations" not in nic(scan(machine, world, ids, EVERY, **unfit))


@pytest.mark.parametrize(
    ("megabits", "step"),
    [(400_000, "1G"), (25_000, "100M"), (2_500, "10M"), (1_000, "10M"), (100, "1M"), (54_200, "100M")],
)
def test_the_whole_nic_is_a_number_of_steps(
    machine: Machine, world: World, ids: PciIds, megabits: int, step: str
) -> None:
    policy = nic(scan(machine, world, ids, EVERY, megabits))["capacity"]["dra.net/bandwidth"]["requestPolicy"]
    assert policy["validRange"] == {"min": step, "step": step}


def test_a_shared_device_reads_back_as_it_was_published(machine: Machine, world: World, ids: PciIds) -> None:
    (device,) = scan(machine, world, ids, EVERY).published
    assert Device.from_api(device.to_api()) == device


@pytest.mark.parametrize(
    ("consumed", "whole"),
    [({"dra.net/bandwidth": "400G"}, True), ({"dra.net/bandwidth": "100G"}, False), ({}, True)],
)
def test_who_was_given_all_of_it_has_the_nic_to_itself(
    machine: Machine, world: World, ids: PciIds, consumed: dict[str, str], whole: bool
) -> None:
    (device,) = scan(machine, world, ids, EVERY).published
    assert consumes_whole_device(device, consumed) is whole


@pytest.mark.parametrize(("expression", "capacity"), [("", {}), (EVERY, {"dra.net/bandwidth", "dra.net/linkSpeed"})])
def test_a_link_without_a_nic_has_a_speed_only_where_it_is_shared(
    machine: Machine, world: World, ids: PciIds, expression: str, capacity: Any
) -> None:
    machine.write("devices/virtual/net/bond7/speed", 20_000)
    machine.link("class/net/bond7", "devices/virtual/net/bond7")
    world.link("bond7", kind="dummy")
    found = nic(Inventory(InventoryOptions(shared_nics=expression), world, pci_ids=ids).scan())
    assert set(found.get("capacity", {})) == set(capacity)
