"""The bandwidth model against published results, and how it reacts to distance, fabric, collective and pods."""

from __future__ import annotations

import runpy
import statistics
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dranet.machines.alignment import Alignment, align
from dranet.machines.bandwidth import (
    Estimate,
    JobPod,
    NoEstimate,
    estimate,
    perfectly_aligned,
    ring_estimate,
    sweep_average,
)
from dranet.machines.bandwidth_parameters import Parameters, parameters
from dranet.machines.machine import machines_of_slices
from dranet.machines.shape import load_shape, shape_names
from dranet.machines.shape_devices import shape_slices
from tests.machines.conftest import machine_of

BENCH = runpy.run_path(str(Path(__file__).parents[2] / "bench" / "bandwidth.py"))
ROWS = BENCH["compare"]()
EXPLAINED = [row for row in ROWS if not row["unexplained"]]


def a_pod(shape: str, gpus: int, *nics: int) -> JobPod:
    found = machine_of(shape)
    return JobPod(found.gpus[:gpus], align(found.gpus[:gpus], [found.nics[n] for n in nics]))


def whole(shape: str) -> JobPod:
    found = machine_of(shape)
    return JobPod(found.gpus, align(found.gpus, found.nics))


def figure(found: Estimate | NoEstimate) -> Estimate:
    assert isinstance(found, Estimate), found
    return found


def reason(found: Estimate | NoEstimate) -> str:
    assert isinstance(found, NoEstimate), found
    return found.reason


@pytest.mark.parametrize("row", EXPLAINED, ids=lambda row: f"{row['row']}: {row['what']}")
def test_published_is_within_its_limit(row: dict[str, Any]) -> None:
    assert abs(row["error"]) <= row["limit"]


@pytest.mark.parametrize("row", EXPLAINED, ids=lambda row: f"{row['row']}: {row['what']}")
def test_published_is_within_the_range_an_answer_gives(row: dict[str, Any]) -> None:
    spread = getattr(parameters().spread, row["bound"])
    assert 1 - spread <= row["published_gbytes"] / row["model_gbytes"] <= 1 + spread


def test_half_of_the_published_rows_are_within_8_percent() -> None:
    assert statistics.median(abs(row["error"]) for row in EXPLAINED) < 0.08


def test_a_row_is_left_unexplained_only_with_a_reason() -> None:
    assert {row["row"] for row in ROWS if row["unexplained"]} == {"r12"}


@pytest.fixture(scope="module")
def best() -> Parameters:
    found: Parameters = BENCH["fit"](BENCH["rows"]())
    return found


@pytest.mark.parametrize("name", BENCH["FITTED"])
def test_the_parameter_is_the_one_that_fits_the_rows(name: str, best: Parameters) -> None:
    assert getattr(parameters(), name) == pytest.approx(getattr(best, name), rel=0.015)


def test_crossing_numa_nodes_halves_a_gb300_nic() -> None:
    close, far = (figure(ring_estimate(a_pod("nd-gb300-v6", 1, n))).gbytes for n in (0, 2))
    assert 2 < close / far < 2.5


def test_the_best_of_a_far_pair_is_the_near_one() -> None:
    far, close = a_pod("nd-gb300-v6", 1, 2), a_pod("nd-gb300-v6", 1, 0)
    assert figure(ring_estimate(perfectly_aligned(far))).gbytes == figure(ring_estimate(close)).gbytes


def test_a_job_is_as_slow_as_its_slowest_pod() -> None:
    close, far = a_pod("nd-gb300-v6", 1, 0), a_pod("nd-gb300-v6", 1, 2)
    assert figure(estimate([close, far])).gbytes == figure(estimate([far, far])).gbytes


def test_nics_too_far_from_every_gpu_are_left_out_while_others_are_near() -> None:
    found = machine_of("a4-highgpu-8g")
    gpus = (found.gpus[0], found.gpus[1], found.gpus[6], found.gpus[7])
    two = figure(ring_estimate(a_pod("a4-highgpu-8g", 2, 0, 1)))
    mixed = figure(ring_estimate(JobPod(gpus, align(gpus, found.nics[:4]))))
    assert mixed.gbytes == two.gbytes
    assert mixed.notes == ("2 of 4 NICs of a pod are too far from their GPUs and not used",)


def test_storage_nics_beside_fast_ones_change_nothing() -> None:
    pod = whole("a3-ultragpu-8g")
    pairs = pod.alignment.pairs
    slow = replace(pairs[0], nic=replace(pairs[0].nic, device="storage", line_gbytes=12.5))
    assert ring_estimate(JobPod(pod.gpus, Alignment((*pairs, slow)))) == ring_estimate(pod)


def test_two_pods_gain_from_a_tree_in_all_reduce_and_not_in_all_gather() -> None:
    pods = [whole("a4-highgpu-8g")] * 2
    reduce, gather = figure(estimate(pods)), figure(estimate(pods, "all_gather"))
    assert (reduce.algorithm, gather.algorithm) == ("NVLSTree", "Ring")
    assert reduce.gbytes / gather.gbytes == pytest.approx(1.875 * parameters().tree_share, rel=0.01)


def test_from_four_pods_on_large_messages_take_the_ring() -> None:
    assert figure(estimate([whole("a4-highgpu-8g")] * 4)).algorithm == "Ring"


def test_small_messages_take_fewer_steps_than_a_ring() -> None:
    assert figure(estimate([whole("a4-highgpu-8g")] * 4, size=1 << 20)).algorithm != "Ring"


def test_inside_a_switched_machine_all_reduce_is_done_by_the_switch() -> None:
    pod = replace(whole("a3-ultragpu-8g"), alignment=Alignment())
    found = figure(estimate([pod]))
    assert (found.algorithm, found.bound, found.network) == ("NVLS", "inside", None)
    assert found.gbytes > figure(estimate([pod], "all_gather")).gbytes


def test_all_to_all_sends_what_is_for_other_pods_over_each_gpus_own_nic() -> None:
    pods = [whole("a3-ultragpu-8g")] * 2
    ring = figure(estimate(pods, "all_gather")).gbytes
    assert figure(estimate(pods, "alltoall")).gbytes == pytest.approx(ring / 8 * 15 / 8)


def test_send_and_receive_use_one_gpus_share_of_the_nics() -> None:
    pods = [whole("a3-ultragpu-8g")] * 2
    assert figure(estimate(pods, "sendrecv")).gbytes == pytest.approx(figure(ring_estimate(pods[0])).gbytes / 8)


def test_the_network_and_the_inside_share_stand_beside_the_figure() -> None:
    found = figure(estimate([whole("a3-ultragpu-8g")] * 2))
    assert found.network is not None and found.inside is not None
    assert found.gbytes == min(found.network, found.inside)


def test_pods_on_different_fabrics_get_the_reason_and_no_figure() -> None:
    pods = [a_pod("nd-gb300-v6", 1, 0), a_pod("a4-highgpu-8g", 1, 0)]
    assert reason(estimate(pods)) == "pods on different fabrics (gce-roce, infiniband), which do not reach each other"


def test_gpus_of_different_generations_get_the_reason_and_no_figure() -> None:
    pods = [a_pod("a3-ultragpu-8g", 1, 0), a_pod("a4-highgpu-8g", 1, 0)]
    assert reason(estimate(pods)) == "the job has GPUs of different architectures (Blackwell, Hopper)"


def test_pods_without_nics_get_no_figure_of_the_network() -> None:
    pods = [JobPod(machine_of("a4-highgpu-8g").gpus[:2])] * 2
    assert reason(estimate(pods)).startswith("2 of 2 pods have no NIC of their own")


def test_one_gpu_alone_has_no_figure() -> None:
    assert reason(estimate([JobPod(machine_of("nd-gb300-v6").gpus[:1])])) == "a single GPU has no peers"


def test_a_job_of_no_pods_has_no_figure() -> None:
    assert reason(estimate([])) == "the job has no pods"


def test_a_collective_nobody_modelled_is_reported_to_be_one() -> None:
    assert reason(estimate([whole("a4-highgpu-8g")] * 2, "hypercube")).startswith("hypercube is not in the model")


def test_nothing_is_claimed_for_a_nic_of_unknown_speed() -> None:
    slices = shape_slices(load_shape("a4-highgpu-8g"), "n")
    for slice_ in slices:
        for device in slice_["spec"]["devices"]:
            device.pop("capacity", None)
            for name in ("resource.kubernetes.io/pciBusID", "dra.net/pciAddress"):
                device["attributes"].pop(name, None)
    found = machines_of_slices(slices)["n"]
    pod = JobPod(found.gpus[:1], align(found.gpus[:1], found.nics[:1]))
    assert reason(ring_estimate(pod)).startswith("the speed of mlx5_0 is unknown")


def test_gpus_of_unknown_links_leave_only_the_network_and_say_so() -> None:
    pod = whole("a4-highgpu-8g")
    strange = tuple(replace(gpu, product="NVIDIA Z9", nvlink_gbytes=0) for gpu in pod.gpus)
    nics = [pair.nic for pair in pod.alignment.pairs]
    found = figure(estimate([JobPod(strange, align(strange, nics))] * 2))
    assert found.inside is None
    assert found.notes == ("the links between these GPUs are unknown: only the network counts",)


def test_an_average_over_sizes_is_below_the_peak() -> None:
    found = figure(ring_estimate(a_pod("a4-highgpu-8g", 1, 0)))
    assert 0 < sweep_average(found) < found.gbytes


def test_a_figure_lies_inside_its_own_range() -> None:
    found = figure(ring_estimate(a_pod("a4-highgpu-8g", 1, 0)))
    assert found.low < found.gbytes < found.high


@pytest.mark.parametrize(
    ("row", "minimum"),
    [("r13", 150), ("r17", 300), ("r01", 460), ("r26", 228)],
    ids=["a3-mega", "EKS", "ND H100 v5 inside", "ND A100 v4 inside"],
)
def test_what_providers_demand_at_least_is_below_the_model(row: str, minimum: float) -> None:
    assert next(one["model_gbytes"] for one in ROWS if one["row"] == row) >= minimum


def test_a_pod_with_storage_nics_of_another_fabric_talks_over_the_one_for_gpus() -> None:
    pods = [whole("dgx-h100")] * 2
    assert {nic.network for nic in pods[0].nics} == {"infiniband", "roce"}
    found = figure(estimate(pods, "all_gather"))
    assert found.gbytes == pytest.approx(8 * 50 * parameters().network_efficiency)


def test_only_gpus_on_the_cpus_memory_bus_have_more_than_their_slot() -> None:
    one_gpu = figure(ring_estimate(a_pod("a3-ultragpu-8g", 1, 0, 1))).gbytes
    assert one_gpu == pytest.approx(parameters().pcie_gbytes * parameters().network_efficiency)
    on_bus = figure(ring_estimate(a_pod("nd-gb300-v6", 1, 0, 1))).gbytes
    assert on_bus == pytest.approx(2 * parameters().pcie_gbytes * parameters().network_efficiency)


@pytest.mark.parametrize("shape", shape_names())
def test_two_whole_machines_of_every_shape_have_a_figure(shape: str) -> None:
    found = figure(estimate([whole(shape)] * 2))
    assert found.network is not None and found.low < found.gbytes < found.high
