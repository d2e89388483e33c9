"""The picture is well-formed SVG with every device on it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from dranet.topology.alignment import align
from dranet.topology.machine import Machine, machine_of_shape
from dranet.topology.picture import to_svg
from dranet.topology.shape import load_shape, shape_names

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", shape_names())
def test_every_device_has_a_box(name: str) -> None:
    machine = machine_of_shape(load_shape(name), "n")
    texts = [element.text for element in ElementTree.fromstring(to_svg(machine)).iter(f"{SVG}text")]
    assert {f"GPU{i}" for i in range(len(machine.gpus))} | {"NUMA node 0", "NUMA node 1"} <= set(texts)


def test_a_claims_devices_and_pairs_stand_out() -> None:
    machine = machine_of_shape(load_shape("a4-highgpu-8g"), "n")
    pairs = align(machine.gpus[:1], machine.nics[:1]).pairs
    root = ElementTree.fromstring(to_svg(machine, [machine.gpus[0].id, machine.nics[0].id], pairs))
    picked = [rect for rect in root.iter(f"{SVG}rect") if "picked" in rect.attrib["class"]]
    assert (len(picked), len(list(root.iter(f"{SVG}line")))) == (2, 1)


def test_odd_names_are_escaped() -> None:
    machine = Machine('<node & "co">', (), ())
    assert ElementTree.fromstring(to_svg(machine)) is not None
