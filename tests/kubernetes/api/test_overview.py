"""Slices and claims side by side."""

from __future__ import annotations

from typing import Any

from dranet.core.device import Device, Taint
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.overview import OverviewBuilder, overview

TAINT = Taint(key="dra.net/link-down")


def a_claim(name: str, device: str, **status: Any) -> dict[str, Any]:
    results: list[dict[str, Any]] = [
        {"driver": "dra.net", "pool": "n1", "device": device, "request": "nic"},
        {"driver": "gpu.example.com", "pool": "n1", "device": "gpu0", "request": "gpu"},
    ]
    allocation = {"allocation": {"devices": {"results": results}}}
    return {"metadata": {"name": name, "namespace": "team"}, "status": {**allocation, **status}}


def test_a_device_names_the_claim_and_the_pods_that_hold_it() -> None:
    claim = a_claim("c", "a", reservedFor=[{"resource": "pods", "name": "p", "uid": "u"}])
    [line] = overview(resource_slices([Device(name="a")], node="n1"), [claim]).devices
    [use] = line.used_by
    assert (use.claim, use.request, use.pods, use.ready) == ("team/c", "nic", ("p",), None)


def test_a_failed_condition_makes_the_use_not_ready_and_says_why() -> None:
    conditions = [
        {"type": "Ready", "status": "True", "reason": "x"},
        {"type": "NetworkReady", "status": "False", "reason": "RouteFailed", "message": "no such gateway"},
    ]
    said = [{"driver": "dra.net", "pool": "n1", "device": "a", "conditions": conditions}]
    [line] = overview(resource_slices([Device(name="a")], node="n1"), [a_claim("c", "a", devices=said)]).devices
    assert line.used_by[0].ready is False
    assert line.used_by[0].message == "NetworkReady: no such gateway"


def test_a_held_device_that_is_not_published_is_shown_as_such() -> None:
    lines = overview(resource_slices([Device(name="a")], node="n1"), [a_claim("c", "gone")]).devices
    assert [(line.device, line.published) for line in lines] == [("a", True), ("gone", False)]


def test_only_the_newest_generation_counts_and_a_missing_slice_shows() -> None:
    old = resource_slices([Device(name="old")], node="n1", generation=1)
    old[0]["metadata"]["name"] = "old"
    new = resource_slices([Device(name=f"d{i}") for i in range(130)], node="n1", generation=2)
    [pool] = overview([*old, new[0]], []).pools
    assert (pool.generation, pool.devices, pool.slices, pool.expected_slices) == (2, 128, 1, 2)
    assert not pool.complete


def test_used_and_tainted_devices_are_counted_by_node() -> None:
    slices = resource_slices([Device(name="a"), Device(name="b", taints=(TAINT,))], node="n1")
    slices += resource_slices([Device(name="c")], node="n2")
    pools = overview(slices, [a_claim("c", "a")]).pools
    assert [(pool.node, pool.devices, pool.used, pool.tainted) for pool in pools] == [("n1", 2, 1, 1), ("n2", 1, 0, 0)]


def test_with_little_room_devices_that_are_used_or_tainted_have_lines_and_all_are_counted() -> None:
    plain = [Device(name=f"d{i}") for i in range(8)]
    builder = OverviewBuilder(limit=3)
    builder.add_claims([a_claim("c", "d7")])
    builder.add_slices(resource_slices([*plain, Device(name="t", taints=(TAINT,))], node="n1"))
    found = builder.overview()
    assert [line.device for line in found.devices] == ["d7", "t"]
    assert [(pool.devices, pool.used, pool.tainted) for pool in found.pools] == [(9, 1, 1)]


def test_there_are_never_more_lines_than_room() -> None:
    builder = OverviewBuilder(limit=3)
    builder.add_slices(resource_slices([Device(name=f"t{i}", taints=(TAINT,)) for i in range(9)], node="n1"))
    found = builder.overview()
    assert len(found.devices) <= 4
    assert found.pools[0].tainted == 9


def test_two_shares_of_one_device_have_separate_ready_states() -> None:
    results: list[dict[str, Any]] = [
        {"driver": "dra.net", "pool": "n1", "device": "a", "request": name, "shareID": name, "consumedCapacity": {}}
        for name in ("one", "two")
    ]
    bad = {"type": "NetworkReady", "status": "False", "reason": "Failed"}
    said = [{"driver": "dra.net", "pool": "n1", "device": "a", "shareID": "two", "conditions": [bad]}]
    status = {"allocation": {"devices": {"results": results}}, "devices": said}
    claim = {"metadata": {"name": "c", "namespace": "team"}, "status": status}
    [line] = overview(resource_slices([Device(name="a")], node="n1"), [claim]).devices
    assert {use.request: use.ready for use in line.used_by} == {"one": None, "two": False}
