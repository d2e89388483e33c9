"""The sandbox's namespaces: nothing gets out, nothing stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dranet.sandbox import isolation
from dranet.sandbox.isolation import IsolationError, isolating_prefix

from .conftest import Program

OUTER = """
import sys
from dranet.sandbox.isolation import run_isolated
sys.exit(run_isolated([sys.executable, "-c", sys.argv[1]]))
"""
LOOK = """
import json, os
from dranet.sandbox.isolation import settle
home = settle()
(home.folder / "file").write_text("x")
links = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
pids = [name for name in os.listdir("/proc") if name.isdigit()]
print(json.dumps({"links": links, "pids": pids, "folder": str(home.folder), "pid": home.pid, "uid": os.geteuid()}))
"""
WAIT = "import time; from dranet.sandbox.isolation import settle; settle(); print('up', flush=True); time.sleep(60)"


def test_inside_there_are_no_interfaces_and_no_processes_of_the_machine(program: Program) -> None:
    status, out, err = program.run("-c", OUTER, LOOK)
    assert status == 0, err
    seen = json.loads(out)
    assert (seen["links"], seen["pids"], seen["uid"]) == (["lo"], ["1"], 0)


def test_files_written_inside_do_not_exist_outside(program: Program, traces: Callable[[], set[str]]) -> None:
    before = traces()
    _, out, _ = program.run("-c", OUTER, LOOK)
    assert not (Path(json.loads(out)["folder"]) / "file").exists()
    assert traces() == before


def test_an_ordinary_user_gets_the_same(ordinary: Program) -> None:
    status, out, err = ordinary.run("-c", OUTER, LOOK)
    assert status == 0, err
    assert (json.loads(out)["links"], json.loads(out)["uid"]) == (["lo"], 0)


@pytest.mark.parametrize("status", [0, 3])
def test_the_exit_status_comes_out(program: Program, status: int) -> None:
    assert program.run("-c", OUTER, f"raise SystemExit({status})")[0] == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_everything_ends_with_the_outer_process(program: Program, number: signal.Signals) -> None:
    with program.start("-c", OUTER, WAIT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        process.send_signal(number)
        process.wait(10)
    wait_until(lambda: not program.processes())


def test_an_interrupt_reaches_the_inside(program: Program) -> None:
    with program.start("-c", OUTER, WAIT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) != 0
        assert process.stderr is not None and b"KeyboardInterrupt" in process.stderr.read()


def test_without_the_tool_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(IsolationError, match="util-linux"):
        isolating_prefix()


def test_the_file_system_covers_nothing_that_python_needs() -> None:
    home = isolation.free_home([Path("/run/venv/bin/python"), Path("/mnt/tree/x.py")])
    assert home not in {"/run", "/mnt"}
    assert not Path(sys.executable).resolve().is_relative_to(isolation.free_home(isolation.needed_paths()))


def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
