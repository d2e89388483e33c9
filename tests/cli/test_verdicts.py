"""The first line of every command answers what was asked; problems come before what is well."""

from __future__ import annotations

import json
from pathlib import Path

from tests.inputs import claim, run, workers

PAIR = claim("gpu: gpu.nvidia.com\nnic: dranet", "gpu, nic: resource.kubernetes.io/pcieRoot")
LOG = Path(__file__).parents[1] / "data" / "logs" / "3-mpi-job.log"
SHAPE = ("--shape", "a4-highgpu-8g")


def test_explain_counts_what_can_be_placed_and_starts_with_what_cannot(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(PAIR + workers(9))
    done = run("explain", tmp_path / "job.yaml", *SHAPE)
    first, _, block, *_ = done.stdout.splitlines()
    assert first.startswith("8 of 9 pods can be placed; worst pair PIX; not w-8: 0/1 nodes are available")
    assert block == "w-8: cannot be placed"
    made = json.loads(run("explain", tmp_path / "job.yaml", *SHAPE, "-o", "json").stdout)
    assert made["verdict"] == first


def test_lint_counts_first_and_lists_errors_before_warnings(tmp_path: Path) -> None:
    wrong = claim("nic: dranet", name="wrong").replace("deviceClassName", "deviceClasName")
    (tmp_path / "job.yaml").write_text(claim("gpu: gpu.nvidia.com\nnic: dranet") + workers(1) + wrong)
    first, *lines = run("lint", tmp_path / "job.yaml", *SHAPE).stdout.splitlines()
    found = [line.split(": ")[1] for line in lines if not line.startswith("    ")]
    assert first.split(", ")[0] == f"{found.count('error')} error{'s' * (found.count('error') != 1)}"
    assert {"error", "warning"} <= set(found)
    assert found == sorted(found, key=["error", "warning", "info"].index)


def test_report_starts_with_its_verdict() -> None:
    first = run("report", LOG, "--shape", "a3-ultragpu-8g").stdout.splitlines()[0]
    assert first.startswith("all_reduce, 2 ranks on 2 hosts: ") and "GB/s" in first
