"""The matrix of a shape is the one its machine printed, cell for cell."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dranet.topology.machine import machine_of_shape, machines_of_slices
from dranet.topology.matrix import matrix, to_json, to_text
from dranet.topology.shape import load_shape, shape_names
from dranet.topology.shape_devices import shape_slices

DATA = Path(__file__).parent.parent / "data"

A4 = """
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    NIC0    NIC1    NIC2    NIC3    NIC4    NIC5    NIC6    NIC7
GPU0     X      NV18    NV18    NV18    NV18    NV18    NV18    NV18    PIX     PIX     NODE    NODE    SYS     SYS     SYS     SYS
GPU1    NV18     X      NV18    NV18    NV18    NV18    NV18    NV18    PIX     PIX     NODE    NODE    SYS     SYS     SYS     SYS
GPU2    NV18    NV18     X      NV18    NV18    NV18    NV18    NV18    NODE    NODE    PIX     PIX     SYS     SYS     SYS     SYS
GPU3    NV18    NV18    NV18     X      NV18    NV18    NV18    NV18    NODE    NODE    PIX     PIX     SYS     SYS     SYS     SYS
GPU4    NV18    NV18    NV18    NV18     X      NV18    NV18    NV18    SYS     SYS     SYS     SYS     PIX     PIX     NODE    NODE
GPU5    NV18    NV18    NV18    NV18    NV18     X      NV18    NV18    SYS     SYS     SYS     SYS     PIX     PIX     NODE    NODE
GPU6    NV18    NV18    NV18    NV18    NV18    NV18     X      NV18    SYS     SYS     SYS     SYS     NODE    NODE    PIX     PIX
GPU7    NV18    NV18    NV18    NV18    NV18    NV18    NV18     X      SYS     SYS     SYS     SYS     NODE    NODE    PIX     PIX
NIC0    PIX     PIX     NODE    NODE    SYS     SYS     SYS     SYS      X      PIX     NODE    NODE    SYS     SYS     SYS     SYS
NIC1    PIX     PIX     NODE    NODE    SYS     SYS     SYS     SYS     PIX      X      NODE    NODE    SYS     SYS     SYS     SYS
NIC2    NODE    NODE    PIX     PIX     SYS     SYS     SYS     SYS     NODE    NODE     X      PIX     SYS     SYS     SYS     SYS
NIC3    NODE    NODE    PIX     PIX     SYS     SYS     SYS     SYS     NODE    NODE    PIX      X      SYS     SYS     SYS     SYS
NIC4    SYS     SYS     SYS     SYS     PIX     PIX     NODE    NODE    SYS     SYS     SYS     SYS      X      PIX     NODE    NODE
NIC5    SYS     SYS     SYS     SYS     PIX     PIX     NODE    NODE    SYS     SYS     SYS     SYS     PIX      X      NODE    NODE
NIC6    SYS     SYS     SYS     SYS     NODE    NODE    PIX     PIX     SYS     SYS     SYS     SYS     NODE    NODE     X      PIX
NIC7    SYS     SYS     SYS     SYS     NODE    NODE    PIX     PIX     SYS     SYS     SYS     SYS     NODE    NODE    PIX      X
"""  # noqa: E501

GB300 = """
       GPU0   GPU1   GPU2   GPU3   NIC0   NIC1   NIC2   NIC3
GPU0   X      NV18   NV18   NV18   NODE   NODE   SYS    SYS
GPU1   NV18   X      NV18   NV18   NODE   NODE   SYS    SYS
GPU2   NV18   NV18   X      NV18   SYS    SYS    NODE   NODE
GPU3   NV18   NV18   NV18   X      SYS    SYS    NODE   NODE
"""


def parsed(text: str) -> dict[str, dict[str, str]]:
    head, *rows = [line.split() for line in text.strip().splitlines()]
    return {row[0]: dict(zip(head, row[1:], strict=True)) for row in rows}


def test_a4_prints_the_matrix_of_the_real_node() -> None:
    assert matrix(machine_of_shape(load_shape("a4-highgpu-8g"), "n")) == parsed(A4)


def test_gb300_prints_the_matrix_of_the_real_node() -> None:
    ours = matrix(machine_of_shape(load_shape("nd-gb300-v6"), "n"))
    assert {row: ours[row] for row in parsed(GB300)} == parsed(GB300)


def test_the_text_has_the_columns_of_nvidia_smi_for_gpus() -> None:
    lines = to_text(machine_of_shape(load_shape("a4-highgpu-8g"), "n")).splitlines()
    assert lines[0].endswith("CPU Affinity    NUMA Affinity  GPU NUMA ID")
    assert lines[1].split()[-3:] == ["0-55,112-167", "0", "N/A"]
    assert lines[8].split()[-3:] == ["56-111,168-223", "1", "N/A"]


@pytest.mark.parametrize("name", shape_names())
def test_slices_of_a_known_machine_give_the_same_matrix_as_its_shape(name: str) -> None:
    shape = load_shape(name)
    machine = machines_of_slices(shape_slices(shape, "n"))["n"]
    assert (machine.shape, matrix(machine)) == (name, matrix(machine_of_shape(shape, "n")))


def test_recorded_gb300_slices_borrow_numa_nodes_from_the_shape() -> None:
    nics = yaml.safe_load((DATA / "gb300-resourceslice-dranet.yaml").read_text())
    gpus = yaml.safe_load((DATA / "gb300-resourceslice-gpu.yaml").read_text())["items"]
    (machine,) = machines_of_slices([nics, *gpus]).values()
    assert matrix(machine)["GPU3"]["NIC0"] == "SYS"


def test_a_bridge_among_the_devices_does_not_hide_the_machine() -> None:
    shape = load_shape("nd-gb300-v6")
    slices = shape_slices(shape, "n")
    (cards,) = [item["spec"] for item in slices if item["spec"]["driver"] == "dra.net"]
    cards["devices"].append({"name": "cni0", "attributes": {"dra.net/ifName": {"string": "cni0"}}})
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
    made = to_json(machine_of_shape(load_shape("nd-gb300-v6"), "n"))
    assert made["devices"] == ["GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1", "NIC2", "NIC3"]
    assert made["names"]["NIC2"] == "mlx5_2"
