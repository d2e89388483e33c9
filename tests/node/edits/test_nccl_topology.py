"""NCCL's topology file for a pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dranet.linux.sysfs import Sysfs
from dranet.node.edits.nccl_topology import topology_file

SWITCH = "pci0000:e0/0000:e0:01.0/0000:e1:00.0"
RECORDED = Path(__file__).parents[2] / "data" / "nccl-h200"
"""Recorded on a machine with a GPU (tests/device/nccl_topology.py): our files, and NCCL's dumps with them."""
GPU, NIC, FAR = "0000:e3:00.0", "0000:e4:00.0", "0000:11:00.1"


class Machine:
    """A sysfs with the PCI functions that a test adds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for node, mask in enumerate(("00000000,0000ffff", "00000000,ffff0000")):
            folder = root / f"devices/system/node/node{node}"
            folder.mkdir(parents=True)
            (folder / "cpumap").write_text(f"{mask}\n")

    def add(self, path: str, code: str = "060400", numa: int = 0, **values: str) -> None:
        folder = self.root / "devices" / path
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"class": f"0x{code}", "vendor": "0x15b3", "device": "0x1021", "numa_node": str(numa)}
        facts |= {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", **values}
        for name, value in facts.items():
            (folder / name).write_text(f"{value}\n")
        bus = self.root / "bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / folder.name).symlink_to(f"../../../devices/{path}")

    def add_switch(self, vendor: str = "0x15b3", device: str = "0x1021") -> None:
        for path in (SWITCH.rpartition("/")[0], SWITCH, f"{SWITCH}/0000:e2:00.0", f"{SWITCH}/0000:e2:01.0"):
            self.add(path, vendor=vendor, device=device)

    @property
    def sysfs(self) -> Sysfs:
        return Sysfs(str(self.root))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def behind_a_switch(machine: Machine) -> Sysfs:
    machine.add_switch()
    machine.add(f"{SWITCH}/0000:e2:00.0/{GPU}", "030200", vendor="0x10de", device="0x2335")
    machine.add(f"{SWITCH}/0000:e2:01.0/{NIC}", "020000", max_link_width="8")
    machine.add("pci0000:10", numa=1)
    machine.add("pci0000:10/0000:10:01.0", numa=1)
    machine.add(f"pci0000:10/0000:10:01.0/{FAR}", "020000", numa=1)
    return machine.sysfs


def outline(element: ElementTree.Element) -> list[Any]:
    """Elements by what names them; a NIC's `nic` element has no name of its own and is left out."""
    inner = [grandchild for child in element for grandchild in (child if child.tag == "nic" else [child])]
    return [
        [one.get("busid") or one.get("numaid") or one.get("name"), *outline(one)] for one in inner if one.tag != "gpu"
    ]


def read(content: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(content)


def test_gpu_and_nic_share_the_switch_that_nccl_finds(machine: Machine) -> None:
    content, missing = topology_file(behind_a_switch(machine), {NIC: "mlx5_0", GPU: ""})
    assert missing == []
    assert outline(read(content)) == [["0", ["0000:e1:00.0", [GPU], [NIC, ["mlx5_0"]]]]]


def test_a_nic_of_another_numa_node_has_its_own_cpu_and_first_function(machine: Machine) -> None:
    content, _ = topology_file(behind_a_switch(machine), {FAR: "mlx5_1", GPU: ""})
    assert outline(read(content)) == [["0", ["0000:e1:00.0", [GPU]]], ["1", ["0000:11:00.0", ["mlx5_1"]]]]
    assert [cpu.get("affinity") for cpu in read(content)] == ["00000000,0000ffff", "00000000,ffff0000"]


def test_link_has_the_lower_speed_of_its_two_ends(machine: Machine) -> None:
    content, _ = topology_file(behind_a_switch(machine), {NIC: "mlx5_0"})
    (nic,) = [pci for pci in read(content).iter("pci") if pci.get("busid") == NIC]
    assert (nic.get("link_speed"), nic.get("link_width"), nic.get("class")) == ("32.0 GT/s PCIe", "8", "0x020000")


def test_virtual_function_has_the_address_of_its_physical_nic(machine: Machine) -> None:
    machine.add("pci0000:5d/0000:5d:00.0")
    machine.add("pci0000:5d/0000:5d:00.0/0000:5e:00.0", "020000")
    machine.add("pci0000:5d/0000:5d:00.0/0000:5e:01.3", "020000")
    folder = machine.root / "devices/pci0000:5d/0000:5d:00.0/0000:5e:01.3"
    (folder / "physfn").symlink_to("../0000:5e:00.0")
    content, _ = topology_file(machine.sysfs, {"0000:5e:01.3": "mlx5_9"})
    assert outline(read(content)) == [["0", ["0000:5e:00.0", ["mlx5_9"]]]]


def test_unknown_link_width_is_zero(machine: Machine) -> None:
    machine.add("pci0000:00/0000:00:06.0", "030200", numa=-1, vendor="0x10de", max_link_width="0")
    (cpu,) = read(topology_file(machine.sysfs, {"0000:00:06.0": ""})[0])
    assert (cpu.get("numaid"), cpu[0].get("link_width"), cpu[0].get("link_speed")) == ("-1", "0", "32.0 GT/s PCIe")


def test_two_ports_of_one_nic_are_two_nets_of_one_function(machine: Machine) -> None:
    machine.add("pci0000:5d/0000:5d:00.0")
    for port in (0, 1):
        machine.add(f"pci0000:5d/0000:5d:00.0/0000:5e:00.{port}", "020000")
    nets = {"0000:5e:00.0": "mlx5_0", "0000:5e:00.1": "mlx5_1"}
    content, _ = topology_file(machine.sysfs, nets)
    assert outline(read(content)) == [["0", ["0000:5e:00.0", ["mlx5_0"], ["mlx5_1"]]]]
    assert len(read(content).findall(".//nic")) == 1


def test_reports_functions_that_sysfs_does_not_show(machine: Machine) -> None:
    content, missing = topology_file(behind_a_switch(machine), {GPU: "", "0000:77:00.0": "mlx5_7"})
    assert missing == ["0000:77:00.0"]
    assert outline(read(content)) == [["0", ["0000:e1:00.0", [GPU]]]]


def is_kept(ours: ElementTree.Element, theirs: ElementTree.Element) -> bool:
    """Whether all of our element is in theirs: its attributes, and every child in its place."""
    same = ours.tag == theirs.tag and ours.attrib.items() <= theirs.attrib.items()
    return same and all(any(is_kept(child, other) for other in theirs) for child in ours)


@pytest.mark.parametrize("name", ["as-it-is", "behind-a-switch"])
def test_nccl_kept_every_element_and_value_of_recorded_files(name: str) -> None:
    ours, dump = (ElementTree.parse(RECORDED / f"{name}{end}.xml").getroot() for end in ("", "-dump"))
    assert is_kept(ours, dump)
    assert [pci.get("busid") for pci in dump.iter("pci") if pci.find("gpu") is not None] == ["0000:00:06.0"]
    assert [net.get("name") for net in dump.findall(".//pci/nic/net")] == ["eth0"]
    assert dump.findall("cpu/nic") == []


def test_writes_the_recorded_file(machine: Machine) -> None:
    (machine.root / "devices/system/node/node0/cpumap").write_text("ffff\n")
    machine.add_switch(vendor="0x1000", device="0xc030")
    machine.add(f"{SWITCH}/0000:e2:00.0/0000:00:06.0", "030200", vendor="0x10de", device="0x2335")
    machine.add(f"{SWITCH}/0000:e2:01.0/{NIC}", "020000")
    content, _ = topology_file(machine.sysfs, {"0000:00:06.0": "", NIC: "eth0"})
    assert content == (RECORDED / "behind-a-switch.xml").read_bytes()
