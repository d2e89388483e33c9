"""Suggestions for fleets, proved on every kind of machine."""

from __future__ import annotations

import pytest

from dranet.advise.lint import at_least, lint
from dranet.advise.manifests import read_text
from dranet.advise.suggest import Fleet, compute_domain, fleet_text, suggest, suggest_fleet
from dranet.machines.distance import Distance
from tests.inputs import shapes


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
def test_a_compute_domain_comes_with_the_claims_of_gb200_and_gb300(shape: str, wanted: bool) -> None:
    text = compute_domain(shapes(shape), 1, 1)
    assert ("kind: ComputeDomain" in text) is wanted
    objects, problems = read_text(text, "suggested.yaml")
    assert not problems and not at_least(lint(objects, problems, shapes(shape)), "error")
