"""The page docs/predict.md shows what the commands really print, and docs/bandwidth.md the model's real errors."""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "predict.md").read_text()
SHOWN = re.findall(r"```console\n\$ dranet (.*?)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_page_shows_what_is_printed(command: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, *args = shlex.split(command)
    done = CliRunner().invoke(getattr(importlib.import_module(f"dranet.cli.{name}"), name), args)
    assert output and done.stdout == output


def test_the_page_shows_every_command() -> None:
    assert {command.split()[0] for command, _ in SHOWN} == {"plan", "explain", "lint", "topo", "suggest"}


def test_the_table_of_the_bandwidth_model_is_true() -> None:
    page = (ROOT / "docs" / "bandwidth.md").read_text()
    for row in runpy.run_path(str(ROOT / "bench" / "bandwidth.py"))["compare"]():
        figures = f"{row['published_gbytes']:g} | {row['model_gbytes']:.1f} | {row['error']:+.1%}"
        assert f"| {row['row']} | {row['what']} | {row['algorithm']} | {row['bound']} | {figures}" in page
