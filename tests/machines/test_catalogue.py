"""The catalogue is true to what was recorded of its machines: slices, trees and matrices."""

from __future__ import annotations

from collections.abc import Collection

import pytest
import yaml

from dranet.core.device import Device
from dranet.machines.importers.detect import shape_of_text
from dranet.machines.importers.nvidia_smi import TopologyMatrix, parse_matrix
from dranet.machines.machine import Machine, machines_of_slices
from dranet.machines.matrix import labelled_devices, matrix
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import gpu_devices, nic_devices
from tests.machines.conftest import DATA, every_shape, machine_of

OURS = {"dra.net/ibOnly", "dra.net/rail", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/numaNode"}
CHANGING = {"uuid", "dra.net/mac", "dra.net/ipv4"}
"""What differs from node to node."""


def recorded_devices(file: str, node: str | None = None) -> list[Device]:
    """What a GPU driver or this one published."""
    document = yaml.safe_load((DATA / file).read_text())
    specs = [item["spec"] for item in document.get("items") or [document]]
    own = [spec for spec in specs if spec["driver"] in {"gpu.nvidia.com", "dra.net"}]
    return [Device.from_api(raw) for spec in own if node in (None, spec["nodeName"]) for raw in spec["devices"]]


def recorded(file: str, node: str | None = None) -> dict[str, dict[str, object]]:
    """By device name, the attributes that are the same on every node."""
    return {device.name: static(device) for device in recorded_devices(file, node)}


def static(device: Device, also: Collection[str] = ()) -> dict[str, object]:
    return {key: value for key, value in device.attributes.items() if key not in {*CHANGING, *also}}


@pytest.mark.parametrize(
    ("shape", "file", "node"),
    [
        ("p5.48xlarge", "aws-p5.48xlarge/resourceslice-gpu.yaml", "gpu-node-1"),
        ("p5.48xlarge", "aws-p5.48xlarge/resourceslice-gpu.yaml", "gpu-node-2"),
        ("p4d.24xlarge", "aws-p4d.24xlarge/resourceslice-gpu.yaml", None),
    ],
)
def test_gpus_are_those_of_the_recorded_node(shape: str, file: str, node: str | None) -> None:
    assert {device.name: static(device) for device in gpu_devices(load_shape(shape))} == recorded(file, node)


def test_gb300_gpus_are_those_of_the_recorded_node() -> None:
    assert gpu_devices(load_shape("nd-gb300-v6")) == recorded_devices("../gb300-resourceslice-gpu.yaml")


@pytest.mark.parametrize(
    ("shape", "file"),
    [
        ("p4d.24xlarge", "aws-p4d.24xlarge/resourceslice-dranet.yaml"),
        ("nd-gb300-v6", "../gb300-resourceslice-dranet.yaml"),
    ],
)
def test_nics_are_those_of_the_recorded_node_plus_what_only_we_publish(shape: str, file: str) -> None:
    assert {device.name: static(device, OURS) for device in nic_devices(load_shape(shape))} == recorded(file)


@pytest.mark.parametrize("name", ["p4d.24xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"])
def test_aws_shapes_have_the_places_of_the_recorded_trees(name: str) -> None:
    tree = shape_of_text((DATA / f"aws-{name}" / "hwloc.xml").read_text(), name)
    assert tree is not None
    places = {str(part.pci): (part.path, part.numa) for part in tree.parts}
    shape = load_shape(name)
    assert {str(part.pci): (part.path, part.numa) for part in shape.parts} == {
        str(part.pci): places[str(part.pci)] for part in shape.parts
    }
    assert {str(gpu.pci) for gpu in shape.gpus} == {str(gpu.pci) for gpu in tree.gpus}


def test_azures_own_file_puts_the_same_devices_on_the_same_numa_nodes_as_the_nd_a100_v4() -> None:
    azures = shape_of_text((DATA / "aks-nd-a100-v4" / "nccl-topo.xml").read_text(), "x")
    assert azures is not None
    assert {str(p.pci): p.numa for p in azures.parts} == {str(p.pci): p.numa for p in load_shape("nd-a100-v4").parts}


def printed(file: str) -> TopologyMatrix:
    return parse_matrix((DATA / file).read_text())


def differences(machine: Machine, recorded: TopologyMatrix) -> dict[tuple[str, str], tuple[str, str]]:
    """Known cells of a recorded matrix that the machine prints otherwise."""
    ours, labels = matrix(machine), labelled_devices(machine)
    assert set(recorded.labels) == set(labels)
    return {
        pair: (cell, ours[pair[0]][pair[1]]) for pair, cell in recorded.cells.items() if cell != ours[pair[0]][pair[1]]
    }


@pytest.mark.parametrize(
    ("shape", "file"),
    [
        ("a4-highgpu-8g", "gke-a4-highgpu-8g/topo-m.txt"),
        ("a3-ultragpu-8g", "gke-a4-highgpu-8g/topo-m.txt"),
        ("dgx-h200", "dgx-h200/topo-m.txt"),
        ("dgx-h100", "dgx-h200/topo-m.txt"),
        ("nd-gb300-v6", "aks-nd-gb300-v6/topo-m-partial.txt"),
    ],
)
def test_the_matrix_of_a_machine_is_the_recorded_one_cell_by_cell(shape: str, file: str) -> None:
    assert differences(machine_of(shape), printed(file)) == {}


def test_dgx_b200_differs_from_the_recorded_hgx_b200_in_the_gpu_that_has_lost_nvlink_only() -> None:
    found = differences(machine_of("dgx-b200"), printed("hgx-b200-one-gpu-off-nvlink/topo-m-partial.txt"))
    assert {pair for pair in found if "GPU2" not in pair} == set()
    assert {ours for _, ours in found.values()} == {"NV18"}


def test_azure_prints_node_and_sys_only() -> None:
    """kubernetes-sigs/dranet examples/distributed_training: NODE on the same NUMA node, SYS on the other."""
    machine = machine_of("nd-h100-v5")
    cells = matrix(machine)
    for i, gpu in enumerate(machine.gpus):
        expected = ["NODE" if nic.position.numa == gpu.position.numa else "SYS" for nic in machine.nics]
        assert [cells[f"GPU{i}"][f"NIC{j}"] for j in range(8)] == expected


def test_recorded_slices_are_recognised_as_their_machine() -> None:
    items = yaml.safe_load((DATA / "aws-p5.48xlarge/resourceslice-gpu.yaml").read_text())["items"]
    assert {machine.shape for machine in machines_of_slices(items).values()} == {"p5.48xlarge"}


@every_shape
def test_rails_are_numbered_where_the_network_has_them_and_nowhere_else(name: str) -> None:
    shape = load_shape(name)
    rails = [nic.rail for nic in shape.nics]
    assert all(rails) and len(set(rails)) == len(rails) if shape.network == "rails" else not any(rails)
