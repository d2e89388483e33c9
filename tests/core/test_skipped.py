"""What `make test` prints about skipped tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.skipped import ELSEWHERE, command, line

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("Skipped: this kernel has no RDMA netlink", "make vm"),
        ("Skipped: no helm: set HELM, put it on the PATH, or `make parts`", "make parts test"),
        ("Skipped: not fetched yet: runc; `python tests/cluster/kubebed build` does it", "make parts test"),
        ("Skipped: needs chromium and chromedriver: run tools/browser.sh", "make parts test"),
        ("Skipped: containerd needs root", "sudo make test"),
        ("Skipped: needs the right to make network namespaces: EPERM", "sudo make test"),
        ("Skipped: no groff on this machine", ELSEWHERE),
    ],
)
def test_a_reason_leads_to_the_command_that_helps(reason: str, wanted: str) -> None:
    assert command(reason) == wanted


def test_the_most_comes_first() -> None:
    printed = line(["this kernel has no x", "needs root", "this kernel has no y"])
    assert printed == "skipped here, and what runs them: 2 (make vm), 1 (sudo make test)"


def test_make_test_ends_with_that_line(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("import pytest\ndef test_a(): pytest.skip('this kernel has no x')\n")
    options = ["-q", "-ra", "-p", "tests.skipped", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run([sys.executable, "-m", "pytest", *options], cwd=PROJECT, capture_output=True, text=True)
    *_, printed, last = done.stdout.splitlines()
    assert printed == "skipped here, and what runs them: 1 (make vm)"
    assert last.startswith("1 skipped")
