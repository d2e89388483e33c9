"""GPU drivers list their devices in no fixed order, and number them as they like: no answer depends on it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dranet.advise.lint import lint
from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.hardware import hardware_of_slices
from dranet.advise.plan.planning import plan
from dranet.advise.suggest import stateful_set, suggest
from dranet.machines.machine import machines_of_slices
from dranet.machines.matrix import matrix
from dranet.machines.shape import load_shape, shape_names
from dranet.machines.shape_devices import shape_slices

suggest(hardware_of_slices(shape_slices(load_shape("nd-gb300-v6"), "n")), 1, 1)  # raises Python's recursion limit, once
SAMPLE = ["a4-highgpu-8g", "nd-gb300-v6", "p4d.24xlarge", "dgx-h200", "nd-mi300x-v5"]


def shuffled(name: str, chance: random.Random, *, rename: bool = False) -> list[dict[str, Any]]:
    slices: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(shape_slices(load_shape(name), "n")))
    for item in slices:
        if item["spec"]["driver"].startswith("gpu."):
            devices = item["spec"]["devices"]
            chance.shuffle(devices)
            for number, device in enumerate(devices if rename else ()):
                device["name"] = f"gpu-{number}"
    return slices


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(shape_names()), st.booleans(), st.randoms(use_true_random=False))
def test_the_matrix_is_the_same_in_any_order_and_under_any_numbers(
    name: str, rename: bool, chance: random.Random
) -> None:
    plain = machines_of_slices(shape_slices(load_shape(name), "n"))["n"]
    found = machines_of_slices(shuffled(name, chance, rename=rename))["n"]
    assert (found.shape, matrix(found)) == (plain.shape, matrix(plain))
    assert [gpu.address for gpu in found.gpus] == [gpu.address for gpu in plain.gpus]


@settings(deadline=None, max_examples=15)
@given(st.sampled_from(SAMPLE), st.integers(1, 2), st.randoms(use_true_random=False))
def test_a_suggestion_is_as_good_on_machines_that_list_their_gpus_otherwise(
    name: str, number: int, chance: random.Random
) -> None:
    plain = suggest(hardware_of_slices(shape_slices(load_shape(name), "n")), number, number)
    other = hardware_of_slices(shuffled(name, chance))
    found = suggest(other, number, number)
    assert (found.manifest, found.worst, found.per_node) == (plain.manifest, plain.worst, plain.per_node)
    objects, problems = read_text(found.manifest, "suggested.yaml")
    assert [one for one in lint(objects, problems, other) if one.severity != "info"] == []


@pytest.mark.parametrize("name", SAMPLE)
def test_every_pod_of_a_full_machine_is_aligned_in_any_order(name: str) -> None:
    for seed in range(3):
        hardware = hardware_of_slices(shuffled(name, random.Random(seed)))
        found = suggest(hardware, 1, 1)
        objects, _ = read_text(found.manifest, "x.yaml")
        pods = "---\n".join(stateful_set(obj.name, 32) for obj in objects)
        made = plan(Manifests([*objects, *read_text(pods, "pods.yaml")[0]]), hardware)
        assert {pod.quality.alignment.worst for pod in made.pods} == {found.worst}
