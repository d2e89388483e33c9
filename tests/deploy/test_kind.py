"""The trial on kind, as far as a machine without Docker can check it; tests/cluster/test_trial.py runs its pods."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import dranet
from tests.cluster.kubebed import parts
from tests.cluster.kubebed.cache import cache_root

PROGRAMS = ("kind", "docker", "helm", "kubectl")


def test_containerd_reads_the_patch_as_nri_on(deploy: Path, tmp_path: Path) -> None:
    if not (cache_root() / parts.CONTAINERD.key).is_dir():
        pytest.skip("no containerd: `make parts`")
    [patch] = yaml.safe_load((deploy / "kind/kind.yaml").read_text())["containerdConfigPatches"]
    (tmp_path / "config.toml").write_text(f"version = 3\n{patch}\n")
    containerd = parts.containerd_dir() / "containerd"
    command: list[str | Path] = [containerd, "--config", tmp_path / "config.toml", "config", "dump"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert tomllib.loads(shown)["plugins"]["io.containerd.nri.v1.nri"]["disable"] is False


def test_the_pods_of_the_trial_have_no_findings(deploy: Path) -> None:
    command = [sys.executable, "-m", "dranet", "lint", "-f", str(deploy / "kind/pods.yaml")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "0 errors, 0 warnings, 0 info")


@pytest.fixture
def calls(deploy: Path, tmp_path: Path) -> list[list[str]]:
    """What the script calls, with stand-ins for the programs that a machine with Docker has."""
    for name in PROGRAMS:
        (tmp_path / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >> {tmp_path}/calls\n')
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([deploy / "kind/trial.sh"], env=environment, check=True)
    return [shlex.split(line) for line in (tmp_path / "calls").read_text().splitlines()]


def test_the_script_loads_the_image_that_the_chart_names(calls: list[list[str]]) -> None:
    image = f"localhost/dranet:{dranet.__version__}"
    [built] = [call for call in calls if call[:2] == ["docker", "build"]]
    [loaded] = [call for call in calls if call[:2] == ["kind", "load"]]
    assert image in built and image in loaded
    assert calls.index(built) < calls.index(loaded) < [call[:2] for call in calls].index(["helm", "install"])


def test_every_file_that_the_script_names_exists(calls: list[list[str]], deploy: Path) -> None:
    named = {word for call in calls for word in call if word.startswith("deploy/")}
    assert len(named) == 4
    assert [name for name in named if not (deploy.parent / name).exists()] == []


def test_helm_takes_the_values_of_the_script(calls: list[list[str]], helm: str, deploy: Path) -> None:
    [install] = [call for call in calls if call[:2] == ["helm", "install"]]
    words = [word for word in install[2:] if word != "--wait"]
    done = subprocess.run([helm, "template", *words], cwd=deploy.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--cloud-provider-hint=NONE" in done.stdout
