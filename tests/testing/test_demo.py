"""The command ``dranet demo``: output, exit status, and cleanup after a kill."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from dranet.cli.demonstration.play import as_json
from dranet.testing.demo import PodReport, ScenarioResult
from dranet.testing.scenarios import SCENARIOS, select_scenarios
from dranet.testing.waiting import wait_until

from .conftest import Program

DEMO = ("-m", "dranet", "demo")
POD_KEYS = {"pod", "node", "devices", "attach_ms", "detach_ms", "alignment", "busbw"}
KILLS = 10


def only_scenario(out: str) -> dict[str, Any]:
    """The one scenario in the JSON."""
    found: dict[str, Any] = json.loads(out)
    (scenario,) = found["scenarios"]
    assert isinstance(scenario, dict)
    return scenario


def test_standard_output_is_only_json(program: Program, traces: Callable[[], set[str]]) -> None:
    before = traces()
    status, out, err = program.run(*DEMO, "mpi", "-o", "json")
    scenario = only_scenario(out)
    assert (status, scenario["failures"], err) == (0, [], "")
    assert set(scenario) == {"name", "pods", "checks", "failures"}
    assert [set(pod) for pod in scenario["pods"]] == [POD_KEYS] * 3
    assert [pod["devices"] for pod in scenario["pods"]] == [[], *[["gpu-0", "pci-0000-91-00-0"]] * 2]
    assert scenario["checks"]["passed"] > 20 and scenario["checks"]["failed"] == 0
    assert traces() == before


def test_runs_without_root(ordinary: Program) -> None:
    status, out, err = ordinary.run(*DEMO, "aks-gb300", "-o", "json")
    assert status == 0, err
    scenario = only_scenario(out)
    assert [pod["alignment"] for pod in scenario["pods"]] == [
        *(None, "NODE", "NODE"),
        *(None, "NODE", "NODE"),
        *(None, "SYS", "SYS"),
    ]
    assert scenario["failures"] == []


def test_text_shows_interfaces_devices_and_traffic(program: Program) -> None:
    status, out, err = program.run(*DEMO, "nvidia-dra")
    assert status == 0, err
    for text in (
        "nccl-gib-test-0, ip addr:",
        "gpu0rdma0     UP    192.168.1.4/32    mtu 8896  7e:75:3c:80:88:01",
        "rdma_cm umad0 umad1 uverbs0 uverbs1",
        "pci-0000-91-00-0  Ready=True NetworkReady=True  gpu0rdma0 192.168.1.4/32",
        "NUMA 0           pci0000:8c  gpu-0:A  gpu-1:A  mlx5_0:A  mlx5_1:A",
        "ping over 2 NICs: 2 answered",
        "all settings are restored",
        "Nothing is left on this machine.",
    ):
        assert text in out


def test_lists_all_scenarios(program: Program) -> None:
    status, out, _ = program.run(*DEMO, "--list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [scenario.name for scenario in SCENARIOS]


def test_unknown_scenario_is_an_error(program: Program) -> None:
    status, out, err = program.run(*DEMO, "nosuch")
    assert (status, out) == (1, "")
    assert err == "Error: no scenario nosuch; choose from gke-rdma, nvidia-dra, mpi, aks-gb300, ray\n"


def test_a_failed_check_shows_in_the_json() -> None:
    result = ScenarioResult(select_scenarios(("mpi",))[0], passed=2, failures=["NICs missing"])
    result.pods.append(PodReport("p", "n", ("gpu-0",), 1.5, None, "PIX", 46.5))
    (scenario,) = as_json([result])["scenarios"]
    assert scenario["checks"] == {"passed": 2, "failed": 1} and scenario["failures"] == ["NICs missing"]
    assert scenario["pods"][0]["detach_ms"] is None


def test_interrupt_leaves_nothing(program: Program) -> None:
    with program.start(*DEMO, "gke-rdma", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while ": published " not in _line(process):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"Nothing is left behind" in process.stderr.read()


def test_keep_leaves_the_scenario_running(program: Program) -> None:
    with program.start(*DEMO, "aks-gb300", "--keep", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        while "nsenter --target" not in (line := _line(process)):
            assert process.poll() is None
        enter = line.split()
        pods = subprocess.run([*enter, "ls", "/run/netns"], capture_output=True, text=True, check=True).stdout.split()
        assert pods == [
            "nccl-test-dra-launcher",
            "nccl-test-dra-worker-0",
            "nccl-test-dra-worker-1",
            "nd-gb300-v6-0",
            "nd-gb300-v6-1",
        ]
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read().decode()
        assert process.wait(30) == 0
    assert "all settings are restored" in rest


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


@pytest.mark.timeout(180)
def test_kill_at_random_moments_leaves_nothing(program: Program, traces: Callable[[], set[str]]) -> None:
    before, dice = traces(), random.Random(9)
    start = time.monotonic()
    assert program.run(*DEMO, "aks-gb300", "-o", "json")[0] == 0
    lifetime = time.monotonic() - start
    for _ in range(KILLS):
        with program.start(*DEMO, "aks-gb300", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(dice.uniform(0, lifetime * 0.6))
            process.kill()
        wait_until(lambda: not program.processes())
    assert traces() == before
    status, out, _ = program.run(*DEMO, "aks-gb300", "-o", "json")
    assert (status, only_scenario(out)["failures"]) == (0, [])
