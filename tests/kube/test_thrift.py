"""Objects of a fleet take little memory and say the same."""

from __future__ import annotations

import copy
from typing import Any

from dranet.kube.thrift import Thrift


def a_slice(node: str) -> dict[str, Any]:
    attributes = {"dra.net/state": {"string": "up"}, "dra.net/mtu": {"int": 8896}, "dra.net/sriov": {"bool": True}}
    attributes["dra.net/mac"] = {"string": node}
    device = {"name": "eth0", "attributes": attributes, "capacity": {"dra.net/bandwidth": {"value": "400G"}}}
    metadata = {"name": node, "managedFields": [{"manager": "dranet"}]}
    return {"kind": "ResourceSlice", "metadata": metadata, "spec": {"nodeName": node, "devices": [device]}}


def values(item: dict[str, Any], of: str = "attributes") -> dict[str, Any]:
    found: dict[str, Any] = item["spec"]["devices"][0][of]
    return found


def test_what_two_devices_say_alike_is_one_object_and_the_rest_stays_theirs() -> None:
    first, second = Thrift().thin([a_slice("a"), a_slice("b")])
    for name in ("dra.net/state", "dra.net/mtu", "dra.net/sriov"):
        assert values(first)[name] is values(second)[name]
    assert values(first, "capacity")["dra.net/bandwidth"] is values(second, "capacity")["dra.net/bandwidth"]
    assert values(second)["dra.net/mac"] == {"string": "b"}


def test_nothing_is_lost_but_managed_fields() -> None:
    given = a_slice("a")
    expected = copy.deepcopy(given)
    del expected["metadata"]["managedFields"]
    assert Thrift().thin([given]) == [expected]


def test_true_and_one_are_not_taken_for_the_same() -> None:
    """Python says they are equal; a bool and an int of the API are told apart by the name beside them."""
    first, second = a_slice("a"), a_slice("b")
    values(first)["x"], values(second)["x"] = {"bool": True}, {"int": 1}
    Thrift().thin([first, second])
    assert values(second)["x"] == {"int": 1}
    assert values(second)["x"]["int"] is not True


def test_a_value_that_is_a_list_stays_as_it_came() -> None:
    given = a_slice("a")
    values(given)["dra.net/rails"] = {"strings": ["0", "1"]}
    Thrift().thin([given])
    assert values(given)["dra.net/rails"] == {"strings": ["0", "1"]}
