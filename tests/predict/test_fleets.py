"""Suggestions for fleets, proved on every kind; and all known machines: suggest, lint, plan and topo agree."""

from __future__ import annotations

import pytest

from dranet.lint.linting import at_least, lint
from dranet.manifests.claim_views import world_of
from dranet.manifests.reading import read_text
from dranet.predict.planning import plan
from dranet.predict.suggest.compute_domain import compute_domain
from dranet.predict.suggest.fleet_suggesting import Fleet, fleet_text, suggest_fleet
from dranet.predict.suggest.suggesting import suggest
from dranet.topology.distance import Distance
from dranet.topology.machine import machine_of_shape
from dranet.topology.matrix import matrix
from dranet.topology.shape import load_shape, shape_names

from .conftest import shapes  # type: ignore[import-not-found]


def fleet(*names: str, gpus: int = 1, nics: int = 1) -> Fleet:
    found = suggest_fleet(shapes(*names), gpus, nics)
    assert isinstance(found, Fleet)
    return found


def worst_of(found: Fleet, kind: str) -> Distance:
    """The worst pair of a pod on one kind of machine, with the fleet's manifest planned there alone."""
    (made,) = [made for made in found.plans if kind in {machine.shape for machine in made.machines.values()}]
    return max(pod.quality.alignment.worst for pod in made.pods)


def test_one_template_does_where_all_kinds_share_an_attribute() -> None:
    found = fleet("a4-highgpu-8g", "p5.48xlarge")
    assert found.how == "one template for all kinds of machines"
    assert found.manifest.count("kind: ResourceClaimTemplate") == 1 and "firstAvailable" not in found.manifest


def test_gpus_of_two_vendors_are_alternatives_of_one_request() -> None:
    found = fleet("nd-mi300x-v5", "nd-h100-v5", gpus=8, nics=8)
    assert found.how == "one template for all kinds of machines, with alternatives"
    assert "deviceClassName: gpu.amd.com" in found.manifest and "deviceClassName: gpu.nvidia.com" in found.manifest
    assert found.manifest.count("firstAvailable") == 1


@pytest.mark.parametrize(
    "kinds",
    [
        ("a4-highgpu-8g", "nd-gb300-v6"),
        ("a4-highgpu-8g", "dgx-h100", "bm.gpu.gb200.4"),
        ("p4d.24xlarge", "a3-megagpu-8g", "dgx-b200"),
        ("nd-mi300x-v5", "nd-h100-v5"),
    ],
)
@pytest.mark.parametrize("number", [1, 2])
def test_a_fleet_is_as_near_on_every_kind_as_its_own_claim_would_be(kinds: tuple[str, ...], number: int) -> None:
    found = fleet(*kinds, gpus=number, nics=number)
    assert {kind: worst_of(found, kind) for kind in kinds} == {
        kind: suggest(shapes(kind), number, number).worst for kind in kinds
    }


def test_each_kind_gets_its_own_template_under_its_name_where_one_cannot_do() -> None:
    text = fleet_text(fleet("a4-highgpu-8g=2", "nd-gb300-v6"))
    assert "one template for each kind of machine" in text
    assert "name: 1gpu-1nic-a4-highgpu-8g" in text and "name: 1gpu-1nic-numa1-nd-gb300-v6" in text
    assert "Planned on a4-highgpu-8g: gpu-0-mlx5_0 PIX" in text and "Planned on nd-gb300-v6: gpu-0-mlx5_0 NODE" in text


def test_machines_that_are_too_small_are_named() -> None:
    assert "# nd-gb300-v6 is too small for such a pod." in fleet_text(
        fleet("a4-highgpu-8g", "p5.48xlarge", "nd-gb300-v6", gpus=8, nics=8)
    )


def test_a_fleets_manifest_lints_clean_on_the_fleet() -> None:
    hardware = shapes("nd-mi300x-v5", "nd-h100-v5")
    objects, problems = read_text(fleet("nd-mi300x-v5", "nd-h100-v5", gpus=8, nics=8).manifest, "suggested.yaml")
    assert not at_least(lint(objects, problems, hardware), "error")


@pytest.mark.parametrize(
    ("shape", "wanted"), [("nd-gb300-v6", True), ("a4x-highgpu-4g", True), ("a4-highgpu-8g", False)]
)
def test_a_compute_domain_stands_beside_the_claims_of_gb200_and_gb300(shape: str, wanted: bool) -> None:
    text = compute_domain(shapes(shape), 1, 1)
    assert ("kind: ComputeDomain" in text) is wanted
    objects, problems = read_text(text, "suggested.yaml")
    assert not problems and not at_least(lint(objects, problems, shapes(shape)), "error")


@pytest.mark.parametrize("name", shape_names())
@pytest.mark.parametrize("number", [1, 2])
def test_suggest_lint_plan_and_topo_agree_on_every_known_machine(name: str, number: int) -> None:
    """The suggestion is clean, is placed, and its pairs are as far as the matrix says and as near as any choice."""
    hardware = shapes(name)
    found = suggest(hardware, number, number)
    assert found.worst == found.best_possible
    objects, problems = read_text(found.manifest, "suggested.yaml")
    findings = [one for one in lint(objects, problems, hardware) if one.severity != "info"]
    assert findings == []
    made = plan(world_of(objects), hardware)
    assert made.pods and not made.unschedulable
    machine = machine_of_shape(load_shape(name), "n")
    labels = {part.device: f"GPU{i}" for i, part in enumerate(machine.gpus)}
    shown = [nic for nic in machine.nics if nic.rdma] or list(machine.nics)
    labels |= {part.device: f"NIC{i}" for i, part in enumerate(shown)}
    cells = matrix(machine)
    for pod in made.pods:
        for pair in pod.quality.alignment.pairs:
            assert cells[labels[pair.gpu.device]][labels[pair.nic.device]] == str(pair.distance)
