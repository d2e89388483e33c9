"""NCCL's topology file for a pod: the walk of NCCL itself, the values of sysfs, and only what the pod has."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from dranet.kernel.sysfs import Sysfs
from dranet.podfacts.nccl_topology import topology_file

SWITCH = "pci0000:e0/0000:e0:01.0/0000:e1:00.0"
RECORDED = Path(__file__).parents[1] / "data" / "nccl-h200"
"""What was tried on a machine with a GPU (tests/device/nccl_topology.py): our files, and NCCL's dumps with them."""
GPU, CARD, FAR = "0000:e3:00.0", "0000:e4:00.0", "0000:11:00.1"


@pytest.fixture
def machine(tmp_path: Path):
    """Adds functions by path: a sysfs with as much of PCI as the file needs."""

    def add(path: str, code: str = "060400", numa: int = 0, **values: str) -> None:
        place = tmp_path / "devices" / path
        place.mkdir(parents=True, exist_ok=True)
        facts = {"class": f"0x{code}", "vendor": "0x15b3", "device": "0x1021", "numa_node": str(numa)}
        facts |= {"max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", **values}
        for name, value in facts.items():
            (place / name).write_text(f"{value}\n")
        bus = tmp_path / "bus/pci/devices"
        bus.mkdir(parents=True, exist_ok=True)
        (bus / place.name).symlink_to(f"../../../devices/{path}")

    for node, mask in enumerate(("00000000,0000ffff", "00000000,ffff0000")):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpumap").write_text(f"{mask}\n")
    add.root = tmp_path
    return add


def behind_a_switch(machine) -> Sysfs:
    for path in (SWITCH.rpartition("/")[0], SWITCH, f"{SWITCH}/0000:e2:00.0", f"{SWITCH}/0000:e2:01.0"):
        machine(path)
    machine(f"{SWITCH}/0000:e2:00.0/{GPU}", "030200", vendor="0x10de", device="0x2335")
    machine(f"{SWITCH}/0000:e2:01.0/{CARD}", "020000", max_link_width="8")
    machine("pci0000:10", numa=1)
    machine("pci0000:10/0000:10:01.0", numa=1)
    machine(f"pci0000:10/0000:10:01.0/{FAR}", "020000", numa=1)
    return Sysfs(str(machine.root))


def outline(element: ElementTree.Element) -> list:
    """Elements by what names them; a card's `nic` has no name of its own and is left out."""
    inner = [grandchild for child in element for grandchild in (child if child.tag == "nic" else [child])]
    return [
        [one.get("busid") or one.get("numaid") or one.get("name"), *outline(one)] for one in inner if one.tag != "gpu"
    ]


def read(content: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(content)


def test_gpu_and_card_meet_at_the_switch_that_nccl_would_find(machine):
    content, missing = topology_file(behind_a_switch(machine), {CARD: "mlx5_0", GPU: ""})
    assert missing == []
    assert outline(read(content)) == [["0", ["0000:e1:00.0", [GPU], [CARD, ["mlx5_0"]]]]]


def test_a_card_of_another_node_has_its_own_cpu_and_goes_by_its_first_function(machine):
    content, _ = topology_file(behind_a_switch(machine), {FAR: "mlx5_1", GPU: ""})
    assert outline(read(content)) == [["0", ["0000:e1:00.0", [GPU]]], ["1", ["0000:11:00.0", ["mlx5_1"]]]]
    assert [cpu.get("affinity") for cpu in read(content)] == ["00000000,0000ffff", "00000000,ffff0000"]


def test_a_link_is_as_good_as_the_worse_of_its_ends(machine):
    content, _ = topology_file(behind_a_switch(machine), {CARD: "mlx5_0"})
    (card,) = [pci for pci in read(content).iter("pci") if pci.get("busid") == CARD]
    assert (card.get("link_speed"), card.get("link_width"), card.get("class")) == ("32.0 GT/s PCIe", "8", "0x020000")


def test_a_virtual_function_goes_by_the_address_at_which_nccl_merges_them(machine):
    machine("pci0000:5d/0000:5d:00.0")
    machine("pci0000:5d/0000:5d:00.0/0000:5e:00.0", "020000")
    machine("pci0000:5d/0000:5d:00.0/0000:5e:01.3", "020000")
    place = machine.root / "devices/pci0000:5d/0000:5d:00.0/0000:5e:01.3"
    (place / "physfn").symlink_to("../0000:5e:00.0")
    content, _ = topology_file(Sysfs(str(machine.root)), {"0000:5e:01.3": "mlx5_9"})
    assert outline(read(content)) == [["0", ["0000:5e:00.0", ["mlx5_9"]]]]


def test_a_virtual_machine_that_says_no_width_gets_the_number_nccl_takes_for_unknown(machine):
    machine("pci0000:00/0000:00:06.0", "030200", numa=-1, vendor="0x10de", max_link_width="0")
    (cpu,) = read(topology_file(Sysfs(str(machine.root)), {"0000:00:06.0": ""})[0])
    assert (cpu.get("numaid"), cpu[0].get("link_width"), cpu[0].get("link_speed")) == ("-1", "0", "32.0 GT/s PCIe")


def test_two_ports_of_one_card_are_two_nets_of_one_function(machine):
    machine("pci0000:5d/0000:5d:00.0")
    for port in (0, 1):
        machine(f"pci0000:5d/0000:5d:00.0/0000:5e:00.{port}", "020000")
    nets = {"0000:5e:00.0": "mlx5_0", "0000:5e:00.1": "mlx5_1"}
    content, _ = topology_file(Sysfs(str(machine.root)), nets)
    assert outline(read(content)) == [["0", ["0000:5e:00.0", ["mlx5_0"], ["mlx5_1"]]]]
    assert len(read(content).findall(".//nic")) == 1


def test_a_device_that_the_node_does_not_show_is_said(machine):
    content, missing = topology_file(behind_a_switch(machine), {GPU: "", "0000:77:00.0": "mlx5_7"})
    assert missing == ["0000:77:00.0"]
    assert outline(read(content)) == [["0", ["0000:e1:00.0", [GPU]]]]


def is_kept(ours: ElementTree.Element, theirs: ElementTree.Element) -> bool:
    """Whether all of our element is in theirs: what it says, and every child at its place."""
    same = ours.tag == theirs.tag and ours.attrib.items() <= theirs.attrib.items()
    return same and all(any(is_kept(child, other) for other in theirs) for child in ours)


@pytest.mark.parametrize("name", ["as-it-is", "behind-a-switch"])
def test_nccl_kept_every_element_and_every_value_of_the_files_that_were_tried(name):
    ours, dump = (ElementTree.parse(RECORDED / f"{name}{end}.xml").getroot() for end in ("", "-dump"))
    assert is_kept(ours, dump)
    assert [pci.get("busid") for pci in dump.iter("pci") if pci.find("gpu") is not None] == ["0000:00:06.0"]
    assert [net.get("name") for net in dump.findall(".//pci/nic/net")] == ["eth0"]
    assert dump.findall("cpu/nic") == []


def test_the_file_that_was_tried_is_the_one_that_is_written_today(machine):
    (machine.root / "devices/system/node/node0/cpumap").write_text("ffff\n")
    for path in (SWITCH.rpartition("/")[0], SWITCH, f"{SWITCH}/0000:e2:00.0", f"{SWITCH}/0000:e2:01.0"):
        machine(path, vendor="0x1000", device="0xc030")
    machine(f"{SWITCH}/0000:e2:00.0/0000:00:06.0", "030200", vendor="0x10de", device="0x2335")
    machine(f"{SWITCH}/0000:e2:01.0/{CARD}", "020000")
    content, _ = topology_file(Sysfs(str(machine.root)), {"0000:00:06.0": "", CARD: "eth0"})
    assert content == (RECORDED / "behind-a-switch.xml").read_bytes()
