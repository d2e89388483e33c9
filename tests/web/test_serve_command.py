"""The command line of the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dranet.cli.serve import serve


def run(*arguments: str) -> Result:
    return CliRunner().invoke(serve, list(arguments))


def test_an_export_is_one_file_of_html(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    result = run("--shape", "nd-gb300-v6=2", "--export", str(file))
    assert result.exit_code == 0, result.output
    assert file.read_text("utf-8").startswith("<!doctype html>")
    assert "nd-gb300-v6-1" in file.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shape", "nd-gb300-v6", "--listen", "0.0.0.0:80"), "only loopback addresses"),
        (("--shape", "nd-gb300-v6", "--listen", "nonsense"), "write HOST:PORT"),
        (("--shape", "nd-gb300-v6", "--kubeconfig", "x"), "not both"),
        (("--shape", "no-such-shape",), "no-such-shape"),
        (("--slices", "/nowhere.yaml",), "no such file"),
        (("--kubeconfig", "/nowhere",), "/nowhere"),
        (("--shape", "nd-gb300-v6", "--export", "/nowhere/x.html"), "No such file"),
    ],
)  # fmt: skip
def test_a_mistake_gets_one_clear_line(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code != 0
    assert said in result.output
    assert "Traceback" not in result.output


def test_files_without_slices_are_refused_with_the_command_that_records_some(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")
    assert "kubectl get resourceslices" in run("--slices", str(file)).output
