"""Machines of a fleet are worked out once for each kind: right only where the key holds all that is looked at."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.core import attributes as attr
from dranet.core.device import Device
from dranet.machines import machine as machines
from dranet.machines.machine import identifying_attributes, machines_of_slices
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import shape_slices
from tests.machines.conftest import every_shape


class Noting(dict[str, Any]):
    """Attributes that record which of them are read, present or not."""

    def __init__(self, values: dict[str, Any], seen: set[str]) -> None:
        super().__init__(values)
        self.seen = seen

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.seen.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.seen.add(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Any:
        raise AssertionError("all attributes are looked at: no key of some of them can stand for a machine")

    keys = values = items = __iter__


def noted(slices: list[dict[str, Any]]) -> set[str]:
    """What is looked at while the machine of these slices is worked out."""
    seen: set[str] = set()
    devices = [
        (item["spec"]["driver"], Device.from_api(device)) for item in slices for device in item["spec"]["devices"]
    ]
    recording = [
        (driver, Device(name=one.name, attributes=Noting(dict(one.attributes), seen), capacity=one.capacity))
        for driver, one in devices
    ]
    machines._machine("n", recording)
    return seen


@every_shape
def test_everything_a_machine_is_worked_out_from_is_in_its_key(name: str) -> None:
    assert noted(shape_slices(load_shape(name), "n", 0)) <= set(identifying_attributes())


@pytest.mark.parametrize("lost", [attr.PCI_ADDRESS, attr.PCIE_ROOT, attr.RDMA, attr.ENCAPSULATION, attr.RDMA_DEVICE])
def test_what_is_scanned_instead_of_a_missing_attribute_is_in_the_key_too(lost: str) -> None:
    slices = shape_slices(load_shape("a4-highgpu-8g"), "n", 0)
    for item in slices:
        for device in item["spec"]["devices"]:
            device["attributes"] = {key: value for key, value in device["attributes"].items() if key != lost}
    assert noted(slices) <= set(identifying_attributes())


def test_a_machine_that_differs_in_one_nic_is_another_machine_than_its_neighbours() -> None:
    shape = load_shape("a4-highgpu-8g")
    slices = [item for number in range(3) for item in shape_slices(shape, f"n{number}", number)]
    odd = next(item for item in slices if item["spec"]["nodeName"] == "n1" and item["spec"]["driver"] == "dra.net")
    odd["spec"]["devices"][0]["attributes"][attr.IF_NAME] = {"string": "odd0"}
    found = machines_of_slices(slices)
    assert [name for name, one in found.items() if any(nic.interface == "odd0" for nic in one.nics)] == ["n1"]
    assert [one.node for one in found.values()] == ["n0", "n1", "n2"]
    assert found["n0"].gpus == found["n2"].gpus


def test_a_link_speed_makes_a_difference() -> None:
    shape = load_shape("a4-highgpu-8g")
    slices = [item for number in range(2) for item in shape_slices(shape, f"n{number}", number)]
    for item in slices:
        for device in item["spec"]["devices"] if item["spec"]["nodeName"] == "n1" else ():
            device["attributes"].pop(attr.PCI_ADDRESS, None)  # or the shape would say it
            device["attributes"].pop(attr.PCI_BUS_ID, None)
            if attr.LINK_SPEED in device.get("capacity", {}):
                device["capacity"][attr.LINK_SPEED] = {"value": "100G"}
    assert {nic.line_gbytes for nic in machines_of_slices(slices)["n1"].nics} == {12.5}
