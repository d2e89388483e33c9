"""The examples are clean, and their two API forms say the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from dranet.lint.linting import lint
from dranet.manifests.reading import must_read
from dranet.manifests.versions import to_v1
from dranet.predict.hardware import hardware_of_shapes
from dranet.topology.shape_devices import nodes_of

EXAMPLES = Path(__file__).parents[2] / "examples"
SHAPES = {
    "1-gke-rdma": "a4-highgpu-8g",
    "2-gke-nvidia-dra": "a4-highgpu-8g",
    "3-gke-mpi": "a3-ultragpu-8g",
    "4-aks-gb300": "nd-gb300-v6",
    "5-gke-ray": "a4-highgpu-8g",
}
SHARING = "sharing"
"""Needs a server that counts shares, which serves v1: it has no form for v1beta1."""


IPAM = "ipam"


def test_every_folder_is_tested() -> None:
    folders = [path.name for path in EXAMPLES.iterdir() if path.is_dir()]
    assert sorted(folders) == sorted([*SHAPES, SHARING, IPAM])


@pytest.mark.parametrize("folder", SHAPES)
@pytest.mark.parametrize("beta", [False, True], ids=["v1", "v1beta1"])
def test_an_example_has_no_finding_but_the_one_it_shows(folder: str, beta: bool) -> None:
    files = [path for path in sorted((EXAMPLES / folder).glob("*.yaml")) if "claims" not in path.name]
    files = [path for path in files if ("v1beta1" in path.name) == beta or "unaligned" not in path.name]
    files.append(EXAMPLES / folder / ("claims.v1beta1.yaml" if beta else "claims.yaml"))
    hardware = hardware_of_shapes(nodes_of([SHAPES[folder]]))
    found = [f for f in lint(must_read(files), (), hardware, (1, 34)) if f.severity != "info"]
    assert {Path(f.file).name.partition(".")[0] for f in found} <= {"unaligned"}


def test_the_example_of_shares_is_clean_where_shares_are_counted() -> None:
    files = sorted((EXAMPLES / SHARING).glob("*.yaml"))
    assert lint(must_read(files), (), None, (1, 36)) == []


def test_the_example_of_addresses_is_clean() -> None:
    assert lint(must_read(sorted((EXAMPLES / IPAM).glob("*.yaml"))), (), None, (1, 34)) == []


@pytest.mark.parametrize("beta", sorted(EXAMPLES.glob("*/*.v1beta1.yaml")), ids=lambda path: path.parent.name)
def test_both_api_forms_say_the_same(beta: Path) -> None:
    v1 = beta.with_name(beta.name.replace(".v1beta1", ""))
    read = [[to_v1(obj.data) for obj in must_read([file])] for file in (v1, beta)]
    assert read[0] == read[1]
