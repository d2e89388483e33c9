"""The examples have no unexpected findings, and both API versions of them are equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.advise.lint import lint
from dranet.advise.manifests import must_read, to_v1
from dranet.advise.plan.hardware import hardware_of_shapes
from dranet.machines.shape_devices import expand_shape_specs

EXAMPLES = Path(__file__).parents[3] / "examples"
SHAPES = {
    "1-gke-rdma": "a4-highgpu-8g",
    "2-gke-nvidia-dra": "a4-highgpu-8g",
    "3-gke-mpi": "a3-ultragpu-8g",
    "4-aks-gb300": "nd-gb300-v6",
    "5-gke-ray": "a4-highgpu-8g",
}
SHARING = "sharing"
"""Needs consumable capacity, which exists only in v1."""


IPAM = "ipam"


def test_all_folders_are_tested() -> None:
    folders = [path.name for path in EXAMPLES.iterdir() if path.is_dir()]
    assert sorted(folders) == sorted([*SHAPES, SHARING, IPAM])


@pytest.mark.parametrize("folder", SHAPES)
@pytest.mark.parametrize("beta", [False, True], ids=["v1", "v1beta1"])
def test_example_has_only_the_intended_finding(folder: str, beta: bool) -> None:
    files = [path for path in sorted((EXAMPLES / folder).glob("*.yaml")) if "claims" not in path.name]
    files = [path for path in files if ("v1beta1" in path.name) == beta or "unaligned" not in path.name]
    files.append(EXAMPLES / folder / ("claims.v1beta1.yaml" if beta else "claims.yaml"))
    hardware = hardware_of_shapes(expand_shape_specs([SHAPES[folder]]))
    found = [f for f in lint(must_read(files), (), hardware, (1, 34)) if f.severity != "info"]
    assert {Path(f.file).name.partition(".")[0] for f in found} <= {"unaligned"}


def test_sharing_example_has_no_findings() -> None:
    files = sorted((EXAMPLES / SHARING).glob("*.yaml"))
    assert lint(must_read(files), (), None, (1, 36)) == []


def test_ipam_example_has_no_findings() -> None:
    assert lint(must_read(sorted((EXAMPLES / IPAM).glob("*.yaml"))), (), None, (1, 34)) == []


@pytest.mark.parametrize("beta", sorted(EXAMPLES.glob("*/*.v1beta1.yaml")), ids=lambda path: path.parent.name)
def test_both_api_versions_are_equal(beta: Path) -> None:
    v1 = beta.with_name(beta.name.replace(".v1beta1", ""))
    read = [[to_v1(obj.data) for obj in must_read([file])] for file in (v1, beta)]
    assert read[0] == read[1]
