"""The release workflow passes a linter and does what docs/contributing/release.md describes."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOW = ".github/workflows/release.yaml"
CI = ".github/workflows/ci.yaml"


@pytest.mark.parametrize("workflow", [WORKFLOW, CI])
def test_actionlint_accepts_the_workflow(actionlint: str, deploy: Path, workflow: str) -> None:
    command = [actionlint, "-no-color", "-shellcheck=", str(deploy.parent / workflow)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_actionlint_rejects_an_unknown_field(actionlint: str, deploy: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((deploy.parent / WORKFLOW).read_text().replace("github.server_url", "github.server_uri"))
    done = subprocess.run([actionlint, "-no-color", str(wrong)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "server_uri" in done.stdout


@pytest.mark.parametrize("workflow", [WORKFLOW, CI])
def test_every_action_is_pinned_by_commit(deploy: Path, workflow: str) -> None:
    used = re.findall(r"uses: (\S+)", (deploy.parent / workflow).read_text())
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)


def test_the_workflow_tests_before_it_publishes(deploy: Path) -> None:
    jobs = yaml.safe_load((deploy.parent / WORKFLOW).read_text())["jobs"]
    assert sorted(jobs["release"]["needs"]) == sorted(set(jobs) - {"release"})
    assert "make test" in commands(jobs["test"])
    assert "make vm ARCH=arm64" in commands(jobs["arm64"])
    lines = commands(jobs["release"])
    steps = (
        "make check",
        "make release-test",
        "make release V",
        "make publish",
        "release/sign.sh",
        "gh rel",
    )
    order = [lines.index(command) for command in steps]
    assert order == sorted(order)


def test_a_newer_debian_package_does_not_stop_a_release(deploy: Path) -> None:
    """The workflow tests what it builds, so it takes the newest packages; only LOCKED=1 insists on the lock."""
    assert "LOCKED" not in commands(yaml.safe_load((deploy.parent / WORKFLOW).read_text())["jobs"]["release"])


def test_ci_runs_the_checks_and_the_host_tier_on_pull_requests(deploy: Path) -> None:
    workflow = yaml.safe_load((deploy.parent / CI).read_text())
    # YAML 1.1 reads the key `on` as true.
    assert set(workflow[True]) == {"push", "pull_request"}
    assert "make check" in commands(workflow["jobs"]["check"])
    assert "make test" in commands(workflow["jobs"]["test"])


def commands(job: dict[str, Any]) -> str:
    return " ".join(step.get("run", "") for step in job["steps"])


def test_every_python_that_the_package_names_is_tested(deploy: Path) -> None:
    jobs = yaml.safe_load((deploy.parent / WORKFLOW).read_text())["jobs"]
    tested = {entry["python"] for entry in jobs["test"]["strategy"]["matrix"]["include"]}
    classifiers = tomllib.loads((deploy.parent / "pyproject.toml").read_text())["project"]["classifiers"]
    named = {
        line.rpartition(":: ")[2] for line in classifiers if line.startswith("Programming Language :: Python :: 3.")
    }
    assert tested == named
