"""What a look finds on hand-made machines."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core import attributes as names
from dranet.core.errors import KernelError
from dranet.core.pciids import PciIds
from dranet.linux.addresses import Address
from dranet.linux.rdma import RdmaPort
from dranet.linux.traffic.bpf import Attachment
from dranet.linux.traffic.tc import BpfFilter
from dranet.node.inventory import Inventory, InventoryOptions, NetdevLocation, NodeDevice, Snapshot
from tests.node.inventory.conftest import Machine, World

NIC = "0000:8a:00.0"
NAME = "pci-0000-8a-00-0"


def only(snapshot: Snapshot) -> NodeDevice:
    (device,) = snapshot.devices
    return device


def reasons(snapshot: Snapshot) -> dict[str, str]:
    return {skipped.name: skipped.reason for skipped in snapshot.skipped}


def address(index: int, cidr: str) -> Address:
    local, _, prefix = cidr.partition("/")
    return Address(family=10 if ":" in local else 2, index=index, local=local, prefix=int(prefix))


# Attributes -------------------------------------------------------------------------------------------------------


def test_a_nic_is_published_with_every_attribute(machine: Machine, world: World, inventory: Inventory) -> None:
    path = machine.nic(NIC, netdevs=["gpu0rdma0"], rdma="mlx5_0", numa=1, sriov_totalvfs=8, sriov_numvfs=0)
    machine.write(f"{path}/net/gpu0rdma0/speed", 400000)
    world.link("gpu0rdma0", 7, mtu=8896, alias="rail 0", mac="02:00:00:00:8a:00")
    world.addresses_ += [address(7, "10.0.0.5/24"), address(7, "fd00::5/64"), address(7, "fe80::1/64")]
    bpf: dict[str, Any] = {
        "index": 7,
        "egress": False,
        "handle": 1,
        "info": 0,
        "chain": None,
        "program_id": 1,
        "direct_action": True,
    }
    world.classifiers_.append(BpfFilter(name="dummy_bpf.o:[classifier]", **bpf))
    world.programs_.append(Attachment(index=7, hook="tcx/ingress", program_id=2, link_id=0, name="handle_ingress"))
    device = only(inventory.scan()).device
    assert device.name == NAME
    assert device.capacity == {names.LINK_SPEED: "400G"}
    assert device.attributes == {
        "dra.net/ifName": "gpu0rdma0",
        "dra.net/mac": "02:00:00:00:8a:00",
        "dra.net/mtu": 8896,
        "dra.net/encapsulation": "ether",
        "dra.net/alias": "rail 0",
        "dra.net/state": "up",
        "dra.net/type": "device",
        "dra.net/ipv4": "10.0.0.5/24",
        "dra.net/ipv6": "fd00::5/64",
        "dra.net/tcFilterNames": "dummy_bpf.o:[classifier]",
        "dra.net/tcxProgramNames": "handle_ingress",
        "dra.net/ebpf": True,
        "dra.net/sriov": True,
        "dra.net/sriovVfs": 0,
        "dra.net/virtual": False,
        "dra.net/rail": "0",
        "dra.net/rdma": True,
        "dra.net/rdmaDevice": "mlx5_0",
        "dra.net/ibOnly": False,
        "dra.net/pciAddress": NIC,
        "dra.net/pciVendor": "Mellanox Technologies",
        "dra.net/pciDevice": "MT2910 Family [ConnectX-7]",
        "dra.net/pciSubsystem": "0023",
        "dra.net/numaNode": 1,
        "resource.kubernetes.io/numaNode": 1,
        "resource.kubernetes.io/pcieRoot": "pci0000:10",
        "resource.kubernetes.io/pciBusID": NIC,
    }


def test_a_virtual_link_is_published_under_its_own_name(world: World, inventory: Inventory) -> None:
    world.link("dummy0", 4, kind="dummy", operstate="unknown")
    device = only(inventory.scan())
    assert device.name == "dummy0"
    assert device.device.attributes["dra.net/virtual"] is True
    assert device.device.attributes["dra.net/type"] == "dummy"
    assert not device.device.capacity


def test_a_link_with_an_odd_name_is_published_under_an_encoded_one(world: World, inventory: Inventory) -> None:
    world.link("mlx5_6", 4, kind="dummy")
    device = only(inventory.scan())
    assert (device.name, device.netdev.name) == ("net-nvwhqnk7gy", "mlx5_6")


def test_a_virtual_function_has_its_own_attribute_and_names_its_physical_one(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    machine.nic("0000:8a:00.0", netdevs=["pf0"], sriov_totalvfs=8)
    path = machine.nic("0000:8a:00.1", netdevs=["vf0"])
    machine.link(f"{path}/physfn", "devices/pci0000:10/0000:8a:00.0")
    world.link("pf0", 2)
    world.link("vf0", 3)
    pf, vf = inventory.scan().devices
    assert (pf.is_vf, vf.is_vf, str(vf.pf), vf.pf_interface) == (False, True, "0000:8a:00.0", "pf0")
    assert vf.device.attributes["dra.net/isSriovVf"] is True
    assert "dra.net/isSriovVf" not in pf.device.attributes


def test_the_physical_function_may_be_the_uplink_of_its_virtual_ones(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    machine.nic("0000:8a:00.0", netdevs=["pf0"])
    path = machine.nic("0000:8a:00.1", netdevs=["vf0"])
    machine.link(f"{path}/physfn", "devices/pci0000:10/0000:8a:00.0")
    world.link("pf0", 2)
    world.link("vf0", 3)
    world.default_route(2)
    assert (only(inventory.scan()).name, only(inventory.scan()).pf_interface) == ("pci-0000-8a-00-1", "pf0")


def test_numa_nodes_can_be_a_list_nearest_first(machine: Machine, world: World, ids: PciIds) -> None:
    machine.nic(NIC, netdevs=["eth1"], numa=1)
    world.link("eth1")
    for node, distances in enumerate(("10 12 20", "12 10 12", "20 12 10")):
        machine.write(f"devices/system/node/node{node}/distance", distances)
        machine.write(f"devices/system/node/node{node}/cpulist", node)
        machine.write(f"devices/system/cpu/cpu{node}/topology/physical_package_id", 0)
    device = only(Inventory(InventoryOptions(list_attributes=True), world, pci_ids=ids).scan()).device
    assert device.attributes["resource.kubernetes.io/numaNode"] == (1, 0, 2)
    assert device.attributes["dra.net/numaNode"] == 1


def test_nodes_of_another_socket_are_not_near(machine: Machine, world: World, ids: PciIds) -> None:
    machine.nic(NIC, netdevs=["eth1"], numa=0)
    world.link("eth1")
    for node in (0, 1):
        machine.write(f"devices/system/node/node{node}/distance", "10 21" if node == 0 else "21 10")
        machine.write(f"devices/system/node/node{node}/cpulist", node)
        machine.write(f"devices/system/cpu/cpu{node}/topology/physical_package_id", node)
    device = only(Inventory(InventoryOptions(list_attributes=True), world, pci_ids=ids).scan()).device
    assert device.attributes["resource.kubernetes.io/numaNode"] == (0,)


def test_an_unknown_numa_node_is_not_published(machine: Machine, world: World, inventory: Inventory) -> None:
    machine.nic(NIC, netdevs=["eth1"], numa=-1)
    world.link("eth1")
    device = only(inventory.scan())
    assert device.numa_node is None
    assert not {"dra.net/numaNode", "resource.kubernetes.io/numaNode"} & set(device.device.attributes)


def test_where_no_pcie_root_is_shown_a_problem_says_what_to_match_instead(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    machine.nic("0101:00:00.0", below="LNXSYSTM:00/VMBUS:01/pci0101:00", rdma="mlx5_0", numa=0)
    snapshot = inventory.scan()
    assert "resource.kubernetes.io/pcieRoot" not in only(snapshot).device.attributes
    assert "numaNode" in snapshot.problems[0]


def test_devices_stand_in_the_order_of_numa_node_root_and_address(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    machine.nic("0000:05:00.0", below="pci0000:00", numa=-1, netdevs=["a"])
    machine.nic("0000:c1:00.0", below="pci0000:c0", numa=1, netdevs=["b"])
    machine.nic("0000:11:00.0", below="pci0000:10", numa=0, netdevs=["c"])
    machine.nic("0000:04:00.0", below="pci0000:20", numa=0, netdevs=["d"])
    machine.nic("0000:10:00.0", below="pci0000:10", numa=0, netdevs=["e"])
    for name in ("zz", "a", "b", "c", "d", "e"):
        world.link(name)
    order = [device.netdev.name for device in inventory.scan().devices]
    assert order == ["e", "c", "d", "b", "a", "zz"]


# What is left alone -----------------------------------------------------------------------------------------------


def test_what_belongs_to_others_is_skipped_with_a_reason(world: World, inventory: Inventory) -> None:
    world.link("lo", 1, flags=0x49, encapsulation="loopback")
    world.link("docker0", kind="bridge")
    world.link("cilium_host", kind="veth")
    world.link("veth1234", kind="veth")
    snapshot = inventory.scan()
    assert snapshot.devices == ()
    assert "loopback" in reasons(snapshot)["lo"]
    assert "a bridge" in reasons(snapshot)["docker0"]
    assert "belongs to Cilium" in reasons(snapshot)["cilium_host"]
    assert "filter" in reasons(snapshot)["veth1234"]


@pytest.mark.parametrize("driver", [None, "vfio-pci", "igb_uio"])
def test_a_nic_without_a_network_driver_is_skipped(machine: Machine, inventory: Inventory, driver: str | None) -> None:
    machine.nic(NIC, driver=driver)
    snapshot = inventory.scan()
    assert snapshot.devices == ()
    assert (driver or "no kernel driver") in reasons(snapshot)[NIC]


def test_a_nic_with_nothing_to_give_is_skipped(machine: Machine, inventory: Inventory) -> None:
    machine.nic(NIC)
    snapshot = inventory.scan()
    assert snapshot.devices == ()
    assert "neither a network interface nor an RDMA device" in reasons(snapshot)[NIC]


def test_the_virtual_nic_of_the_host_machine_a_node_is_not_offered(machine: Machine, inventory: Inventory) -> None:
    path = machine.nic(NIC, driver="virtio-pci")
    (machine.root / path / "virtio2/net").mkdir(parents=True)
    snapshot = inventory.scan()
    assert snapshot.devices == ()
    assert "the machine that runs this node" in reasons(snapshot)[NIC]


def test_an_uplink_nic_is_not_offered_under_any_name(machine: Machine, world: World, inventory: Inventory) -> None:
    machine.nic(NIC, netdevs=["eth0"], rdma="mlx5_0")
    world.link("eth0", 2)
    world.default_route(2)
    snapshot = inventory.scan()
    assert snapshot.devices == ()
    assert "uplink" in reasons(snapshot)["eth0"]


def test_uplinks_are_worked_out_at_every_scan(machine: Machine, world: World, inventory: Inventory) -> None:
    world.link("eth0", 2)
    world.link("eth1", 3)
    world.default_route(2)
    assert only(inventory.scan()).name == "eth1"
    world.routes_.clear()
    world.default_route(3)
    assert only(inventory.scan()).name == "eth0"


def test_a_netdev_on_something_else_than_a_network_nic_is_skipped(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    path = machine.nic("0000:00:14.0", below="pci0000:00", pci_class="0c0330", driver="xhci_hcd")
    machine.netdev(f"{path}/usb1/1-1", "enx0")
    world.link("enx0")
    assert "not a network device" in reasons(inventory.scan())["enx0"]


def test_the_filter_sees_what_would_be_published(machine: Machine, world: World, ids: PciIds) -> None:
    machine.nic(NIC, netdevs=["eth1"])
    world.link("eth1")
    world.link("dummy0", kind="dummy")
    options = InventoryOptions(filter='attributes["dra.net/virtual"].BoolValue == false')
    snapshot = Inventory(options, world, pci_ids=ids).scan()
    assert only(snapshot).name == NAME
    assert "filter" in reasons(snapshot)["dummy0"]


def test_gpus_are_neighbours_and_never_published(machine: Machine, inventory: Inventory) -> None:
    machine.nic("0000:8f:00.0", pci_class="030200", ids=("10de", "2901", "0000"), driver="nvidia", numa=1)
    machine.nic("0000:90:00.0", pci_class="120000", ids=("1002", "74a1", "0000"), driver="amdgpu", below="pci0000:90")
    snapshot = inventory.scan()
    assert snapshot.devices == ()
    assert [(str(g.pci), g.vendor, g.product, g.numa_node, g.pcie_root) for g in snapshot.gpus] == [
        ("0000:8f:00.0", "10de", "2901", 1, "pci0000:10"),
        ("0000:90:00.0", "1002", "74a1", 0, "pci0000:90"),
    ]


# RDMA -------------------------------------------------------------------------------------------------------------


def test_an_infiniband_nic_without_netdev_is_rdma_only(machine: Machine, inventory: Inventory) -> None:
    path = machine.nic(NIC)
    machine.rdma(path, "mlx5_0", layer="InfiniBand", **{"ports/1/rate": "400 Gb/sec (4X NDR)"})
    device = only(inventory.scan())
    assert device.rdma_only
    assert device.device.attributes["dra.net/ibOnly"] is True
    assert device.device.capacity == {names.LINK_SPEED: "400G"}
    assert "dra.net/ifName" not in device.device.attributes


def test_an_erdma_nic_is_found_although_it_does_not_call_itself_a_network_nic(
    machine: Machine, inventory: Inventory
) -> None:
    machine.nic("0000:00:0b.0", pci_class="00ff00", driver="erdma", ids=("1ded", "107f", "0000"), rdma="erdma_0")
    assert only(inventory.scan()).rdma_device == "erdma_0"


def test_an_ipoib_netdev_is_a_netdev_like_any_other(machine: Machine, world: World, inventory: Inventory) -> None:
    path = machine.nic(NIC, netdevs=["ib0"])
    machine.rdma(path, "mlx5_0", layer="InfiniBand")
    world.link("ib0", kind="ipoib", encapsulation="infiniband", mac="00:00:10:29:fe:80" + ":00" * 14)
    device = only(inventory.scan())
    assert (device.netdev.location, device.rdma_device, device.rdma_only) == (NetdevLocation.HOST, "mlx5_0", False)


def test_ipoib_netdevs_may_stay_and_leave_an_rdma_only_nic(machine: Machine, world: World, ids: PciIds) -> None:
    path = machine.nic(NIC, netdevs=["ib0"])
    machine.rdma(path, "mlx5_0", layer="InfiniBand")
    world.link("ib0", kind="ipoib", encapsulation="infiniband")
    snapshot = Inventory(InventoryOptions(move_ib_interfaces=False), world, pci_ids=ids).scan()
    assert only(snapshot).rdma_only
    assert "--move-ib-interfaces=false" in reasons(snapshot)["ib0"]


def test_rdma_netlink_decides_which_of_two_devices_belongs_to_a_link(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    path = machine.nic(NIC, netdevs=["eth1"], rdma="mlx5_0")
    machine.rdma(path, "mlx5_1")
    world.link("eth1", 5)
    port: dict[str, Any] = {
        "device_index": 1,
        "number": 1,
        "state": "active",
        "physical_state": "link-up",
        "netdev": "eth1",
    }
    world.ports_.append(RdmaPort(device="mlx5_1", netdev_index=5, **port))
    assert only(inventory.scan()).rdma_device == "mlx5_1"


def test_the_guid_in_an_ipoib_address_names_its_rdma_device(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    path = machine.nic(NIC, netdevs=["ib0"], rdma="mlx5_0")
    machine.rdma(path, "mlx5_1", node_guid="1070:fd03:0001:0002")
    world.link(
        "ib0",
        kind="ipoib",
        encapsulation="infiniband",
        mac="00:00:00:67:fe:80:00:00:00:00:00:00:10:70:fd:03:00:01:00:02",
    )
    assert only(inventory.scan()).rdma_device == "mlx5_1"


def test_a_software_rdma_device_belongs_to_the_link_in_its_gid_table(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    machine.rdma("devices/virtual", "rxe0", **{"ports/1/gid_attrs/ndevs/0": "dummy0"})
    (machine.root / "devices/virtual/infiniband/rxe0/device").unlink()
    world.link("dummy0", kind="dummy")
    assert only(inventory.scan()).rdma_device == "rxe0"


def test_a_name_in_a_gid_table_of_a_nic_proves_nothing(machine: Machine, world: World, inventory: Inventory) -> None:
    """The NIC's netdev is in a pod and called eth1 there; the node has an eth1 of its own."""
    path = machine.nic(NIC)
    (machine.root / path / "net").mkdir()
    machine.rdma(path, "mlx5_0", **{"ports/1/gid_attrs/ndevs/0": "eth1"})
    world.link("eth1", kind="dummy")
    found = {device.name: device.rdma_device for device in inventory.scan().devices}
    assert found == {NAME: "mlx5_0", "eth1": None}


# Several netdevs on one function ----------------------------------------------------------------------------------


def test_two_ports_on_one_function_do_not_hide_each_other(machine: Machine, world: World, inventory: Inventory) -> None:
    path = machine.nic(NIC, rdma="mlx4_0")
    machine.netdev(path, "p2", dev_port=1)
    machine.netdev(path, "p1", dev_port=0)
    world.link("p2", 2)
    world.link("p1", 3)
    found = {device.name: device.netdev.name for device in inventory.scan().devices}
    assert found == {NAME: "p1", "p2": "p2"}
    second = inventory.scan().find("p2")
    assert second is not None and second.device.attributes["dra.net/pciAddress"] == NIC


def test_a_sub_function_has_the_rdma_device_next_to_it(machine: Machine, world: World, inventory: Inventory) -> None:
    path = machine.nic(NIC, netdevs=["eth1"], rdma="mlx5_0")
    machine.netdev(f"{path}/mlx5_core.sf.4", "eth9")
    machine.rdma(f"{path}/mlx5_core.sf.4", "mlx5_4")
    world.link("eth9", 2)
    world.link("eth1", 3)
    found = {device.name: device.rdma_device for device in inventory.scan().devices}
    assert found == {NAME: "mlx5_0", "eth9": "mlx5_4"}


def test_representors_are_switch_ports_and_not_nics(machine: Machine, world: World, inventory: Inventory) -> None:
    path = machine.nic(NIC)
    machine.netdev(path, "eth1_0", phys_port_name="pf0vf0")
    machine.netdev(path, "eth1", phys_port_name="p0")
    world.link("eth1_0", 2)
    world.link("eth1", 3)
    snapshot = inventory.scan()
    assert only(snapshot).netdev.name == "eth1"
    assert "virtual function" in reasons(snapshot)["eth1_0"]


# Trouble ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["addresses", "classifiers", "programs", "rdma_ports"])
def test_a_part_of_the_kernel_that_refuses_costs_that_part_only(
    world: World, inventory: Inventory, question: str
) -> None:
    world.link("dummy0", kind="dummy")
    world.broken.add(question)
    snapshot = inventory.scan()
    assert only(snapshot).name == "dummy0"
    assert snapshot.problems == (f"cannot tell {question}",)


@pytest.mark.parametrize("question", ["links", "wide_routes", "rules"])
def test_without_links_routes_or_rules_there_is_no_scan(world: World, inventory: Inventory, question: str) -> None:
    world.broken.add(question)
    with pytest.raises(KernelError, match=question):
        inventory.scan()


def test_two_links_that_would_share_a_name_are_reported_apart(world: World, inventory: Inventory) -> None:
    world.link("eth:0", 2, kind="dummy")
    world.link("net-mv2gqorq", 3, kind="dummy")
    snapshot = inventory.scan()
    assert only(snapshot).netdev.name == "eth:0"
    assert "another device has the name" in reasons(snapshot)["net-mv2gqorq"]


def test_equal_worlds_give_equal_snapshots(machine: Machine, world: World, inventory: Inventory) -> None:
    machine.nic(NIC, netdevs=["eth1"], rdma="mlx5_0")
    world.link("eth1")
    world.link("dummy0", kind="dummy")
    first = inventory.scan()
    world.links_.reverse()
    assert inventory.scan() == first
