"""Edits of single fields leave the rest of the text as it is."""

from __future__ import annotations

import pytest
import yaml

from dranet.advise.manifests.yaml_edit import append, put, remove

POD = """\
# who runs this
kind: Pod
spec:
  containers:
  - image: i   # pinned
    name: c
    resources:
      limits:
        nvidia.com/gpu: 1 # one
        cpu: 2

  # what follows
  volumes: []
"""
FLOW = "kind: Pod\nspec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}], volumes: []} # end\n"
JSON = '{\n  "kind": "Pod",\n  "spec": {\n    "containers": [\n      {"name": "c"}\n    ]\n  }\n}\n'
LIMITS = ("spec", "containers", 0, "resources", "limits", "nvidia.com/gpu")


def test_a_removed_field_takes_its_line_only() -> None:
    assert remove(POD, LIMITS) == POD.replace("        nvidia.com/gpu: 1 # one\n", "")


def test_parents_that_would_be_empty_go_too() -> None:
    alone = POD.replace("        cpu: 2\n", "")
    assert remove(alone, LIMITS) == POD.replace(
        "    resources:\n      limits:\n        nvidia.com/gpu: 1 # one\n        cpu: 2\n", ""
    )
    assert remove(FLOW, LIMITS) == "kind: Pod\nspec: {containers: [{name: c}], volumes: []} # end\n"


def test_the_first_field_of_a_list_item_leaves_the_dash() -> None:
    assert "  - name: c\n    resources:" in remove(POD, ("spec", "containers", 0, "image"))


def test_a_new_field_is_below_the_last_one_of_its_mapping() -> None:
    found = put(POD, ("spec", "containers", 0, "securityContext", "capabilities", "add"), ["IPC_LOCK"])
    added = "    securityContext:\n      capabilities:\n        add:\n        - IPC_LOCK\n"
    assert found == POD.replace("        cpu: 2\n", "        cpu: 2\n" + added)


@pytest.mark.parametrize("text", [POD, FLOW, JSON, POD.replace("volumes: []", "volumes:")])
def test_an_appended_item_is_the_last(text: str) -> None:
    for item in ({"name": "a"}, {"name": "b: #"}):
        text = append(text, ("spec", "volumes"), item)
    assert yaml.safe_load(text)["spec"]["volumes"][-2:] == [{"name": "a"}, {"name": "b: #"}]


def test_an_item_of_a_block_list_keeps_the_list_s_indentation() -> None:
    text = "a:\n    - x: 1\n      y: |\n        text\n\nb: 2\n"
    assert append(text, ("a",), {"x": 2}) == "a:\n    - x: 1\n      y: |\n        text\n    - x: 2\n\nb: 2\n"


def test_values_are_replaced_in_place() -> None:
    assert put("a: 1 # one\nb: 2\n", ("a",), "8") == "a: '8' # one\nb: 2\n"
    assert put("a:\nb: 2\n", ("a", "c"), 3) == "a: {c: 3}\nb: 2\n"
    assert put("a: {}\n", ("a", "c"), 3) == "a: {c: 3}\n"


def test_an_item_of_a_list_can_go() -> None:
    assert remove("a:\n- x: 1\n- x: 2 # two\n- x: 3\n", ("a", 1)) == "a:\n- x: 1\n- x: 3\n"
    assert remove("a: [1, 2, 3]\n", ("a", 0)) == "a: [2, 3]\n"
    assert remove("a: [1, 2, 3]\n", ("a", 2)) == "a: [1, 2]\n"


def test_a_missing_field_changes_nothing() -> None:
    assert remove(POD, ("spec", "nothing")) == POD
