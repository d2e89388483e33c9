"""PCI functions, RDMA devices, netdevs and NUMA nodes of a generated tree, and of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.linux import hardware
from dranet.linux.sysfs import Sysfs

NIC = "devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0"
MODALIAS = "pci:v000015B3d00001021sv000015B3sd00000041bc02sc00i00\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "sys"
    nic = root / NIC
    write(nic / "modalias", MODALIAS)
    write(nic / "numa_node", "1\n")
    write(nic / "sriov_totalvfs", "8\n")
    write(nic / "sriov_numvfs", "1\n")
    write(root / "bus/pci/drivers/mlx5_core/bind", "")
    (nic / "driver").symlink_to("../../../../../bus/pci/drivers/mlx5_core")
    (nic / "net/gpu0rdma0").mkdir(parents=True)
    ib = nic / "infiniband/mlx5_0"
    write(ib / "node_guid", "b8ce:f603:00ab:cdef\n")
    write(ib / "ports/1/state", "4: ACTIVE\n")
    write(ib / "ports/1/link_layer", "Ethernet\n")
    write(ib / "ports/1/rate", "400 Gb/sec (4X NDR)\n")
    write(ib / "ports/1/gid_attrs/ndevs/0", "gpu0rdma0\n")
    write(ib / "ports/1/gid_attrs/ndevs/1", "gpu0rdma0\n")
    (ib / "device").symlink_to("../../../0000:18:00.0")
    for name, kind in (("uverbs0", "infiniband_verbs"), ("umad0", "infiniband_mad"), ("issm0", "infiniband_mad")):
        write(root / "class" / kind / name / "ibdev", "mlx5_0\n")
    link(root, "class/infiniband/mlx5_0", f"{NIC}/infiniband/mlx5_0")
    link(root, "class/net/gpu0rdma0", f"{NIC}/net/gpu0rdma0")
    link(root, "bus/pci/devices/0000:18:00.0", NIC)
    vf = root / "devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.1"
    write(vf / "class", "0x020700\n")
    write(vf / "vendor", "0x15b3\n")
    write(vf / "device", "0x101e\n")
    write(vf / "numa_node", "-1\n")
    (vf / "physfn").symlink_to("../0000:18:00.0")
    (vf / "virtio3/net/eth7").mkdir(parents=True)
    link(root, "bus/pci/devices/0000:18:00.1", "devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.1")
    gpu = "devices/LNXSYSTM:00/VMBUS:00/47505500/pci0001:00/0001:00:00.0"
    write(root / gpu / "class", "0x030200\n")
    link(root, "bus/pci/devices/0001:00:00.0", gpu)
    (root / "devices/virtual/net/docker0").mkdir(parents=True)
    link(root, "class/net/docker0", "devices/virtual/net/docker0")
    for number, distances in enumerate(("10 21", "21 10")):
        write(root / f"devices/system/node/node{number}/distance", distances + "\n")
        write(root / f"devices/system/node/node{number}/cpulist", f"{number * 4}-{number * 4 + 2},{number + 30}\n")
    write(root / "devices/system/cpu/cpu4/topology/physical_package_id", "1\n")
    return root


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(root: Path, path: str, target: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).symlink_to("../" * path.count("/") + target)


@pytest.fixture
def sysfs(root: Path) -> Sysfs:
    return Sysfs(str(root))


def test_a_function_is_read_whole(sysfs: Sysfs) -> None:
    assert hardware.pci_function(sysfs, "0000:18:00.0") == hardware.PciFunction(
        address="0000:18:00.0",
        path=NIC,
        vendor="15b3",
        device="1021",
        subsystem_vendor="15b3",
        subsystem_device="0041",
        class_code="020000",
        driver="mlx5_core",
        numa_node=1,
        sriov_total_vfs=8,
        sriov_num_vfs=1,
        physical_function=None,
        netdevs=("gpu0rdma0",),
        rdma_devices=("mlx5_0",),
    )
    assert sysfs.problems == []


def test_a_function_without_modalias_is_read_from_its_files(sysfs: Sysfs) -> None:
    function = hardware.pci_function(sysfs, "0000:18:00.1")
    assert function is not None
    assert (function.class_code, function.vendor, function.device) == ("020700", "15b3", "101e")
    assert (function.driver, function.numa_node, function.physical_function) == (None, None, "0000:18:00.0")
    assert function.netdevs == ("eth7",)


def test_functions_are_listed_by_class_in_order(sysfs: Sysfs) -> None:
    network = hardware.pci_functions(sysfs, frozenset({"02"}))
    assert [f.address for f in network] == ["0000:18:00.0", "0000:18:00.1"]
    assert [f.address for f in hardware.pci_functions(sysfs)] == ["0000:18:00.0", "0000:18:00.1", "0001:00:00.0"]


def test_root_and_bridges_come_from_the_path(sysfs: Sysfs) -> None:
    function = hardware.pci_function(sysfs, "0000:18:00.0")
    assert function is not None
    assert function.root == "pci0000:16"
    assert function.bridges == ("0000:16:01.0", "0000:17:00.0")


def test_a_function_below_another_bus_has_no_root(sysfs: Sysfs) -> None:
    function = hardware.pci_function(sysfs, "0001:00:00.0")
    assert function is not None
    assert function.root is None


@pytest.mark.parametrize("address", ["", "../../..", "0000:18:00", "0000:18:00.9", "0000:18:00.0/.."])
def test_an_invalid_address_is_not_a_function(sysfs: Sysfs, address: str) -> None:
    assert hardware.pci_function(sysfs, address) is None


def test_netdevs_belong_to_their_pci_function_or_are_virtual(sysfs: Sysfs) -> None:
    nic, bridge = (hardware.net_device(sysfs, name) for name in ("gpu0rdma0", "docker0"))
    assert nic is not None
    assert (nic.pci_address, nic.virtual) == ("0000:18:00.0", False)
    assert bridge is not None
    assert (bridge.pci_address, bridge.virtual) == (None, True)


@pytest.mark.parametrize("name", ["nothere", "", "..", ".", "a/b", "../infiniband/mlx5_0", "a\0b"])
def test_a_name_that_is_not_a_netdev_is_none(sysfs: Sysfs, name: str) -> None:
    assert hardware.net_device(sysfs, name) is None


def test_rdma_devices_are_read_with_ports_and_character_devices(sysfs: Sysfs) -> None:
    (device,) = hardware.rdma_devices(sysfs)
    assert (device.name, device.pci_address, device.node_guid) == ("mlx5_0", "0000:18:00.0", "b8ce:f603:00ab:cdef")
    assert device.ports == (hardware.SysfsRdmaPort(1, "4: ACTIVE", "Ethernet", "400 Gb/sec (4X NDR)"),)
    assert device.char_devices == ("issm0", "umad0", "uverbs0")


def test_the_netdevs_of_an_rdma_device_are_in_its_gid_tables(sysfs: Sysfs) -> None:
    assert hardware.rdma_port_netdevs(sysfs, "mlx5_0") == ("gpu0rdma0",)
    assert hardware.rdma_port_netdevs(sysfs, "mlx5_9") == ()


def test_numa_nodes_have_distances_and_processors(sysfs: Sysfs) -> None:
    nodes = hardware.numa_nodes(sysfs)
    assert nodes == [hardware.NumaNode(0, (10, 21), (0, 1, 2, 30)), hardware.NumaNode(1, (21, 10), (4, 5, 6, 31))]
    assert hardware.cpu_package(sysfs, 4) == 1
    assert hardware.cpu_package(sysfs, 99) is None


def test_processor_lists_with_nonsense_are_read_as_far_as_they_go() -> None:
    assert hardware.cpu_list("0-1,x,7,3-") == (0, 1, 7, 3)
    assert hardware.cpu_list("") == ()


def test_an_empty_tree_has_nothing(tmp_path: Path) -> None:
    sysfs = Sysfs(str(tmp_path))
    found = (hardware.pci_functions(sysfs), hardware.rdma_devices(sysfs), hardware.numa_nodes(sysfs))
    assert found == ([], [], [])
    assert sysfs.problems == []


def test_this_machine_can_be_read() -> None:
    sysfs = Sysfs()
    assert len(hardware.pci_functions(sysfs)) == len(list(Path("/sys/bus/pci/devices").glob("*")))


def test_a_tree_without_a_bus_is_walked_and_never_in_circles(tmp_path: Path) -> None:
    bridge = tmp_path / "devices/pci0000:10/0000:10:01.0"
    (bridge / "0000:11:00.0").mkdir(parents=True)
    (bridge / "0000:11:00.1").symlink_to("..")
    (tmp_path / "devices/pci0000:20").symlink_to("pci0000:10")
    found = hardware.pci_functions(Sysfs(str(tmp_path)))
    assert [function.address for function in found] == ["0000:10:01.0", "0000:11:00.0"]
    assert {function.root for function in found} == {"pci0000:10"}
