"""``dranet report`` itself."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dranet.advise.report.chart import size_text
from dranet.cli.report import report
from tests.advise.report.conftest import DATA, LOGS, log

SLICES = [f"--slices={DATA / name}" for name in ("gb300-resourceslice-dranet.yaml", "gb300-resourceslice-gpu.yaml")]
NODE = "aks-gpu-45139532-vmss000081"


def run(*arguments: object, stdin: str | None = None) -> str:
    result = CliRunner().invoke(report, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == 0, result.output
    return result.output


def a_claim(folder: Path, nic: str) -> Path:
    results = [
        {"driver": "gpu.nvidia.com", "pool": NODE, "device": "gpu-0", "request": "gpu"},
        {"driver": "dra.net", "pool": NODE, "device": nic, "request": "nic"},
    ]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "worker", "namespace": "default"},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    path = folder / "claim.yaml"
    path.write_text(yaml.safe_dump(claim))
    return path


def test_json_has_the_promised_shape() -> None:
    (one,) = json.loads(run(LOGS / "3-mpi-job.log", "-o", "json"))["runs"]
    assert list(one) == [
        "collective",
        "ranks",
        "rows",
        "avg_busbw",
        "peak_busbw",
        "expected",
        "verdict",
        "reasons",
    ]
    assert (one["collective"], one["ranks"], one["avg_busbw"], one["peak_busbw"]) == ("all_reduce", 2, 15.5188, 31.89)
    assert {key: one["rows"][-1][key] for key in ("size", "algbw", "busbw")} == {
        "size": 8 << 30,
        "algbw": 31.89,
        "busbw": 31.89,
    }
    assert one["expected"]["gbytes_per_second"] == pytest.approx(31.89, rel=0.05)


def test_standard_input_with_and_without_a_dash() -> None:
    assert run("-", stdin=log("2-one-pod.log")) == run(stdin=log("2-one-pod.log"))


def test_several_runs_give_several() -> None:
    both = log("2-one-pod.log") + log("3-mpi-job.log")
    assert len(json.loads(run("-o", "json", stdin=both))["runs"]) == 2


@pytest.mark.parametrize(("nic", "verdict"), [("pci-0101-00-00-0", "as expected"), ("pci-0103-00-00-0", "falls short")])
def test_a_claim_decides_what_is_expected(tmp_path: Path, nic: str, verdict: str) -> None:
    table = "`all_reduce_perf`\n| what | busbw |\n|---|---|\n| job | 56 GB/s |\n"
    low = table.replace("56", "10") if verdict == "falls short" else table
    arguments = (*SLICES, "--slices", a_claim(tmp_path, nic), "--claim", "default/worker", "-o", "json")
    (one,) = json.loads(run(*arguments, stdin=low))["runs"]
    assert one["verdict"] == verdict
    assert one["expected"]["gbytes_per_second"] == pytest.approx(56 if verdict == "as expected" else 25, rel=0.01)


def test_a_claim_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    claim = a_claim(tmp_path, "pci-0101-00-00-0")
    result = CliRunner().invoke(
        report, [str(LOGS / "3-mpi-job.log"), "--slices", str(claim), *SLICES, "--claim", "other"]
    )
    assert result.exit_code == 1
    assert "no ResourceClaim other" in result.output


def test_a_file_without_results_is_an_error_that_says_what_was_looked_for() -> None:
    result = CliRunner().invoke(report, ["-"], input="nothing here\n")
    assert result.exit_code == 1
    assert "no output of nccl-tests" in result.output


def test_the_picture_is_well_formed_and_has_a_line_for_each_run() -> None:
    picture = ET.fromstring(run(LOGS / "1-two-workers-eight-nics.log", "-o", "svg"))
    lines = [element for element in picture if element.tag.endswith("polyline")]
    assert [element.get("class") for element in lines] == ["line", "line in"]
    assert len((lines[0].get("points") or "").split()) == 24


def test_the_plot_rises_with_the_figures() -> None:
    plot = [line for line in run(LOGS / "3-mpi-job.log").splitlines() if "┤" in line]
    assert len(plot) == 12
    filled = [len(line.rstrip()) for line in plot]
    assert filled[2] > filled[-1]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1000, "1000 B"), (1536, "1.5 KiB"), (8 << 20, "8 MiB"), (8 << 30, "8 GiB")]
)
def test_sizes_as_people_write_them(size: int, text: str) -> None:
    assert size_text(size) == text
