"""The namespaces of the sandbox isolate it and leave nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dranet.testing import isolation
from dranet.testing.isolation import IsolationError, isolation_command
from dranet.testing.waiting import wait_until

from .conftest import Program

OUTER = """
import sys
from dranet.testing.isolation import run_isolated
sys.exit(run_isolated([sys.executable, "-c", sys.argv[1]]))
"""
INSPECT = """
import json, os
from dranet.testing.isolation import prepare_sandbox
root = prepare_sandbox()
(root.folder / "file").write_text("x")
links = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
pids = [name for name in os.listdir("/proc") if name.isdigit()]
print(json.dumps({"links": links, "pids": pids, "folder": str(root.folder), "pid": root.pid, "uid": os.geteuid()}))
"""
WAIT = """
import time
from dranet.testing.isolation import prepare_sandbox
prepare_sandbox()
print("up", flush=True)
time.sleep(60)
"""


def test_hides_interfaces_and_processes_of_the_machine(program: Program) -> None:
    status, out, err = program.run("-c", OUTER, INSPECT)
    assert status == 0, err
    seen = json.loads(out)
    assert (seen["links"], seen["pids"], seen["uid"]) == (["lo"], ["1"], 0)


def test_files_written_inside_do_not_exist_outside(program: Program, traces: Callable[[], set[str]]) -> None:
    before = traces()
    _, out, _ = program.run("-c", OUTER, INSPECT)
    assert not (Path(json.loads(out)["folder"]) / "file").exists()
    assert traces() == before


def test_works_without_root(ordinary: Program) -> None:
    status, out, err = ordinary.run("-c", OUTER, INSPECT)
    assert status == 0, err
    assert (json.loads(out)["links"], json.loads(out)["uid"]) == (["lo"], 0)


@pytest.mark.parametrize("status", [0, 3])
def test_returns_the_exit_status(program: Program, status: int) -> None:
    assert program.run("-c", OUTER, f"raise SystemExit({status})")[0] == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_all_processes_end_with_the_outer_one(program: Program, number: signal.Signals) -> None:
    with program.start("-c", OUTER, WAIT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        process.send_signal(number)
        process.wait(10)
    wait_until(lambda: not program.processes())


def test_forwards_an_interrupt(program: Program) -> None:
    with program.start("-c", OUTER, WAIT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) != 0
        assert process.stderr is not None and b"KeyboardInterrupt" in process.stderr.read()


def test_missing_unshare_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsolationError, match="util-linux"):
        isolation_command()


def test_tmpfs_covers_nothing_that_python_needs() -> None:
    folder = isolation.find_mount_point([Path("/run/venv/bin/python"), Path("/mnt/tree/x.py")])
    assert folder not in {"/run", "/mnt"}
    assert not Path(sys.executable).resolve().is_relative_to(isolation.find_mount_point(isolation.needed_paths()))
