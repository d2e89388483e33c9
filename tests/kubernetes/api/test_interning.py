"""Objects of a fleet take little memory and say the same."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from dranet.kubernetes.api.interning import InterningDecoder

KIND = "ResourceSlice"


def a_slice(node: str) -> dict[str, Any]:
    attributes = {"dra.net/state": {"string": "up"}, "dra.net/mtu": {"int": 8896}, "dra.net/sriov": {"bool": True}}
    attributes["dra.net/mac"] = {"string": node}
    device = {"name": "eth0", "attributes": attributes, "capacity": {"dra.net/bandwidth": {"value": "400G"}}}
    metadata = {"name": node, "managedFields": [{"manager": "dranet"}]}
    return {"kind": "ResourceSlice", "metadata": metadata, "spec": {"nodeName": node, "devices": [device]}}


def read(*items: dict[str, Any]) -> list[dict[str, Any]]:
    """As a page of a list brings them."""
    decoder = InterningDecoder()
    page = decoder.page(msgspec.json.encode({"metadata": {"n": "1"}, "items": items}))
    assert page["metadata"] == {"n": "1"}
    return decoder.items(page, KIND)


def values(item: dict[str, Any], of: str = "attributes") -> dict[str, Any]:
    found: dict[str, Any] = item["spec"]["devices"][0][of]
    return found


def test_what_two_devices_say_alike_is_one_object_and_the_rest_stays_theirs() -> None:
    first, second = read(a_slice("a"), a_slice("b"))
    for name in ("dra.net/state", "dra.net/mtu", "dra.net/sriov"):
        assert values(first)[name] is values(second)[name]
    assert all(one is other for one, other in zip(values(first), values(second), strict=True)), "names too"
    assert values(first, "capacity")["dra.net/bandwidth"] is values(second, "capacity")["dra.net/bandwidth"]
    assert values(second)["dra.net/mac"] == {"string": "b"}


def test_nothing_is_lost_but_managed_fields() -> None:
    given = a_slice("a")
    expected = copy.deepcopy(given)
    del expected["metadata"]["managedFields"]
    assert read(given) == [expected]


def test_true_and_one_are_not_taken_for_the_same() -> None:
    """Python says they are equal; a bool and an int of the API differ by the name next to them."""
    first, second = a_slice("a"), a_slice("b")
    values(first)["x"], values(second)["x"] = {"bool": True}, {"int": 1}
    first, second = read(first, second)
    assert values(second)["x"] == {"int": 1}
    assert values(second)["x"]["int"] is not True


def test_a_value_that_is_a_list_stays_as_it_came() -> None:
    given = a_slice("a")
    values(given)["dra.net/rails"] = {"strings": ["0", "1"]}
    (given,) = read(given)
    assert values(given)["dra.net/rails"] == {"strings": ["0", "1"]}


def test_what_an_event_brings_is_read_alike() -> None:
    decoder = InterningDecoder()
    (first,) = decoder.items(decoder.page(msgspec.json.encode({"items": [a_slice("a")]})), KIND)
    second = decoder.object(msgspec.Raw(msgspec.json.encode(a_slice("a"))), KIND)
    assert first == second
    assert values(first)["dra.net/mac"] is values(second)["dra.net/mac"]


def test_a_device_of_an_older_server_shares_its_values_too() -> None:
    first, second = a_slice("a"), a_slice("b")
    for one in (first, second):
        device = one["spec"]["devices"][0]
        one["spec"]["devices"] = [{"name": device.pop("name"), "basic": device}]
    expected = copy.deepcopy(first)
    del expected["metadata"]["managedFields"]
    read_first, read_second = read(first, second)
    assert read_first == expected
    states = [item["spec"]["devices"][0]["basic"]["attributes"]["dra.net/state"] for item in (read_first, read_second)]
    assert states[0] is states[1]


def test_what_is_null_or_missing_stays_so() -> None:
    for spec in ({"nodeName": "n"}, {"devices": None}, {"devices": [{"name": "a", "attributes": None}]}, {}):
        given = {"kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": spec}
        assert read(given) == [given]
    for empty in (b'{"items": null}', b"{}"):
        assert InterningDecoder().items(InterningDecoder().page(empty), KIND) == []
