"""Every recorded verdict of the real kube-scheduler on 300 small clusters: fits or not, words, node, devices."""

from __future__ import annotations

import copy
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.golden import read_lines
from tests.golden.clusters import compare_world

DATA = Path(__file__).parent.parent / "data" / "worlds-1.jsonl.gz"
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_all_recorded_verdicts_of_the_1_36_scheduler_agree(part: int) -> None:
    found = [step for line in islice(read_lines(DATA), part, None, PARTS) for step in compare_world(line)]
    assert [step for step in found if step[1] is not None] == []
    assert len(found) > 1391 // PARTS - 40


def test_a_node_that_is_not_among_the_best_is_a_difference() -> None:
    line = _with_two_nodes_that_fit()
    verdict = line["steps"][0]["verdict"]
    others = {raw["metadata"]["name"] for raw in line["objects"] if raw["kind"] == "Node"} - {verdict["node"]}
    differences = []
    for node in sorted(others):
        changed = copy.deepcopy(line)
        changed["steps"] = changed["steps"][:1]
        changed["steps"][0]["verdict"]["node"] = node
        differences += [found for _, found in compare_world(changed)]
    assert any(found and found.startswith(f"expected node {min(others)[:2]}") for found in differences)


def test_a_pod_that_is_where_it_does_not_fit_is_a_difference_and_ends_the_comparison() -> None:
    """Not an error: what it got there, and so what is left for those after it, is not known."""
    line = next(line for line in read_lines(DATA) if _begins_with_claims_that_fit_nowhere(line))
    node = next(raw["metadata"]["name"] for raw in line["objects"] if raw["kind"] == "Node")
    line["steps"][0]["verdict"] = {"node": node, "devices": {}}
    ((_, found),) = compare_world(line)
    assert found is not None
    assert found.endswith("the pods after it are not compared")


def _begins_with_claims_that_fit_nowhere(line: dict[str, Any]) -> bool:
    first = line["steps"][0]
    return "cannot allocate all claims" in first["verdict"].get("message", "") and len(line["steps"]) > 1


def test_another_sentence_is_a_difference() -> None:
    line = next(line for line in read_lines(DATA) if "message" in line["steps"][0]["verdict"])
    line["steps"][0]["verdict"]["message"] += " "
    assert next(iter(compare_world(line)))[1] is not None


def test_other_devices_are_a_difference() -> None:
    line = next(line for line in read_lines(DATA) if line["steps"][0]["verdict"].get("devices"))
    for devices in line["steps"][0]["verdict"]["devices"].values():
        devices[0][3] = "another"
    found = next(iter(compare_world(line)))[1]
    assert found is not None
    assert "another" in found


def _with_two_nodes_that_fit() -> dict[str, Any]:
    for line in read_lines(DATA):
        first = line["steps"][0]
        if first["verdict"].get("node") and first["pod"]["spec"]["containers"][0]["resources"].get("requests"):
            nodes = [raw for raw in line["objects"] if raw["kind"] == "Node"]
            if len(nodes) > 3:
                return line
    raise AssertionError("no such line")


def test_all_verdicts_recorded_live_agree() -> None:
    """Fifty-nine worlds of the cluster tier with what the 300 do not have: priorities, sidecars, services, plugins."""
    found = [step for line in read_lines(DATA.with_name("worlds-live.jsonl.gz")) for step in compare_world(line)]
    assert [step for step in found if step[1] is not None] == []
    assert len(found) == 423
