"""Suggestions: the claim that aligns on this hardware, proved by planning it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.advise.lint import lint
from dranet.advise.manifests import Manifests, must_read, read_text
from dranet.advise.plan.hardware import hardware_of_slices
from dranet.advise.plan.planning import plan
from dranet.advise.suggest import suggest, suggestion_text
from dranet.core.errors import InvalidInput
from dranet.machines.matrix import labelled_devices, matrix
from dranet.machines.shape import shape_names
from tests.inputs import claim, shapes

DATA = Path(__file__).parents[2] / "data"
A4, GB300 = shapes("a4-highgpu-8g"), shapes("nd-gb300-v6")


@pytest.mark.parametrize(
    ("gpus", "nics", "how", "worst", "per_node"),
    [
        (1, 1, "one pcieRoot for all", "PIX", 8),
        (2, 2, "one pcieRoot for all", "PIX", 4),
        (4, 4, "2 groups, each with one pcieRoot", "PIX", 2),
        (8, 8, "all GPUs and NICs of the machine: nothing to align", "PIX", 1),
        (1, 2, "one pcieRoot for all", "PIX", 4),
        (2, 1, "one pcieRoot for all", "PIX", 4),
    ],
)
def test_on_a4(gpus: int, nics: int, how: str, worst: str, per_node: int) -> None:
    found = suggest(A4, gpus, nics)
    assert (found.how, str(found.worst), found.per_node) == (how, worst, per_node)


@pytest.mark.parametrize(("gpus", "nics"), [(1, 1), (1, 2), (2, 2)])
def test_on_gb300_devices_are_pinned_to_numa_nodes(gpus: int, nics: int) -> None:
    found = suggest(GB300, gpus, nics)
    assert (found.how, str(found.worst)) == ("chosen by PCI address and NUMA node, one template for each", "NODE")
    assert len(found.plan.pods) == 2


def test_recorded_slices_do_as_well_as_a_shape() -> None:
    recorded = hardware_of_slices(Manifests(must_read(sorted(DATA.glob("gb300-*.yaml")))).checked_slices())
    assert str(suggest(recorded, 1, 1).worst) == "NODE"


def test_one_kind_of_device_needs_no_alignment() -> None:
    assert "matchAttribute" not in suggest(A4, 0, 2).manifest
    assert suggest(A4, 0, 2).per_node == 4


UNEVEN = [(3, 2), (2, 3), (3, 5), (4, 7), (5, 4), (7, 8), (8, 2), (2, 8)]


@pytest.mark.parametrize(("gpus", "nics"), UNEVEN)
def test_uneven_numbers_get_the_nearest_devices_the_machine_has(gpus: int, nics: int) -> None:
    found = suggest(A4, gpus, nics)
    assert found.worst == found.best_possible
    assert "no claim can request" not in suggestion_text(found)


@pytest.mark.parametrize(("gpus", "nics"), [(g, n) for g in range(1, 5) for n in range(1, 5)])
def test_every_number_of_devices_of_a_gb300_machine_is_as_near_as_can_be(gpus: int, nics: int) -> None:
    found = suggest(GB300, gpus, nics)
    assert found.worst == found.best_possible


def test_groups_of_different_size_have_a_constraint_each() -> None:
    found = suggest(A4, 3, 2)
    assert found.how == "2 groups, each with one pcieRoot"
    assert "requests: [gpu-0, nic-0]" in found.manifest and "requests: [gpu-1, nic-1]" in found.manifest
    assert found.per_node > 1


def test_where_the_nearest_is_not_near_the_text_has_its_distance() -> None:
    assert "NODE" in suggestion_text(suggest(A4, 3, 1))


@pytest.mark.parametrize("shape", shape_names())
def test_suggest_lint_plan_and_topo_agree(shape: str) -> None:
    """On every machine: what is suggested is clean with the machine and without, is planned as it was promised, and
    every distance in the plan is the cell that `topo` prints."""
    hardware = shapes(shape)
    (machine,) = hardware.machines.values()
    nic_count = len([nic for nic in machine.nics if nic.rdma] or machine.nics)
    for gpus, nics in {
        (1, 1),
        (2, 1),
        (1, 2),
        (2, 2),
        (3, 3),
        (len(machine.gpus) // 2, nic_count // 2),
        (len(machine.gpus), nic_count),
    }:
        if not (0 < gpus <= len(machine.gpus) and 0 < nics <= nic_count and gpus + nics <= 32):
            continue
        made = suggest(hardware, gpus, nics)
        assert gpus != nics or gpus > 2 or made.worst == made.best_possible
        objects, problems = read_text(made.manifest, "suggested.yaml")
        for machines in (hardware, None):
            assert lint(objects, problems, machines) == [], (gpus, nics, made.manifest)
        planned = plan(Manifests(objects), hardware)
        assert not planned.unschedulable
        assert max(pod.quality.alignment.worst for pod in planned.pods) == made.worst
        cells = matrix(machine)
        labels = {part.device: label for label, part in labelled_devices(machine).items()}
        for pod in planned.pods:
            for gpu, nics_of in pod.quality.alignment.distances().items():
                for nic, far in nics_of.items():
                    assert cells[labels[gpu]][labels[nic]] == far, (gpu, nic)


def test_without_machines_lint_advises_no_constraint_that_may_never_be_met() -> None:
    (finding,) = lint(*read_text(claim("gpu: gpu.nvidia.com 8\nnic: dranet 8"), "f.yaml"))
    assert finding.fix.startswith("`dranet suggest --gpus 8 --nics 8 --shape YOUR-MACHINE`")


@pytest.mark.parametrize(
    ("count", "advice"), [(1, "matchAttribute: resource.kubernetes.io/pcieRoot"), (3, "dranet suggest")]
)
def test_with_machines_lint_advises_what_fits_on_them(count: int, advice: str) -> None:
    text = claim(f"gpu: gpu.nvidia.com {count}\nnic: dranet {count}")
    (finding,) = lint(*read_text(text, "f.yaml"), A4)
    assert advice in finding.fix


@pytest.mark.parametrize(("gpus", "nics"), [(9, 1), (1, 9), (0, 0), (-1, 1), (30, 30)])
def test_what_no_machine_has_is_refused(gpus: int, nics: int) -> None:
    with pytest.raises(InvalidInput):
        suggest(A4, gpus, nics)
