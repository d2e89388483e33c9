"""The picture is well-formed SVG with every device on it."""

from __future__ import annotations

from xml.etree import ElementTree

from dranet.machines.alignment import align
from dranet.machines.machine import Machine
from dranet.machines.svg import to_svg
from tests.machines.conftest import every_shape, machine_of

SVG = "{http://www.w3.org/2000/svg}"


@every_shape
def test_every_device_has_a_box(name: str) -> None:
    machine = machine_of(name)
    texts = [element.text for element in ElementTree.fromstring(to_svg(machine)).iter(f"{SVG}text")]
    assert {f"GPU{i}" for i in range(len(machine.gpus))} | {"NUMA node 0", "NUMA node 1"} <= set(texts)


def test_a_claims_devices_and_pairs_stand_out() -> None:
    machine = machine_of("a4-highgpu-8g")
    pairs = align(machine.gpus[:1], machine.nics[:1]).pairs
    root = ElementTree.fromstring(to_svg(machine, [machine.gpus[0].id, machine.nics[0].id], pairs))
    picked = [rect for rect in root.iter(f"{SVG}rect") if "picked" in rect.attrib["class"]]
    assert (len(picked), len(list(root.iter(f"{SVG}line")))) == (2, 1)


def test_odd_names_are_escaped() -> None:
    machine = Machine('<node & "co">', (), ())
    assert ElementTree.fromstring(to_svg(machine)) is not None
