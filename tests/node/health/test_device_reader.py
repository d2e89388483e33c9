"""One reading of NICs on a generated sysfs: hidden values stay unknown."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dranet.linux import hardware
from dranet.linux.pci import LinkState, acs_control
from dranet.linux.sysfs import Sysfs
from dranet.node.health.device_reader import DeviceLocation, DeviceReader, OpenFiles
from dranet.node.health.readings import DeviceReading

SWITCH = "devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0"
NIC, GPU = f"{SWITCH}/0000:c2:00.0/0000:c3:00.0", f"{SWITCH}/0000:c2:01.0/0000:c4:00.0"


def config(redirects: bool) -> bytes:
    """A configuration space with access control as the second extended capability."""
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", space, 0x148, 0x000D | 1 << 16, 0x1F, 0x1D if redirects else 0x11)
    return bytes(space)


class Tree:
    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, **files: object) -> None:
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            target = folder / name
            target.write_bytes(value) if isinstance(value, bytes) else target.write_text(f"{value}\n")

    def function(self, path: str, kind: str, **files: object) -> None:
        self.write(path, **{"class": kind, "vendor": "0x15b3", "device": "0x1021", **files})
        link = self.root / "bus/pci/devices" / path.rpartition("/")[2]
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / path)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A GPU and a NIC behind one switch."""
    made = Tree(tmp_path)
    speed = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
    for path in (SWITCH.rpartition("/")[0], SWITCH, NIC.rpartition("/")[0], GPU.rpartition("/")[0]):
        made.function(path, "0x060400", **speed, current_link_width=16, max_link_width=16, config=config(False))
    made.function(NIC, "0x020000", **speed, current_link_width=16, max_link_width=16)
    made.function(GPU, "0x030200")
    made.write("class/net/rdma0", flags="0x1003", speed=400000, mtu=4200, carrier_changes=2)
    made.write("class/infiniband/mlx5_0", fw_ver="28.39.1002")
    made.write("class/infiniband/mlx5_0/ports/1", link_layer="Ethernet", rate="400 Gb/sec (4X NDR)")
    made.write("class/infiniband/mlx5_0/ports/1/counters", symbol_error=3, link_downed=1)
    made.write("class/infiniband/mlx5_0/ports/1/hw_counters", rnr_nak_retry_err=0)
    made.write("class/infiniband/mlx5_0/ports/1/gids", **{"0": "0000:0000:0000:0000:0000:ffff:0a00:0407"})
    made.write("class/infiniband/mlx5_0/ports/1/gid_attrs/types", **{"0": "RoCE v2"})
    made.write("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs", **{"0": "rdma0"})
    return made


def look(tree: Tree, interface: str = "rdma0", addresses: tuple[str, ...] = ("10.0.4.7",)) -> DeviceReading:
    sysfs = Sysfs(str(tree.root))
    functions = {f.address: f for f in hardware.pci_functions(sysfs, frozenset({"02", "03"}))}
    nic = DeviceLocation("nic", functions["0000:c3:00.0"], interface, "mlx5_0", addresses)
    files = OpenFiles()
    try:
        return DeviceReader(sysfs, nic, files, [functions["0000:c4:00.0"]]).read(5.0)
    finally:
        files.close()


def test_everything_the_kernel_tells_is_in_the_reading(tree: Tree) -> None:
    reading = look(tree)
    assert (reading.is_up, reading.speed_mbps, reading.mtu, reading.carrier_changes) == (True, 400_000, 4200, 2)
    assert (reading.pcie, reading.pcie_max) == (LinkState(32.0, 16), LinkState(32.0, 16))
    assert (reading.firmware, reading.has_gid, reading.model) == ("28.39.1002", True, "15b3:1021")
    assert reading.counters == {"symbol_error": 3, "link_downed": 1, "rnr_nak_retry_err": 0}
    assert reading.gpudirect_obstacle == ""


def test_the_slot_limits_what_a_nic_can_do(tree: Tree) -> None:
    tree.write(NIC.rpartition("/")[0], max_link_width=8)
    assert look(tree).pcie_max == LinkState(32.0, 8)


@pytest.mark.parametrize("nonsense", [{"current_link_width": 0}, {"current_link_speed": "Unknown"}])
def test_a_machine_that_hides_its_links_reports_nothing_of_them(tree: Tree, nonsense: dict[str, object]) -> None:
    tree.write(NIC, **nonsense)
    assert look(tree).pcie is None


def test_an_address_without_its_gid_is_seen(tree: Tree) -> None:
    assert look(tree, addresses=("10.0.4.8",)).has_gid is False


def test_infiniband_has_no_gids_by_address(tree: Tree) -> None:
    tree.write("class/infiniband/mlx5_0/ports/1", link_layer="InfiniBand")
    assert look(tree).has_gid is None


def test_a_nic_whose_interface_is_out_of_reach_shows_its_hardware_and_its_port_s_rate_only(tree: Tree) -> None:
    reading = look(tree, interface="")
    assert (reading.mtu, reading.has_gid, reading.speed_mbps) == (None, None, 400_000)
    assert reading.pcie == LinkState(32.0, 16)


def test_a_redirecting_port_between_nic_and_gpu_is_named(tree: Tree) -> None:
    tree.write(GPU.rpartition("/")[0], config=config(True))
    obstacle = "bridge 0000:c2:01.0 redirects traffic with the GPU 0000:c4:00.0 through the CPU (ACS)"
    assert look(tree).gpudirect_obstacle == obstacle


def test_a_redirecting_port_that_both_are_below_does_not_matter(tree: Tree) -> None:
    tree.write(SWITCH, config=config(True))
    assert look(tree).gpudirect_obstacle == ""


def in_groups(tree: Tree, **groups: int) -> None:
    for path, number in ((NIC, groups["nic"]), (GPU, groups["gpu"])):
        (tree.root / path / "iommu_group").symlink_to(f"../../../../../../kernel/iommu_groups/{number}")


def hide_access_control(tree: Tree) -> None:
    for path in (NIC, GPU):
        tree.write(path.rpartition("/")[0], config=bytes(64))


def test_where_access_control_is_hidden_different_iommu_groups_tell_the_same(tree: Tree) -> None:
    hide_access_control(tree)
    in_groups(tree, nic=12, gpu=15)
    assert look(tree).gpudirect_obstacle == "IOMMU group 12 separates it from the GPU 0000:c4:00.0 in IOMMU group 15"


def test_one_iommu_group_keeps_nothing_apart(tree: Tree) -> None:
    hide_access_control(tree)
    in_groups(tree, nic=12, gpu=12)
    assert look(tree).gpudirect_obstacle == ""


def test_what_access_control_says_itself_counts_before_iommu_groups(tree: Tree) -> None:
    in_groups(tree, nic=12, gpu=15)
    assert look(tree).gpudirect_obstacle == ""


def test_a_proprietary_gpu_driver_without_a_module_for_peer_memory_is_named(tree: Tree) -> None:
    tree.write(GPU, vendor="0x10de")
    tree.write("module/nvidia", taint="POE")
    assert "nvidia_peermem is not loaded" in look(tree).gpudirect_obstacle


@pytest.mark.parametrize("module", ["nvidia_peermem", "nv_peer_mem", "efa_nv_peermem"])
def test_any_module_for_peer_memory_will_do(tree: Tree, module: str) -> None:
    tree.write(GPU, vendor="0x10de")
    tree.write("module/nvidia", taint="POE")
    tree.write(f"module/{module}", refcnt=1)
    assert look(tree).gpudirect_obstacle == ""


def test_the_open_gpu_driver_lends_memory_by_itself(tree: Tree) -> None:
    tree.write(GPU, vendor="0x10de")
    tree.write("module/nvidia", taint="OE")
    assert look(tree).gpudirect_obstacle == ""


def test_a_configuration_space_that_points_to_itself_ends() -> None:
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x0001 | 0x100 << 20)
    assert acs_control(bytes(space)) is None


def test_sixty_four_bytes_are_all_an_ordinary_user_sees(tree: Tree) -> None:
    assert acs_control(bytes(64)) is None


def test_a_counter_that_the_driver_keeps_itself_is_read_there(tree: Tree) -> None:
    """Soft-RoCE: the port's own files are there, and answer with errors."""
    tree.write("class/infiniband/mlx5_0/ports/1/hw_counters", link_downed=9)
    found = look(tree).counters
    assert (found["link_downed"], found["symbol_error"]) == (9, 3)
