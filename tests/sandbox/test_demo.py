"""The command ``dranet demo``: what it prints, how it ends, and what is left when it is killed."""

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
from dranet.sandbox.demo import PodReport, StoryResult
from dranet.sandbox.stories import STORIES, chosen

from .conftest import Program
from .test_isolation import wait_until

DEMO = ("-m", "dranet", "demo")
POD_KEYS = {"pod", "node", "devices", "attach_ms", "detach_ms", "alignment", "busbw"}
KILLS = 10


def played(out: str) -> dict[str, Any]:
    """The one scenario in the JSON."""
    found: dict[str, Any] = json.loads(out)
    (scenario,) = found["scenarios"]
    assert isinstance(scenario, dict)
    return scenario


def test_json_is_all_there_is_on_standard_output(program: Program, traces: Callable[[], set[str]]) -> None:
    before = traces()
    status, out, err = program.run(*DEMO, "mpi", "-o", "json")
    scenario = played(out)
    assert (status, scenario["failures"], err) == (0, [], "")
    assert set(scenario) == {"name", "pods", "checks", "failures"}
    assert [set(pod) for pod in scenario["pods"]] == [POD_KEYS] * 3
    assert [pod["devices"] for pod in scenario["pods"]] == [[], *[["gpu-0", "pci-0000-91-00-0"]] * 2]
    assert scenario["checks"]["passed"] > 20 and scenario["checks"]["failed"] == 0
    assert traces() == before


def test_an_ordinary_user_sees_the_same(ordinary: Program) -> None:
    status, out, err = ordinary.run(*DEMO, "aks-gb300", "-o", "json")
    assert status == 0, err
    scenario = played(out)
    assert [pod["alignment"] for pod in scenario["pods"]] == [
        *(None, "NODE", "NODE"),
        *(None, "NODE", "NODE"),
        *(None, "SYS", "SYS"),
    ]
    assert scenario["failures"] == []


def test_the_text_shows_what_a_person_would_look_at(program: Program) -> None:
    status, out, err = program.run(*DEMO, "nvidia-dra")
    assert status == 0, err
    for sight in (
        "nccl-gib-test-0, ip addr:",
        "gpu0rdma0     UP    192.168.1.4/32    mtu 8896  7e:75:3c:80:88:01",
        "rdma_cm umad0 umad1 uverbs0 uverbs1",
        "pci-0000-91-00-0  Ready=True NetworkReady=True  gpu0rdma0 192.168.1.4/32",
        "NUMA 0           pci0000:8c  gpu-0:A  gpu-1:A  mlx5_0:A  mlx5_1:A",
        "ping over 2 cards: 2 answered",
        "every card is home as it left",
        "Nothing of this is left on your machine.",
    ):
        assert sight in out


def test_the_list_names_every_scenario(program: Program) -> None:
    status, out, _ = program.run(*DEMO, "--list")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [story.name for story in STORIES]


def test_an_unknown_scenario_is_one_clear_error(program: Program) -> None:
    status, out, err = program.run(*DEMO, "nosuch")
    assert (status, out) == (1, "")
    assert err == "Error: no scenario nosuch; there are gke-rdma, nvidia-dra, mpi, aks-gb300, ray\n"


def test_a_failed_check_shows_in_the_json() -> None:
    result = StoryResult(chosen(("mpi",))[0], passed=2, failures=["cards missing"])
    result.pods.append(PodReport("p", "n", ("gpu-0",), 1.5, None, "PIX", 46.5))
    (scenario,) = as_json([result])["scenarios"]
    assert scenario["checks"] == {"passed": 2, "failed": 1} and scenario["failures"] == ["cards missing"]
    assert scenario["pods"][0]["detach_ms"] is None


def test_an_interrupt_ends_it_cleanly(program: Program) -> None:
    with program.start(*DEMO, "gke-rdma", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        while "discovered and published" not in _line(process):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert b"Nothing is left behind" in process.stderr.read()


def test_keep_leaves_it_running_and_says_how_to_look_around(program: Program) -> None:
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
    assert "every card is home as it left" in rest


def _line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode()


@pytest.mark.timeout(180)
def test_killed_at_ten_random_moments_it_leaves_nothing_and_the_next_one_passes(
    program: Program, traces: Callable[[], set[str]]
) -> None:
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
    assert (status, played(out)["failures"]) == (0, [])
