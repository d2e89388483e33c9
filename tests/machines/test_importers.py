"""What others have recorded becomes a shape that says the same, and other input is refused with a reason."""

from __future__ import annotations

import itertools
import random
from xml.etree.ElementTree import Element

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet.core.errors import InvalidInput
from dranet.machines.importers.common import parse_xml
from dranet.machines.importers.detect import shape_of_text
from dranet.machines.importers.nvidia_smi import parse_matrix
from dranet.machines.importers.slices import shape_of_slices
from dranet.machines.machine import matrix_cell
from dranet.machines.matrix import to_text
from dranet.machines.nccl_export import to_nccl_xml
from dranet.machines.shape import Shape, load_shape, parse_shape, shape_names, to_toml
from dranet.machines.shape_devices import gpu_devices, nic_devices, shape_slices
from tests.machines.conftest import DATA, cells, every_shape, machine_of

MATRICES = sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/topo-m*.txt"))
NCCL_FILES = sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/*ccl-topo.xml"))
HWLOC_FILES = sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/hwloc.xml"))


def read(text: str) -> Shape:
    shape = shape_of_text(text, "machine")
    assert shape is not None
    return shape


def imported(file: str) -> Shape:
    shape = read((DATA / file).read_text())
    assert parse_shape(to_toml(shape)) == shape
    return shape


def wrong_cells(text: str) -> list[tuple[str, str, str, str]]:
    """Known cells that the imported shape prints otherwise."""
    recorded, machine = parse_matrix(text), machine_of(read(text))
    labels = [
        *(x for x in recorded.labels if x.startswith("GPU")),
        *(x for x in recorded.labels if not x.startswith("GPU")),
    ]
    parts = dict(zip(labels, (*machine.gpus, *machine.nics), strict=True))
    ours = {(a, b): matrix_cell(parts[a], parts[b]) for a, b in recorded.cells}
    return [(a, b, cell, ours[a, b]) for (a, b), cell in recorded.cells.items() if cell != ours[a, b]]


@pytest.mark.parametrize("file", MATRICES)
def test_every_known_cell_of_a_public_matrix_comes_back(file: str) -> None:
    assert wrong_cells((DATA / file).read_text()) == []


@pytest.mark.parametrize("file", MATRICES)
def test_a_matrix_pasted_with_spaces_is_the_same_machine(file: str) -> None:
    text = (DATA / file).read_text()
    pasted = "\n".join("   ".join(f"{word:6}" for word in line.split("\t")).rstrip() for line in text.splitlines())
    assert wrong_cells(pasted) == []
    assert parse_matrix(pasted).cells == parse_matrix(text).cells


def test_escape_codes_bars_and_a_prompt_do_not_matter() -> None:
    text = "$ nvidia-smi topo -m\n\t\x1b[4mGPU0\tGPU1\tmlx5_2\tmlx5_0\tCPU Affinity\x1b[0m\n"
    shape = read(text + "GPU0 | X | SOC | PIX | SOC | 0-7\nGPU1\tSOC\t X \tSOC\tPIX\t8-15\n\nLegend:\n\n  X   = Self\n")
    found = cells(shape)
    assert (found["GPU0"]["NIC0"], found["GPU0"]["GPU1"], shape.nics[0].rdma) == ("PIX", "SYS", "mlx5_2")
    assert [numa.cpus for numa in shape.numa] == ["0-7", "8-15"]


def test_a_quoted_matrix_is_read() -> None:
    text = (DATA / "a100-4-two-nics/topo-m.txt").read_text()
    assert wrong_cells("".join(f"> {line}\n" for line in text.splitlines())) == []


def test_names_of_nics_are_those_of_the_legend() -> None:
    assert [nic.rdma for nic in imported("dgx-h200/topo-m.txt").nics] == [f"mlx5_{i}" for i in range(12)]


def test_cpus_that_a_container_does_not_see_shift_no_column() -> None:
    shape = imported("gb200-nvl72-tray/topo-m-container.txt")
    assert [(numa.node, numa.cpus) for numa in shape.numa] == [(0, "0-35"), (1, "")]


def test_a_gpu_that_has_lost_the_fabric_is_warned_of() -> None:
    text = to_text(machine_of(imported("hgx-b200-one-gpu-off-nvlink/topo-m-partial.txt")))
    assert "warning: GPU2 (gpu-2) has no link to the other GPUs" in text
    assert "warning" not in to_text(machine_of(imported("dgx-h200/topo-m.txt")))


CELLS = ("NV4", "NV12", "PIX", "PXB", "PHB", "NODE", "SYS", "?")


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(0, 5), st.randoms(use_true_random=False))
def test_any_matrix_comes_back_even_one_no_tree_can_have(gpus: int, nics: int, chance: random.Random) -> None:
    labels = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    cells = {(a, a): "X" for a in labels}
    for a, b in itertools.combinations(labels, 2):
        choice = chance.choice(CELLS if b.startswith("GPU") else CELLS[2:])
        cells[a, b] = cells[b, a] = choice
    rows = ["\t".join([a, *(cells[a, b] for b in labels)]) for a in labels]
    assert wrong_cells("\n".join(["\t" + "\t".join(labels), *rows])) == []


def tree(element: Element) -> tuple[str, dict[str, str], list[object]]:
    return element.tag, dict(element.attrib), [tree(child) for child in element]


@pytest.mark.parametrize("file", NCCL_FILES)
def test_export_of_an_imported_nccl_file_is_the_same_tree(file: str) -> None:
    assert tree(parse_xml(to_nccl_xml(imported(file)))) == tree(parse_xml((DATA / file).read_text()))


def switches_above(root: Element) -> dict[str, list[str]]:
    """By PCI address of every function, the elements it is in, from the CPU down."""
    found: dict[str, list[str]] = {}

    def walk(element: Element, above: list[str]) -> None:
        for child in element:
            name = child.get("busid") or f"numa {child.get('numaid')}"
            if child.tag == "pci" and not child.findall("pci"):
                found[name] = above
            elif child.tag in {"pci", "cpu"}:
                walk(child, [*above, name])

    walk(root, [])
    return found


def implied(above: list[str], other: list[str]) -> str:
    """The distance NCCL's file implies, in our words."""
    shared = [a for a, b in zip(above, other, strict=False) if a == b]
    if len(shared) > 1:
        return "PIX" if shared == above == other else "PXB"
    return "NODE" if shared else "SYS"


@pytest.mark.parametrize("file", NCCL_FILES)
def test_the_matrix_of_an_nccl_file_is_the_pairing_it_implies(file: str) -> None:
    machine = machine_of(imported(file))
    above = switches_above(parse_xml((DATA / file).read_text()))
    pairs = [(gpu, nic) for gpu in machine.gpus for nic in machine.nics]
    assert [matrix_cell(gpu, nic) for gpu, nic in pairs] == [
        implied(above[g.address], above[n.address]) for g, n in pairs
    ]


@pytest.mark.parametrize("file", NCCL_FILES)
def test_paths_alone_give_the_same_switches_as_the_file(file: str) -> None:
    """The export of a shape that has not kept its file nests the same functions below the same switches."""
    shape = imported(file)
    made = switches_above(parse_xml(to_nccl_xml(msgspec.structs.replace(shape, nccl=""))))
    parts = {str(part.pci) for part in shape.parts}
    original = switches_above(parse_xml((DATA / file).read_text()))
    assert made == {address: above for address, above in original.items() if address in parts}


def test_xgmi_joins_amds_gpus() -> None:
    found = cells(imported("mi300x-baremetal/rccl-topo.xml"))
    assert {found["GPU0"][f"GPU{i}"] for i in range(1, 8)} == {"XGMI"}


@every_shape
def test_nccl_reads_every_known_machine_as_we_do(name: str) -> None:
    """Its file, imported again, has the matrix of the shape; PCIe roots are not in such a file: PHB becomes NODE."""
    shape = load_shape(name)
    ours, theirs = machine_of(shape), machine_of(read(to_nccl_xml(shape)))
    parts = {part.address: part for part in (*theirs.gpus, *theirs.nics)}
    nics = [nic for nic in ours.nics if nic.address in parts]
    assert len(nics) == len(ours.nics) and [g.address for g in ours.gpus] == [g.address for g in theirs.gpus]
    for a, b in itertools.combinations((*ours.gpus, *nics), 2):
        assert matrix_cell(parts[a.address], parts[b.address]) in {
            matrix_cell(a, b),
            {"PHB": "NODE"}.get(matrix_cell(a, b)),
        }


def test_the_file_for_some_devices_has_those_and_no_others() -> None:
    shape = load_shape("a4-highgpu-8g")
    root = parse_xml(to_nccl_xml(shape, ["0000:8f:00.0", "0000:91:00.0"]))
    assert list(switches_above(root)) == ["0000:8f:00.0", "0000:91:00.0"]
    assert [cpu.get("numaid") for cpu in root] == ["0"]
    with pytest.raises(InvalidInput, match=r"has no 0000:ff:00\.0"):
        to_nccl_xml(shape, ["0000:ff:00.0"])


@pytest.mark.parametrize("file", HWLOC_FILES)
def test_an_hwloc_export_has_every_gpu_and_efa_nic_where_lspci_shows_it(file: str) -> None:
    shape, text = imported(file), (DATA / file).read_text()
    assert len(shape.gpus) == 8
    assert len([nic for nic in shape.nics if nic.rdma.startswith("rdmap")]) == text.count('name="rdmap')
    assert all(f'pci_busid="{part.pci}"' in text for part in shape.parts)


def test_numa_nodes_are_not_guessed_where_everything_hangs_on_the_machine() -> None:
    assert {gpu.numa for gpu in imported("aws-p3dn.24xlarge/hwloc.xml").gpus} == {None}
    assert [gpu.numa for gpu in imported("aws-p5.48xlarge/hwloc.xml").gpus] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_an_hwloc_export_of_version_one_has_numa_nodes_above_the_bridges() -> None:
    text = """<topology><object type="Machine" os_index="0">
      <object type="NUMANode" os_index="1" cpuset="0x0000000f"><object type="Package">
        <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[3a-3c]">
          <object type="PCIDev" pci_busid="0000:3b:00.0" pci_type="0302 [10de:20b5] [10de:1533] a1"/>
          <object type="PCIDev" pci_busid="0000:3c:00.0" pci_type="0207 [15b3:101b]"/>
        </object></object></object>
      <object type="NUMANode" os_index="0" cpuset="0x000000f0"/></object></topology>"""
    shape = read(text)
    assert [(p.path, p.numa) for p in shape.parts] == [
        ("pci0000:3a/0000:3b:00.0", 1),
        ("pci0000:3a/0000:3c:00.0", 1),
    ]
    assert [(n.node, n.cpus) for n in shape.numa] == [(0, "4-7"), (1, "0-3")]


ROCM = """
========================= Link Type between two GPUs =========================
       GPU0         GPU1         GPU2
GPU0   0            XGMI         PCIE
GPU1   XGMI         0            PCIE
GPU2   PCIE         PCIE         0
================================= Numa Nodes =================================
GPU[0]		: (Topology) Numa Node: 0
GPU[0]		: (Topology) Numa Affinity: 0
GPU[1]		: (Topology) Numa Node: 1
GPU[2]		: (Topology) Numa Node: 1
============================= End of ROCm SMI Log =============================
"""
AMD_SMI = """LINK TYPE TABLE:
             0000:0c:00.0 0000:15:00.0
0000:0c:00.0 SELF         XGMI
0000:15:00.0 XGMI         SELF
"""


def test_rocm_smi_tells_links_and_numa_nodes() -> None:
    shape = read(ROCM)
    found = cells(shape)
    assert (found["GPU0"]["GPU1"], found["GPU0"]["GPU2"], found["GPU1"]["GPU2"]) == ("XGMI", "SYS", "NODE")
    assert {shape.gpu_kind(gpu).driver for gpu in shape.gpus} == {"gpu.amd.com"}


def test_amd_smi_tells_addresses() -> None:
    shape = read(AMD_SMI)
    assert [str(gpu.pci) for gpu in shape.gpus] == ["0000:0c:00.0", "0000:15:00.0"]
    assert cells(shape)["GPU0"]["GPU1"] == "XGMI"


@every_shape
def test_slices_of_a_node_import_as_devices_with_the_same_names_and_attributes(name: str) -> None:
    shape = load_shape(name)
    again = shape_of_slices(shape_slices(shape, "n"), name)
    assert parse_shape(to_toml(again)) == again
    assert {d.name: d for d in gpu_devices(again)} == {d.name: d for d in gpu_devices(shape)}
    assert {d.name: d for d in nic_devices(again)} == {d.name: d for d in nic_devices(shape)}
    assert cells(again) == cells(shape)


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(shape_names()), st.randoms(use_true_random=False))
def test_the_order_in_which_a_driver_lists_its_devices_does_not_matter(name: str, chance: random.Random) -> None:
    slices = shape_slices(load_shape(name), "n")
    shuffled = msgspec.json.decode(msgspec.json.encode(slices))
    chance.shuffle(shuffled)
    for item in shuffled:
        chance.shuffle(item["spec"]["devices"])
    assert shape_of_slices(shuffled, name) == shape_of_slices(slices, name)


def test_a_numa_node_that_is_a_list_stays_one() -> None:
    slices = shape_slices(load_shape("p5.48xlarge"), "n")
    for device in slices[-1]["spec"]["devices"]:
        device["attributes"]["resource.kubernetes.io/numaNode"] = {"ints": [1]}
    shape = shape_of_slices(slices, "x")
    assert parse_shape(to_toml(shape)) == shape
    assert {gpu.numa for gpu in shape.gpus} == {1}
    assert {d.attributes["resource.kubernetes.io/numaNode"] for d in gpu_devices(shape)} == {(1,)}


def test_slices_of_a_gpu_count_as_the_gpu_itself_once() -> None:
    slices = shape_slices(load_shape("p5.48xlarge"), "n")
    gpus = slices[-1]["spec"]["devices"]
    part = msgspec.json.decode(msgspec.json.encode(gpus[0]))
    part["name"], part["attributes"]["type"] = "a-part-of-gpu-0", {"string": "mig"}
    gpus.append(part)
    shape = shape_of_slices(slices, "x")
    assert "gpu-0" in {gpu.name for gpu in shape.gpus} and len(shape.gpus) == 8


def test_slices_of_an_unknown_machine_give_roots_and_no_more() -> None:
    items = yaml.safe_load((DATA / "aws-p5.48xlarge/resourceslice-gpu.yaml").read_text())["items"]
    for item in items:
        for device in item["spec"]["devices"]:
            device["attributes"]["productName"] = {"string": "Someone else's GPU"}
    shape = shape_of_slices(items, "x", "gpu-node-2")
    assert shape.gpus[0].path == "pci0000:44/0000:53:00.0" and shape.gpus[0].numa is None
    assert any("omitted" in gap for gap in shape.unknown)


BOMB = '<!DOCTYPE system [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><system><cpu numaid="&b;"/></system>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "entity"),
        ("<system>" + "<pci>" * 300, "nesting levels"),
        ("<system", "invalid XML: line 1"),
        ("<graphs version='1'/>", "channel graph"),
        ("<html/>", "expected NCCL"),
        ("<system version='1'/>", "no GPU and no NIC"),
        ("<system><cpu numaid='x'/></system>", "not a number"),
        ("<system><cpu numaid='0' affinity='zz'/></system>", "mask of CPUs"),
        ("<system><cpu numaid='0'><pci busid='1' class='0x030200'/></cpu></system>", "busid='1'"),
        ("<topology version='2.0'/>", "no GPU and no NIC"),
        ("<topology><object type='Bridge' bridge_type='0-1'/></topology>", "bridge_pci"),
        ("\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tSYS\tX\n", "GPU1 to GPU0 is SYS"),
        ("\tGPU0\tGPU1\nGPU0\tX\tX\n", "diagonal"),
        ("\tGPU0\tGPU1\nGPU0\tX\tFAR\n", "'FAR'"),
        ("\tGPU0\tGPU0\nGPU0\tX\tX\n", "twice"),
        ("\tGPU0\tGPU1\n", "no GPU rows"),
        ("\t" + "\t".join(f"GPU{i}" for i in range(300)) + "\n", "at most 256"),
        ("Link Type between two GPUs\nnothing", "no header"),
        ("Link Type between two GPUs\n GPU0 GPU1\nGPU0 0 BUS\n", "neither XGMI nor PCIE"),
    ],
)
def test_input_that_is_not_a_recording_is_refused_with_a_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        shape_of_text(text, "machine")


@settings(deadline=None, max_examples=200)
@given(st.sampled_from([*NCCL_FILES, *HWLOC_FILES[:2], *MATRICES]), st.randoms(use_true_random=False))
def test_a_damaged_file_is_refused_as_text_or_read(file: str, chance: random.Random) -> None:
    text = (DATA / file).read_text()
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(text))
        text = (
            text[:start] + chance.choice(["", "\x00", "<", "9", "0xZZ", "\t"]) + text[start + chance.randint(0, 40) :]
        )
    try:
        shape = shape_of_text(text, "machine")
    except InvalidInput:
        return
    assert shape is None or parse_shape(to_toml(shape)) == shape
