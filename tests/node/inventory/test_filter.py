"""The filter means what the reference driver's means."""

from __future__ import annotations

import pytest

from dranet.core.attributes import DEFAULT_FILTER
from dranet.core.device import Device, Version
from dranet.core.errors import InvalidInput
from dranet.node.inventory.filter import DeviceFilter

DEVICE = Device(
    name="x",
    attributes={
        "dra.net/type": "dummy",
        "dra.net/virtual": True,
        "dra.net/mtu": 1500,
        "a.b/version": Version("1.2.3"),
        "resource.kubernetes.io/numaNode": (1, 0),
    },
)


@pytest.mark.parametrize(
    ("attributes", "kept"),
    [({}, True), ({"dra.net/type": "dummy"}, True), ({"dra.net/type": "veth"}, False), ({"dra.net/type": 4}, True)],
)
def test_the_default_keeps_everything_but_veth(attributes: dict[str, str], kept: bool) -> None:
    assert DeviceFilter(DEFAULT_FILTER).keeps(Device(name="x", attributes=attributes)) is kept


@pytest.mark.parametrize(
    ("expression", "kept"),
    [
        ("", True),
        ('attributes["dra.net/virtual"].BoolValue == false', False),
        ('attributes["dra.net/virtual"].BoolValue', True),
        ('attributes["dra.net/mtu"].IntValue > 1400', True),
        ('attributes["a.b/version"].VersionValue == "1.2.3"', True),
        ('attributes["resource.kubernetes.io/numaNode"].IntValues[1] == 0', True),
        ('attributes.exists(key, key.startsWith("dra.net/m"))', True),
        ("size(attributes) == 5", True),
    ],
)
def test_values_are_read_through_fields_named_after_their_kind(expression: str, kept: bool) -> None:
    assert DeviceFilter(expression).keeps(DEVICE) is kept


def test_a_field_of_another_kind_reads_as_its_zero_value() -> None:
    assert DeviceFilter('attributes["dra.net/mtu"].StringValue == ""').keeps(DEVICE)
    assert not DeviceFilter('attributes["dra.net/type"].BoolValue').keeps(DEVICE)


def test_an_error_while_evaluating_keeps_the_device() -> None:
    assert DeviceFilter('attributes["no/such"].BoolValue == true').keeps(DEVICE)


@pytest.mark.parametrize("expression", ["1", '"yes"', "size(attributes)", "null"])
def test_a_result_that_is_no_boolean_drops_the_device(expression: str) -> None:
    assert not DeviceFilter(expression).keeps(DEVICE)


@pytest.mark.parametrize(
    "expression", ["attributes[", "nothing", 'attributes["x"].Stringvalue == ""', "attributes + 1", 'int("x") == 1']
)
def test_an_expression_that_does_not_compile_says_where_in_one_line(expression: str) -> None:
    with pytest.raises(InvalidInput, match="does not compile") as caught:
        DeviceFilter(expression)
    assert "\n" not in str(caught.value)
