"""What `dranet plan` prints first, and how much of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from dranet.advise.plan.render import plan_text
from tests.advise.plan.conftest import Planner
from tests.inputs import claim, run, workers

PAIR = claim("gpu: gpu.nvidia.com\nnic: dranet", "gpu, nic: resource.kubernetes.io/pcieRoot")
RATE = r"[\d.]+-[\d.]+"
APART = claim("gpu: gpu.nvidia.com\nnic: dranet", name="apart")


def first_line(text: str) -> str:
    return text.splitlines()[0]


def planned_text(tmp_path: Path, text: str, *more: str, machines: int = 1) -> Result:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    return run("plan", "-f", file, "--shape", f"a4-highgpu-8g={machines}", *more)


def test_first_line_is_the_answer(tmp_path: Path) -> None:
    done = planned_text(tmp_path, PAIR + workers(100), machines=12)
    assert re.fullmatch(
        rf"96 of 100 pods fit; worst pair PIX; {RATE} GB/s all_gather; 4 unschedulable: w-96 and 3 more "
        r"\(0/12 nodes are available: 12 cannot allocate all claims\)",
        first_line(done.stdout),
    )


def test_pods_that_fit_need_no_more_words(tmp_path: Path) -> None:
    line = first_line(planned_text(tmp_path, PAIR + workers(1)).stdout)
    assert re.fullmatch(rf"1 of 1 pod fits; worst pair PIX; {RATE} GB/s all_gather", line)


def test_equivalent_pods_are_one_row_and_problems_come_first(tmp_path: Path) -> None:
    table = planned_text(tmp_path, PAIR + workers(10)).stdout.split("\n\n")[1].splitlines()
    assert [line.split("  ")[0] for line in table] == ["PODS", "w-8", "w-9", "w-0 and 7 more"]
    assert "UNSCHEDULABLE" in table[1] and table[3].split()[-4:-1] == ["1", "1", "PIX"]


def test_a_misaligned_pod_is_above_the_aligned_ones(planned: Planner) -> None:
    five = claim("nic: dranet 5", name="nics")  # no NIC near the next GPU is left
    found = planned(PAIR, workers(2), five, workers(1, "nics", name="five"), APART, workers(1, "apart", name="far"))
    rows = plan_text(found).split("\n\n")[1].splitlines()
    assert [row.split()[0] for row in rows] == ["PODS", "far-0", "five-0", "w-0"]
    assert "worst pair SYS (far-0)" in first_line(plan_text(found))


@pytest.mark.parametrize("kinds", [1, 300])
def test_ten_thousand_pods_are_one_screen(planned: Planner, kinds: int) -> None:
    jobs = [workers(10_000 // kinds, name=f"job-{i}") for i in range(kinds)]
    found = planned(PAIR, *jobs, shape="a4-highgpu-8g=2")
    assert sum(map(len, (found.pods, found.unschedulable))) > 9_000
    assert len(plan_text(found).splitlines()) <= 60
    assert len(plan_text(found, wide=True).splitlines()) > 60


def test_wide_lists_every_pod(tmp_path: Path) -> None:
    done = planned_text(tmp_path, PAIR + workers(3), "-o", "wide")
    assert [f"w-{i}  on a4-highgpu-8g-0" in done.stdout for i in range(3)] == [True] * 3


def test_yaml_has_what_json_has(tmp_path: Path) -> None:
    as_yaml = yaml.safe_load(planned_text(tmp_path, PAIR + workers(2), "-o", "yaml").stdout)
    as_json = yaml.safe_load(planned_text(tmp_path, PAIR + workers(2), "-o", "json").stdout)
    assert as_yaml == as_json and as_yaml["verdict"].startswith("2 of 2 pods fit")


def test_names_are_those_of_pods_that_fit(tmp_path: Path) -> None:
    names = planned_text(tmp_path, PAIR + workers(9), "-o", "name").stdout.split()
    assert names == [f"pod/w-{i}" for i in range(8)]


def test_findings_of_lint_do_not_bury_the_answer(tmp_path: Path) -> None:
    done = planned_text(tmp_path, "".join(claim("gpu: gpu.nvidia.com\nnic: dranet", name=f"t{i}") for i in range(9)))
    assert "and 4 more (dranet lint lists all)" in done.stderr
