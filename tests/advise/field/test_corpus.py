"""Public manifests and their expected outcome, written down by hand before the tools were asked.

The files are kept outside the project. Each case names the files, a machine, what `lint` reports without a machine, and
what `plan` decides on it: pods with devices, pods without, and pods of which the input does not decide the placement.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from tests.inputs import run

CORPUS = Path(__file__).parents[4] / "shared" / "data" / "manifests"
pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the public manifests are not beside the project")

A4, P5, H100, GB200 = "a4-highgpu-8g", "p5.48xlarge", "nd-h100-v5", "bm.gpu.gb200.4"


class Case(msgspec.Struct, frozen=True):
    """Expected findings by rule, and the pods of a plan by outcome."""

    files: str
    why: str
    lint: dict[str, int] = {}
    shape: str = A4
    placed: int = 0
    others: int = 0
    unknown: str = ""
    """A part of the reason that every undecided pod has; empty if there is none."""
    unschedulable: str = ""
    """The same of pods that cannot be scheduled."""
    error: str = ""
    """The message of `plan` where there is nothing to plan."""


CASES = (
    Case("01", "rdma-dranet is the user's own class", {"unknown-reference": 1}, unknown="rdma-dranet"),
    Case("02", "gpu.intel.com is Intel's, rdma-dranet is not", {"unknown-reference": 1}, unknown="rdma-dranet"),
    Case("03 01 02", "four services of a graph: the frontend has no claim", {"unknown-reference": 1}, others=1,
         unknown="rdma-dranet"),
    Case("04", "two groups of two nodes with 4 GPUs each, in a ComputeDomain", {"placeholder": 1}, f"{GB200}=8",
         placed=4, others=1),
    Case("05", "Intel GPUs: no shape has any", others=1, unknown="gpu.intel.com"),
    Case("06", "a Helm template that is YAML by chance", {"not-rendered": 1}, error="helm template"),
    Case("07", "a Helm template", {"not-rendered": 1}, error="helm template"),
    Case("08", "classes of dra-driver-sriov and dra-example-driver; a shape has no such devices", unknown="shape"),
    Case("09", "two VFs of dra-driver-sriov; a shape has none", unknown="sriovnetwork"),
    Case("10", "classes and policies only", error="nothing to plan"),
    Case("11", "the file defines its class; a shape has no device of that driver", unknown="vf-test2"),
    Case("12", "a Deployment of two pods with a VF each", unknown="sriovnetwork"),
    Case("13", "two VFs by Multus", unknown="sriovnetwork"),
    Case("14", "imex.nvidia.com is of an old driver: one finding", {"unknown-reference": 1}, unknown="imex"),
    Case("15", "v1beta1 is off by default since 1.36; two GPUs", {"api-version": 1}, placed=1),
    Case("16", "v1alpha2 was removed in 1.31", {"api-version": 2}, unschedulable="no API server serves"),
    Case("17", "GPUs for vfio: whether a node has them is not in the shape", unknown="vfio"),
    Case("18", "4 Gi of a GPU that is not shared take all of it", placed=2),
    Case("19", "gpu.example.com is of the example driver; a shape has none", unknown="gpu.example.com"),
    Case("20", "the same, as a partition", unknown="gpu.example.com"),
    Case("21", "a class of an unknown driver", error="nothing to plan"),
    Case("22b 22a", "aligned by hand on one socket", shape=H100, placed=1),
    Case("23b 23a", "two workers on two nodes, and a launcher", shape=f"{H100}=2", placed=2, others=1),
    Case("24", "its template and its ComputeDomain are in other files", {"unknown-reference": 2}, f"{GB200}=16",
         others=1, unknown="no ResourceClaimTemplate"),
    Case("25 28", "EFA's class comes with EKS's chart", shape=f"{P5}=2", placed=2, others=1),
    Case("26", "its template is in another file", {"unknown-reference": 1}, others=1, unknown="'erdma'"),
    Case("27", "GKE installs the class; a GPU and a NIC share a PCIe root on A4", placed=1),
    Case("28", "EKS's chart installs the class", shape=P5, placed=1),
    Case("29", "OKE installs the class dra.net; all GPUs of a node by the device plugin", {"gpus-not-alignable": 1},
         "bm.gpu.h100.8=2", placed=2, others=1),
    Case("30", "selects NICs by addresses of the author's network", unknown="dra.net/ipv4"),
    Case("31", "a GPU by its UUID, and an attribute of NICs that does not exist",
         {"no-alignment-constraint": 1, "unknown-attribute": 1}, unknown="uuid"),
    Case("32", "`enforcement` is not in the API; the class is the user's own",
         {"unknown-field": 1, "unknown-reference": 1}, unknown="dra.net-sriov-vf"),
    Case("33", "two classes are the user's own, dra.cpu is not", {"unknown-reference": 2}, unknown="dra.net-sriov-vf"),
    Case("34", "GPUs by the device plugin; decode follows prefill to its node, although it is created first",
         {"gpus-not-alignable": 2}, f"{A4}=2", placed=2, others=1),
    Case("35", "2 slices of 4 prefill pods and 1 decode pod; the template of the containers lacks IPC_LOCK",
         {"missing-ipc-lock": 2, "placeholder": 1}, f"{A4}=4", placed=10),
)  # fmt: skip


def paths(files: str) -> list[str]:
    return [str(found) for number in files.split() for found in CORPUS.glob(f"{number}-*.yaml")]


@pytest.mark.parametrize("case", CASES, ids=[case.files for case in CASES])
def test_lint_reports_what_is_expected(case: Case) -> None:
    found = json.loads(run("lint", "-o", "json", *paths(case.files)).stdout)["findings"]
    assert Counter(one["rule"] for one in found) == case.lint, case.why


@pytest.mark.parametrize("case", CASES, ids=[case.files for case in CASES])
def test_plan_decides_what_is_expected(case: Case) -> None:
    named = [part for path in paths(case.files) for part in ("-f", path)]
    done = run("plan", *named, "--shape", case.shape, "-o", "json")
    if case.error:
        assert case.error in done.stderr, case.why
        return
    found = json.loads(done.stdout)
    assert (len(found["pods"]), len(found["others"])) == (case.placed, case.others), case.why
    for key, reason in (("unknown", case.unknown), ("unschedulable", case.unschedulable)):
        assert bool(found[key]) == bool(reason), case.why
        assert all(reason in one["reason"] for one in found[key]), case.why


@pytest.mark.parametrize("case", CASES, ids=[case.files for case in CASES])
def test_lint_concludes_no_error_from_what_a_shape_does_not_have(case: Case) -> None:
    found = json.loads(run("lint", "-o", "json", "--shape", case.shape, *paths(case.files)).stdout)["findings"]
    assert {one["rule"] for one in found if one["severity"] == "error"} <= case.lint.keys(), case.why
