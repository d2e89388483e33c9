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

from dranet.cli.init import CLOUDS, NVIDIA_DRA

MACHINES = {
    "gke": "a4-highgpu-8g",
    "aks": "Standard_ND128isr_GB300_v6",
    "eks": "p5.48xlarge",
    "oke": "BM.GPU.H100.8",
}
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


@pytest.mark.parametrize("cloud", CLOUDS)
def test_gpus_are_published_before_the_driver_is_installed(cloud: str) -> None:
    """The classes of the walkthroughs' claims are gpu.nvidia.com and dranet-rdma."""
    made = commands(init("--cloud", cloud, "--pool", "p", "--machine-type", MACHINES[cloud]).stdout)
    [gpus] = [n for n, c in enumerate(made) if c[:2] == ["helm", "upgrade"]]
    [nics] = [n for n, c in enumerate(made) if c[:3] == ["helm", "install", "dranet"]]
    [marked] = [c for c in made if c[:3] == ["kubectl", "label", "nodes"]]
    assert gpus < nics
    assert "nvidia-dra-driver-gpu" in made[gpus] and NVIDIA_DRA in made[gpus]
    assert made[gpus + 1] == ["kubectl", "get", "deviceclass", "gpu.nvidia.com"]
    assert marked[-1] == "nvidia.com/gpu.present=true"


@pytest.mark.parametrize(("machine", "rdma"), [("a4-highgpu-8g", True), ("a3-megagpu-8g", False)])
def test_gke_nodes_with_rdma_get_googles_libraries(machine: str, rdma: bool) -> None:
    made = commands(init("--cloud", "gke", "--machine-type", machine).stdout)
    applied = [c[-1] for c in made if c[:2] == ["kubectl", "apply"]]
    assert [url.rpartition("/")[2] for url in applied] == (["nccl-rdma-installer.yaml"] if rdma else [])


def test_aks_creates_the_resource_group_that_it_uses() -> None:
    made = commands(init("--cloud", "aks", "--cluster", "train").stdout)
    [group] = [c for c in made if c[:3] == ["az", "group", "create"]]
    assert group[group.index("--name") + 1] == "train"
    used = {c[c.index("--resource-group") + 1] for c in made if "--resource-group" in c}
    assert used == {"train"}
    assert made.index(group) == 0


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
    assert "az group create" in done.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
