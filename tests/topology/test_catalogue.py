"""The catalogue is true to what was recorded of its machines: slices, trees and matrices."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dranet.model.device import Device
from dranet.topology.importers.detecting import shape_of_text
from dranet.topology.importers.matrix_text import MatrixText, read_matrix
from dranet.topology.machine import Machine, machine_of_shape, machines_of_slices
from dranet.topology.matrix import labelled, matrix
from dranet.topology.shape import load_shape, shape_names
from dranet.topology.shape_devices import gpu_devices, nic_devices

DATA = Path(__file__).parent.parent / "data" / "machines"
OURS = {"dra.net/ibOnly", "dra.net/rail", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/numaNode"}
CHANGING = {"uuid", "dra.net/mac", "dra.net/ipv4"}
"""What differs from node to node."""


def recorded(file: str, driver: str, node: str | None = None) -> dict[str, dict[str, object]]:
    """By device name, the attributes that are the same on every node."""
    found: dict[str, dict[str, object]] = {}
    for item in yaml.safe_load((DATA / file).read_text())["items"]:
        spec = item["spec"]
        if spec["driver"] == driver and node in (None, spec["nodeName"]):
            found |= {raw["name"]: static(Device.from_api(raw)) for raw in spec["devices"]}
    return found


def static(device: Device) -> dict[str, object]:
    return {key: value for key, value in device.attributes.items() if key not in CHANGING}


@pytest.mark.parametrize("node", ["gpu-node-1", "gpu-node-2"])
def test_p5_gpus_are_those_of_both_recorded_nodes(node: str) -> None:
    ours = {device.name: static(device) for device in gpu_devices(load_shape("p5.48xlarge"))}
    assert ours == recorded("aws-p5.48xlarge/resourceslice-gpu.yaml", "gpu.nvidia.com", node)


def test_p4d_gpus_are_those_of_the_recorded_node() -> None:
    ours = {device.name: static(device) for device in gpu_devices(load_shape("p4d.24xlarge"))}
    assert ours == recorded("aws-p4d.24xlarge/resourceslice-gpu.yaml", "gpu.nvidia.com")


def test_p4d_cards_are_those_of_the_recorded_node_plus_what_only_we_publish() -> None:
    ours = {
        device.name: {key: value for key, value in static(device).items() if key not in OURS}
        for device in nic_devices(load_shape("p4d.24xlarge"))
    }
    assert ours == recorded("aws-p4d.24xlarge/resourceslice-dranet.yaml", "dra.net")


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
    told = shape_of_text((DATA / "aks-nd-a100-v4" / "nccl-topo.xml").read_text(), "x")
    assert told is not None
    assert {str(p.pci): p.numa for p in told.parts} == {str(p.pci): p.numa for p in load_shape("nd-a100-v4").parts}


def printed(file: str) -> MatrixText:
    return read_matrix((DATA / file).read_text())


def differences(machine: Machine, recorded: MatrixText) -> dict[tuple[str, str], tuple[str, str]]:
    """Known cells of a recorded matrix that the machine prints otherwise."""
    ours, labels = matrix(machine), labelled(machine)
    assert set(recorded.labels) == set(labels)
    return {
        pair: (told, ours[pair[0]][pair[1]]) for pair, told in recorded.cells.items() if told != ours[pair[0]][pair[1]]
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
    assert differences(machine_of_shape(load_shape(shape), "n"), printed(file)) == {}


def test_dgx_b200_differs_from_the_recorded_hgx_b200_in_the_gpu_that_has_lost_nvlink_only() -> None:
    found = differences(
        machine_of_shape(load_shape("dgx-b200"), "n"), printed("hgx-b200-one-gpu-off-nvlink/topo-m-partial.txt")
    )
    assert {pair for pair in found if "GPU2" not in pair} == set()
    assert {ours for _, ours in found.values()} == {"NV18"}


def test_azure_prints_node_and_sys_only() -> None:
    """kubernetes-sigs/dranet examples/distributed_training: NODE on the same NUMA node, SYS on the other."""
    machine = machine_of_shape(load_shape("nd-h100-v5"), "n")
    cells = matrix(machine)
    for i, gpu in enumerate(machine.gpus):
        expected = ["NODE" if nic.place.numa == gpu.place.numa else "SYS" for nic in machine.nics]
        assert [cells[f"GPU{i}"][f"NIC{j}"] for j in range(8)] == expected


def test_recorded_slices_are_recognised_as_their_machine() -> None:
    items = yaml.safe_load((DATA / "aws-p5.48xlarge/resourceslice-gpu.yaml").read_text())["items"]
    assert {machine.shape for machine in machines_of_slices(items).values()} == {"p5.48xlarge"}


@pytest.mark.parametrize("name", shape_names())
def test_rails_are_numbered_where_the_network_has_them_and_nowhere_else(name: str) -> None:
    shape = load_shape(name)
    rails = [nic.rail for nic in shape.nics]
    assert all(rails) and len(set(rails)) == len(rails) if shape.network == "rails" else not any(rails)
