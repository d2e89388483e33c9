"""The matrix of a shape is the one its machine printed, cell for cell."""

from __future__ import annotations

from pathlib import Path

import yaml

from dranet.machines.machine import machines_of_slices
from dranet.machines.matrix import matrix, to_json, to_text
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices
from tests.machines.conftest import cells, every_shape, machine_of

DATA = Path(__file__).parent.parent / "data"


def test_the_text_has_the_columns_of_nvidia_smi_for_gpus() -> None:
    lines = to_text(machine_of("a4-highgpu-8g")).splitlines()
    assert lines[0].endswith("CPU Affinity    NUMA Affinity  GPU NUMA ID")
    assert lines[1].split()[-3:] == ["0-55,112-167", "0", "N/A"]
    assert lines[8].split()[-3:] == ["56-111,168-223", "1", "N/A"]


@every_shape
def test_slices_of_a_known_machine_give_the_same_matrix_as_its_shape(name: str) -> None:
    shape = load_shape(name)
    machine = machines_of_slices(shape_slices(shape, "n"))["n"]
    assert (machine.shape, matrix(machine)) == (name, cells(shape))


def test_recorded_gb300_slices_borrow_numa_nodes_from_the_shape() -> None:
    nics = yaml.safe_load((DATA / "gb300-resourceslice-dranet.yaml").read_text())
    gpus = yaml.safe_load((DATA / "gb300-resourceslice-gpu.yaml").read_text())["items"]
    (machine,) = machines_of_slices([nics, *gpus]).values()
    assert matrix(machine)["GPU3"]["NIC0"] == "SYS"


def test_a_bridge_among_the_devices_does_not_hide_the_machine() -> None:
    shape = load_shape("nd-gb300-v6")
    slices = shape_slices(shape, "n")
    (nics,) = [item["spec"] for item in slices if item["spec"]["driver"] == "dra.net"]
    nics["devices"].append({"name": "cni0", "attributes": {"dra.net/ifName": {"string": "cni0"}}})
    machine = machines_of_slices(slices)["n"]
    assert machine.shape == "nd-gb300-v6"
    assert [nic.device for nic in machine.nics if not nic.address] == ["cni0"]


def test_slices_of_an_unknown_machine_do_not_guess() -> None:
    slices = shape_slices(load_shape("a4-highgpu-8g"), "n")
    for device in slices[1]["spec"]["devices"]:
        device["attributes"]["productName"] = {"string": "Someone else's GPU"}
    machine = machines_of_slices(slices)["n"]
    row = matrix(machine)["GPU0"]
    assert (machine.shape, row["NIC0"], row["NIC2"], row["NIC7"]) == ("", "PHB", "UNKNOWN", "UNKNOWN")


def test_json_names_what_the_labels_stand_for() -> None:
    made = to_json(machine_of("nd-gb300-v6"))
    assert made["devices"] == ["GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1", "NIC2", "NIC3"]
    assert made["names"]["NIC2"] == "mlx5_2"
