"""The API's limits, each with what breaks it."""

import pytest

from dranet.core.device import Device, Taint, Version
from dranet.core.slices import device_problems, slice_problems


def messages(device: Device) -> str:
    return "; ".join(map(str, device_problems(device)))


def test_an_ordinary_device_has_no_problem() -> None:
    device = Device(
        name="pci-0000-8a-00-0",
        attributes={"dra.net/ifName": "eth1", "dra.net/mtu": 1500, "dra.net/rdma": True, "v": Version("1.2.3-rc.1")},
        capacity={"dra.net/linkSpeed": "400G"},
        taints=(Taint(key="dra.net/link-down"),),
    )
    assert device_problems(device) == []


@pytest.mark.parametrize(
    ("device", "complaint"),
    [
        (Device(name="Eth0"), "not a DNS label"),
        (Device(name="a", attributes={f"a{i}": 1 for i in range(33)}), "33 attributes and capacities"),
        (Device(name="a", attributes={"x": tuple(range(49))}), "49 attribute values"),
        (Device(name="a", attributes={"x": "y" * 65}), "longer than 64 bytes"),
        (Device(name="a", attributes={"x": "é" * 33}), "longer than 64 bytes"),
        (Device(name="a", attributes={"x": 2**63}), "does not fit into 64 bits"),
        (Device(name="a", attributes={"x": 1.5}), "cannot be an attribute value"),
        (Device(name="a", attributes={"x": Version("1.2")}), "not a semantic version"),
        (Device(name="a", attributes={"x": ()}), "empty list"),
        (Device(name="a", attributes={"x": "\udc80"}), "not valid UTF-8"),
        (Device(name="a", attributes={"has-dash": 1}), "not an identifier"),
        (Device(name="a", attributes={"y" * 33: 1}), "not an identifier of at most 32"),
        (Device(name="a", attributes={"bad_domain/x": 1}), "not a DNS subdomain"),
        (Device(name="a", capacity={"x": "fast"}), "not a quantity"),
        (Device(name="a", taints=(Taint(key="no spaces"),)), "not a label name"),
        (Device(name="a", taints=(Taint(key="k", effect="Never"),)), "not one of NoSchedule"),
        (Device(name="a", taints=tuple(Taint(key=f"k{i}") for i in range(17))), "17 taints"),
    ],
)
def test_each_broken_limit_is_named(device: Device, complaint: str) -> None:
    assert complaint in messages(device)


def test_a_slice_takes_128_devices_and_not_129() -> None:
    devices = [Device(name=f"d{i}") for i in range(129)]
    assert slice_problems(devices[:128]) == []
    assert "at most 128" in str(slice_problems(devices)[0])


def test_one_taint_lowers_the_limit_to_64() -> None:
    devices = [Device(name=f"d{i}") for i in range(64)] + [Device(name="t", taints=(Taint(key="k"),))]
    assert "at most 64" in str(slice_problems(devices)[0])


def test_two_devices_of_one_name_are_a_problem() -> None:
    assert "named 'a'" in str(slice_problems([Device(name="a"), Device(name="a")])[0])
