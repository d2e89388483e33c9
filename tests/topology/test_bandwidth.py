"""The bandwidth model stays within 15 % of what was published, and reacts to distance as the machines do."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from dranet.topology.alignment import Alignment, align
from dranet.topology.bandwidth import best_busbw, job_busbw, pod_busbw, sweep_average
from dranet.topology.machine import Machine, machine_of_shape, machines_of_slices
from dranet.topology.shape import load_shape
from dranet.topology.shape_devices import shape_slices

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "bandwidth.py"))


@pytest.fixture
def gb300() -> Machine:
    return machine_of_shape(load_shape("nd-gb300-v6"), "n")


@pytest.mark.parametrize("row", BENCH["compare"](), ids=lambda row: f"{row['document']}: {row['what']}")
def test_the_model_is_within_15_percent_of(row: dict[str, Any]) -> None:
    assert abs(row["error"]) <= 0.15


def test_crossing_numa_nodes_halves_a_gb300_card(gb300: Machine) -> None:
    gpu = gb300.gpus[:1]
    near, far = (pod_busbw(align(gpu, [gb300.nics[i]]), gpu) for i in (0, 2))
    assert near is not None and far is not None
    assert 2 < near / far < 2.5


def test_the_best_of_a_far_pair_is_the_near_one(gb300: Machine) -> None:
    gpu = gb300.gpus[:1]
    assert best_busbw(align(gpu, gb300.nics[2:3]), gpu) == pod_busbw(align(gpu, gb300.nics[:1]), gpu)


def test_nothing_is_claimed_for_a_card_of_unknown_speed() -> None:
    slices = shape_slices(load_shape("a4-highgpu-8g"), "n")
    for slice_ in slices:
        for device in slice_["spec"]["devices"]:
            device.pop("capacity", None)
            device["attributes"].pop("productName", None)
            for name in ("resource.kubernetes.io/pciBusID", "dra.net/pciAddress"):
                device["attributes"].pop(name, None)
    machine = machines_of_slices(slices)["n"]
    assert pod_busbw(align(machine.gpus[:1], machine.nics[:1]), machine.gpus[:1]) is None


def test_nothing_is_claimed_for_one_gpu_without_a_card(gb300: Machine) -> None:
    assert pod_busbw(Alignment(), gb300.gpus[:1]) is None


def test_a_slow_pod_slows_the_job_but_not_to_its_own_speed() -> None:
    assert 25 < job_busbw([25.0, 50.0]) < 37.5


def test_an_average_over_sizes_is_below_the_peak() -> None:
    assert 0 < sweep_average(50, 2, "all_reduce") < 50
