"""Where a device's netdev is, what a device in use looks like, and what counts as a fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dranet.node.inventory import FaultKind, Inventory, InventoryOptions, NetdevLocation, NodeDevice, Snapshot
from tests.node.inventory.conftest import Machine, World

NIC = "0000:8a:00.0"
NAME = "pci-0000-8a-00-0"


def only(snapshot: Snapshot) -> NodeDevice:
    (device,) = snapshot.devices
    return device


def reasons(snapshot: Snapshot) -> dict[str, str]:
    return {skipped.name: skipped.reason for skipped in snapshot.skipped}


# Here, elsewhere, none --------------------------------------------------------------------------------------------


def roce(machine: Machine, *, state: str = "4: ACTIVE") -> None:
    path = machine.nic(NIC)
    machine.rdma(path, "mlx5_0", state=state)
    (machine.root / path / "net").mkdir()


def test_a_netdev_in_another_namespace_does_not_make_its_nic_rdma_only(machine: Machine, inventory: Inventory) -> None:
    roce(machine)
    device = only(inventory.scan())
    assert (device.netdev.location, device.rdma_only) == (NetdevLocation.OTHER_NETNS, False)
    assert device.device.attributes["dra.net/ibOnly"] is False
    assert [fault.kind for fault in device.faults] == [FaultKind.NETDEV_ELSEWHERE]


def test_a_nic_of_the_infiniband_class_whose_ports_say_nothing_is_rdma_only_where_ipoib_stays(
    machine: Machine, world: World, ids: Any
) -> None:
    path = machine.nic(NIC, pci_class="020700", netdevs=["ib0"], rdma=None)
    machine.rdma(path, "mlx5_0", layer="", state="")
    world.link("ib0", 5, kind="ipoib", encapsulation="infiniband")
    device = only(Inventory(InventoryOptions(move_ib_interfaces=False), world, pci_ids=ids).scan())
    assert (device.netdev.location, device.rdma_only) == (NetdevLocation.NONE, True)


def test_a_nic_in_use_keeps_its_record_and_is_elsewhere(machine: Machine, world: World, inventory: Inventory) -> None:
    path = machine.nic(NIC, netdevs=["eth1"], rdma="mlx5_0")
    world.link("eth1", 5)
    before = only(inventory.scan())
    world.links_.clear()
    (machine.root / "class/net/eth1").unlink()
    (machine.root / path / "net/eth1").rmdir()
    during = only(inventory.scan(lambda: {NAME: before}))
    assert during.device == before.device
    assert (during.netdev.location, during.netdev.name, during.faults) == (NetdevLocation.OTHER_NETNS, "eth1", ())
    assert not during.rdma_only


def test_a_nic_in_use_keeps_its_record_when_its_rdma_device_moved_too(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    path = machine.nic(NIC)
    machine.rdma(path, "mlx5_0", layer="InfiniBand")
    before = only(inventory.scan())
    (machine.root / "class/infiniband/mlx5_0").unlink()
    during = only(inventory.scan(lambda: {NAME: before}))
    assert during == before
    assert during.rdma_only


def test_a_prepared_nic_that_is_still_here_is_published_as_it_was(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    machine.nic(NIC, netdevs=["eth1"])
    world.link("eth1", 5)
    before = only(inventory.scan())
    world.links_[:] = []
    world.link("eth1", 5, flags=0x1002, operstate="down", mtu=9000)
    during = only(inventory.scan(lambda: {NAME: before}))
    assert during.device == before.device
    assert during.netdev.location is NetdevLocation.HOST


@pytest.mark.parametrize("answers", [[0, 1], [1, 0]], ids=["claimed", "given back"])
def test_a_nic_that_changes_its_claim_during_the_scan_is_published_as_it_was(
    world: World, inventory: Inventory, answers: list[int]
) -> None:
    world.link("dummy0", 5, kind="dummy", mtu=1500)
    before = only(inventory.scan())
    world.links_[:] = []
    world.link("dummy0", 5, kind="dummy", mtu=1400)
    assert only(inventory.scan(lambda: {"dummy0": before} if answers.pop(0) else {})).device == before.device
    assert not answers


def test_a_virtual_link_in_a_pod_stays_published(world: World, inventory: Inventory) -> None:
    world.link("dummy0", 5, kind="dummy")
    before = only(inventory.scan())
    world.links_.clear()
    during = only(inventory.scan(lambda: {"dummy0": before}))
    assert (during.device, during.netdev.location) == (before.device, NetdevLocation.OTHER_NETNS)


def test_a_new_link_of_the_same_name_is_not_the_one_in_the_pod(world: World, inventory: Inventory) -> None:
    world.link("dummy0", 5, kind="dummy")
    before = only(inventory.scan())
    world.links_.clear()
    world.link("dummy0", 6, kind="dummy")
    assert only(inventory.scan(lambda: {"dummy0": before})).netdev.location is NetdevLocation.OTHER_NETNS


def test_a_device_in_use_is_kept_whatever_the_filter_says(world: World, inventory: Inventory) -> None:
    world.link("veth1", 5, kind="veth")
    held = msgspec.structs.replace(only(Inventory(InventoryOptions(filter=""), world).scan()))
    assert only(inventory.scan(lambda: {"veth1": held})).device == held.device


def test_a_record_survives_a_restart(machine: Machine, world: World, inventory: Inventory) -> None:
    machine.nic(NIC, netdevs=["eth1"], rdma="mlx5_0", numa=1)
    world.link("eth1", 5)
    device = only(inventory.scan())
    raw = msgspec.json.decode(msgspec.json.encode(device.to_record()))
    assert NodeDevice.from_record(raw) == device


# Faults -----------------------------------------------------------------------------------------------------------


def faults(snapshot: Snapshot) -> list[FaultKind]:
    return [fault.kind for fault in only(snapshot).faults]


def test_a_nic_that_is_on_without_carrier_is_at_fault(machine: Machine, world: World, inventory: Inventory) -> None:
    machine.nic(NIC, netdevs=["eth1"])
    world.link("eth1", operstate="down")
    assert faults(inventory.scan()) == [FaultKind.LINK_DOWN]


def test_a_nic_that_nobody_switched_on_is_not_at_fault(machine: Machine, world: World, inventory: Inventory) -> None:
    machine.nic(NIC, netdevs=["eth1"], rdma=None)
    world.link("eth1", operstate="down", flags=0x1002)
    assert faults(inventory.scan()) == []


def test_virtual_links_are_never_at_fault(world: World, inventory: Inventory) -> None:
    world.link("dummy1", kind="dummy", operstate="down")
    assert faults(inventory.scan()) == []


def test_an_infiniband_port_that_is_not_active_is_a_fault(machine: Machine, inventory: Inventory) -> None:
    machine.rdma(machine.nic(NIC), "mlx5_0", layer="InfiniBand", state="1: DOWN")
    snapshot = inventory.scan()
    assert faults(snapshot) == [FaultKind.RDMA_PORT_DOWN]
    assert only(snapshot).faults[0].detail == "mlx5_0: port 1 is DOWN"
    assert only(snapshot).device.capacity == {}


def test_an_rdma_port_over_ethernet_follows_its_link(machine: Machine, world: World, inventory: Inventory) -> None:
    path = machine.nic(NIC, netdevs=["eth1"])
    machine.rdma(path, "mlx5_0", state="1: DOWN")
    world.link("eth1", flags=0x1002, operstate="down")
    assert faults(inventory.scan()) == []


def test_a_nic_in_use_that_lost_its_driver_stays_with_a_fault(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    path = machine.nic(NIC, netdevs=["eth1"])
    world.link("eth1", 5)
    before = only(inventory.scan())
    (machine.root / path / "driver").unlink()
    world.links_.clear()
    snapshot = inventory.scan(lambda: {NAME: before})
    assert faults(snapshot) == [FaultKind.DRIVER_UNBOUND]
    assert reasons(snapshot) == {}


def test_a_nic_in_use_that_left_the_bus_stays_with_a_fault(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    machine.nic(NIC, netdevs=["eth1"])
    world.link("eth1", 5)
    before = only(inventory.scan())
    (machine.root / "bus/pci/devices" / NIC).unlink()
    world.links_.clear()
    assert faults(inventory.scan(lambda: {NAME: before})) == [FaultKind.DEVICE_GONE]


def test_a_folder_that_is_no_sysfs_is_a_problem_as_text(world: World, inventory: Inventory, tmp_path: Path) -> None:
    world.root = tmp_path / "empty"
    world.root.mkdir()
    assert inventory.scan().problems == (
        f"{world.root} has no bus, class or devices folder; check that sysfs is mounted there",
    )
