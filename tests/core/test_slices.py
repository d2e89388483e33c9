"""Devices and slices in the API's form."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dranet.core.device import Device, Taint, Version
from dranet.core.slices import chunks, resource_slices, slice_name

values = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(max_size=20), st.builds(Version, st.just("1.2.3"))
)


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), values), st.booleans())
def test_a_device_survives_the_way_to_the_api_and_back(attributes: dict[str, Any], tainted: bool) -> None:
    device = Device(name="d", attributes=attributes, capacity={"c": "1Gi"}, taints=(Taint(key="k"),) if tainted else ())
    again = Device.from_api(device.to_api())
    assert again == device
    assert {k: type(v) for k, v in again.attributes.items()} == {k: type(v) for k, v in attributes.items()}


def test_a_v1beta1_device_reads_from_its_basic_part() -> None:
    raw = {"name": "d", "basic": {"attributes": {"a": {"int": 3}}, "capacity": {"c": {"value": "2"}}}}
    assert Device.from_api(raw) == Device(name="d", attributes={"a": 3}, capacity={"c": "2"})


def test_devices_past_the_limit_go_to_further_slices_in_order() -> None:
    devices = [Device(name=f"d{i:03}") for i in range(300)]
    made = resource_slices(devices, node="n1")
    assert [len(s["spec"]["devices"]) for s in made] == [128, 128, 44]
    assert [
        d["name"] for s in sorted(made, key=lambda s: str(s["metadata"]["name"])) for d in s["spec"]["devices"]
    ] == [d.name for d in devices]
    assert {s["spec"]["pool"]["resourceSliceCount"] for s in made} == {3}


def test_a_node_without_devices_still_has_one_empty_slice() -> None:
    assert chunks([]) == [[]]


def test_names_order_beyond_sixteen_slices() -> None:
    names = [slice_name(i, "n") for i in range(40)]
    assert names == sorted(names)


def test_a_long_node_name_keeps_the_slice_name_within_bounds_and_unique() -> None:
    one, other = "n" * 252 + "a", "n" * 252 + "b"
    assert len(slice_name(0, one)) <= 253
    assert slice_name(0, one) != slice_name(0, other)
