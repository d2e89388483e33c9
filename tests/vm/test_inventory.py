"""The inventory of the guest equals what its hardware was built with."""

from pathlib import Path

import pytest

from dranet.core import attributes
from dranet.linux.hardware import numa_nodes, pci_function
from dranet.linux.sysfs import Sysfs
from dranet.machines.distance import Distance, Position, distance
from dranet.node.inventory import FaultKind, NetdevLocation
from dranet.testing.waiting import wait_until
from tests.vm.machine import (
    CHIPSET_NIC,
    E1000E_NODE0,
    E1000E_SWITCH,
    LINKLESS_FUNCTION,
    NICS,
    NUMA_DISTANCE,
    SRIOV_NODE1,
    SRIOV_TOTAL_VFS,
    STAND_IN_GPU,
    VIRTIO_NODE0,
    VIRTIO_NODE1,
    Nic,
)
from tests.vm.parts import found_at, name_at, scan
from tests.vm.world import VFS, NamedNamespace, SoftRoce, cable_pulled, has_link, netdev_of, tool

Pair = tuple[SoftRoce, SoftRoce]


@pytest.mark.parametrize("nic", NICS, ids=lambda nic: nic.address)
def test_a_nic_is_where_it_was_plugged_in(nic: Nic) -> None:
    device = found_at(nic.address)
    own = device.device.attributes
    assert (own[attributes.MAC], own[attributes.PCI_ADDRESS]) == (nic.mac, nic.address)
    assert own[attributes.PCIE_ROOT] == nic.pcie_root
    assert own.get(attributes.STANDARD_NUMA_NODE) == own.get(attributes.NUMA_NODE) == nic.numa_node


def test_every_nic_and_nothing_else_is_offered() -> None:
    offered = [str(device.pci) for device in scan().devices]
    assert sorted(offered) == sorted(nic.address for nic in NICS)


def test_nics_of_one_node_and_root_stand_together() -> None:
    order = [(device.numa_node, device.pcie_root) for device in scan().devices]
    expected = sorted(((c.numa_node, c.pcie_root) for c in NICS if c is not CHIPSET_NIC), key=str)
    assert order == [*expected, (None, CHIPSET_NIC.pcie_root)]


def test_numa_distances_are_those_of_the_machine() -> None:
    assert [node.distances for node in numa_nodes(Sysfs())] == [(10, NUMA_DISTANCE), (NUMA_DISTANCE, 10)]


def test_the_display_controller_is_a_gpu_of_node_1() -> None:
    (gpu,) = scan().gpus
    assert (str(gpu.pci), gpu.numa_node, gpu.pcie_root) == (STAND_IN_GPU, 1, "pci0000:a0")


@pytest.mark.parametrize(
    ("nic", "expected"),
    [(E1000E_SWITCH, Distance.PIX), (VIRTIO_NODE1, Distance.NODE), (E1000E_NODE0, Distance.SYS)],
    ids=["behind the same switch", "same node, other root", "other node"],
)
def test_the_distance_from_the_gpu_follows_the_wiring(nic: Nic, expected: Distance) -> None:
    assert distance(where(STAND_IN_GPU), where(nic.address)) is expected


def test_two_nics_of_one_root_meet_at_its_host_bridge() -> None:
    assert distance(where(E1000E_NODE0.address), where(VIRTIO_NODE0.address)) is Distance.PHB


def where(address: str) -> Position:
    function = pci_function(Sysfs(), address)
    assert function is not None
    return Position(function.path, function.root, function.numa_node)


def test_an_sriov_nic_says_what_it_can_and_what_it_has(virtual_functions: list[str]) -> None:
    own = found_at(SRIOV_NODE1.address, scan(offer=(SRIOV_NODE1.address,))).device.attributes
    assert (own[attributes.SRIOV], own[attributes.SRIOV_VFS]) == (True, VFS)
    function = pci_function(Sysfs(), SRIOV_NODE1.address)
    assert function is not None
    assert function.sriov_total_vfs == SRIOV_TOTAL_VFS


def test_a_physical_function_with_live_virtual_ones_is_not_offered(virtual_functions: list[str]) -> None:
    snapshot = scan()
    assert snapshot.find(name_at(SRIOV_NODE1.address)) is None
    skipped = {entry.name: entry.reason for entry in snapshot.skipped}
    assert f"{VFS} virtual functions" in skipped[netdev_of(SRIOV_NODE1)]


def test_a_virtual_function_knows_its_physical_one_and_shares_its_place(virtual_functions: list[str]) -> None:
    snapshot = scan()
    for address in virtual_functions:
        device = found_at(address, snapshot)
        assert device.is_vf
        assert str(device.pf) == SRIOV_NODE1.address
        assert device.pf_interface == netdev_of(SRIOV_NODE1)
        assert (device.numa_node, device.pcie_root) == (SRIOV_NODE1.numa_node, SRIOV_NODE1.pcie_root)
        assert device.device.attributes[attributes.IS_SRIOV_VF] is True


def test_an_rdma_device_is_found_on_its_nic_and_on_no_other(soft_roce: Pair) -> None:
    snapshot = scan()
    found = {str(d.pci): d.rdma_device for d in snapshot.devices if d.rdma_device}
    assert found == {made.nic.address: made.device for made in soft_roce}
    flags = {str(d.pci): d.device.attributes[attributes.RDMA] for d in snapshot.devices}
    assert {address for address, flag in flags.items() if flag} == set(found)


def test_a_function_with_rdma_and_no_link_is_an_rdma_only_device(rdma_only_nic: str) -> None:
    device = found_at(LINKLESS_FUNCTION)
    assert (device.rdma_device, device.rdma_only, device.netdev.location) == (rdma_only_nic, True, NetdevLocation.NONE)
    assert device.device.attributes[attributes.IB_ONLY] is True
    assert attributes.IF_NAME not in device.device.attributes


def test_a_nic_whose_link_went_elsewhere_is_no_rdma_only_device(soft_roce: Pair, pod: NamedNamespace) -> None:
    made = soft_roce[1]
    tool("ip", "link", "set", made.netdev, "netns", pod.name)
    device = found_at(made.nic.address)
    assert (device.netdev.location, device.rdma_only) == (NetdevLocation.OTHER_NETNS, False)
    assert [fault.kind for fault in device.faults] == [FaultKind.NETDEV_ELSEWHERE]


def test_a_nic_in_use_stays_published_as_it_was(exclusive_mode: None, soft_roce: Pair, pod: NamedNamespace) -> None:
    made = soft_roce[1]
    before = found_at(made.nic.address)
    tool("rdma", "dev", "set", made.device, "netns", pod.name)
    tool("ip", "link", "set", made.netdev, "netns", pod.name)
    after = scan(in_use={before.name: before}).find(before.name)
    assert after is not None
    assert (after.device, after.rdma_device) == (before.device, before.rdma_device)


def test_a_nic_without_carrier_has_a_fault_until_the_cable_is_back() -> None:
    def faults() -> list[FaultKind]:
        return [fault.kind for fault in found_at(E1000E_NODE0.address).faults]

    tool("ip", "link", "set", netdev_of(E1000E_NODE0), "up")
    try:
        wait_until(lambda: faults() == [], "the carrier")
        with cable_pulled(E1000E_NODE0):
            wait_until(lambda: faults() == [FaultKind.LINK_DOWN], "the fault")
        wait_until(lambda: faults() == [], "the carrier to come back")
    finally:
        tool("ip", "link", "set", netdev_of(E1000E_NODE0), "down")


def test_a_pulled_nic_leaves_and_a_nic_in_use_is_kept_with_a_fault() -> None:
    before = found_at(VIRTIO_NODE0.address)
    folder = Path("/sys/bus/pci/devices") / VIRTIO_NODE0.address
    (folder / "remove").write_text("1")
    try:
        assert scan().find(before.name) is None
        held = scan(in_use={before.name: before}).find(before.name)
        assert held is not None
        assert [fault.kind for fault in held.faults] == [FaultKind.DEVICE_GONE]
    finally:
        Path("/sys/bus/pci/rescan").write_text("1")
        wait_until(lambda: has_link(VIRTIO_NODE0.address), "the NIC to come back")
    assert found_at(VIRTIO_NODE0.address).device.attributes[attributes.MAC] == VIRTIO_NODE0.mac
