"""docs/tasks/predict.md shows real output, and docs/evidence/bandwidth.md the model's real errors."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from tests.inputs import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tasks" / "predict.md").read_text()
SHOWN = re.findall(r"```console\n\$ dranet (.*?)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_page_shows_the_printed_output(command: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert output and run(*shlex.split(command)).stdout == output


def test_the_page_shows_every_command() -> None:
    assert {command.split()[0] for command, _ in SHOWN} == {"plan", "explain", "lint", "topo", "suggest"}


def test_table_of_the_bandwidth_model_is_correct() -> None:
    page = (ROOT / "docs" / "evidence" / "bandwidth.md").read_text()
    for row in runpy.run_path(str(ROOT / "bench" / "bandwidth.py"))["compare"]():
        figures = f"{row['published_gbytes']:g} | {row['model_gbytes']:.1f} | {row['error']:+.1%}"
        assert f"| {row['row']} | {row['what']} | {row['algorithm']} | {row['bound']} | {figures}" in page
