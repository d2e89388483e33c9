"""The commands of a cloud are whole, have the names that were given, and run only with --no-dry-run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dranet.cli.init import CLOUDS

TOOLS = {"gcloud", "az", "eksctl", "oci", "kubectl", "helm"}


def init(*args: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": str(path) if path else os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, "-m", "dranet", "init", *args], text=True, capture_output=True, env=environment
    )


def commands(text: str) -> list[list[str]]:
    without_input = re.sub(r" <<'EOF'\n.*?\nEOF\n", "\n", text, flags=re.DOTALL)
    return [shlex.split(line) for line in without_input.splitlines() if line.split(" ")[0] in TOOLS]


def tools(folder: Path, *, failing: str = "") -> Path:
    """Every cloud's tool, each of which writes down what it was called with and what it was given to read."""
    for name in TOOLS:
        status = 1 if name == failing else 0
        reads = "/bin/cat >> $0.input\n" if name == "eksctl" else ""
        (folder / name).write_text(f'#!/bin/sh\necho "$0 $*" >> {folder}/calls\n{reads}exit {status}\n')
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_cloud_installs_and_tests_the_driver(cloud: str) -> None:
    done = init("--cloud", cloud, "--registry", "r.example.com/x")
    assert done.returncode == 0, done.stderr
    *_, install, look = commands(done.stdout)
    assert install[:4] == ["helm", "install", "dranet", "oci://r.example.com/x/charts/dranet"]
    assert look[:3] == ["helm", "test", "dranet"]


def test_gke_has_a_subnet_for_every_nic() -> None:
    made = commands(init("--cloud", "gke", "--cluster", "c", "--machine-type", "a4-highgpu-8g").stdout)
    subnets = {c[5] for c in made if c[:5] == ["gcloud", "compute", "networks", "subnets", "create"]}
    [pool] = [c for c in made if "node-pools" in c]
    attached = {word.rpartition("subnetwork=")[2] for word in pool if word.startswith("network=")}
    assert attached == subnets == {"c-gvnic", *(f"c-rdma-{n}" for n in range(8))}
    assert not [word for word in pool if "dra-driver" in word], (
        "that label would bring Google's driver of the same name"
    )


def test_nics_without_rdma_have_separate_networks() -> None:
    made = commands(init("--cloud", "gke", "--machine-type", "a3-highgpu-8g").stdout)
    assert len([c for c in made if c[:4] == ["gcloud", "compute", "networks", "create"]]) == 4


def test_rejects_a_machine_with_unknown_networks() -> None:
    done = init("--cloud", "gke", "--machine-type", "e2-standard-4")
    assert done.returncode == 1
    assert "known on gke: a4-highgpu-8g" in done.stderr


def test_eksctl_file_enables_efa() -> None:
    text = init("--cloud", "eks", "--zone", "us-east-1b", "--nodes", "3").stdout
    config = yaml.safe_load(text.partition("<<'EOF'\n")[2].partition("EOF\n")[0])
    [group] = config["managedNodeGroups"]
    assert (group["efaEnabled"], group["desiredCapacity"]) == (True, 3)
    assert set(group["availabilityZones"]) < set(config["availabilityZones"])


def test_nothing_runs_by_default(tmp_path: Path) -> None:
    assert init("--cloud", "aks", path=tools(tmp_path)).returncode == 0
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize("cloud", CLOUDS)
def test_runs_the_printed_commands(cloud: str, tmp_path: Path) -> None:
    done = init("--cloud", cloud, "--no-dry-run", path=tools(tmp_path))
    assert done.returncode == 0, done.stderr
    called = [line.removeprefix(f"{tmp_path}/") for line in (tmp_path / "calls").read_text().splitlines()]
    assert called == [" ".join(command) for command in commands(done.stdout)]


def test_stops_at_a_failed_command(tmp_path: Path) -> None:
    done = init("--cloud", "aks", "--no-dry-run", path=tools(tmp_path, failing="az"))
    assert done.returncode == 1
    assert "az feature register" in done.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
