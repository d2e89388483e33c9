"""The workflow that releases on a tag: a linter has nothing to say, and it does what docs/release.md says."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import yaml

WORKFLOW = ".github/workflows/release.yaml"


def test_the_workflow_is_clean(actionlint: str, deploy: Path) -> None:
    command = [actionlint, "-no-color", "-shellcheck=", str(deploy.parent / WORKFLOW)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_linter_would_notice_a_mistake(actionlint: str, deploy: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((deploy.parent / WORKFLOW).read_text().replace("github.server_url", "github.server_uri"))
    done = subprocess.run([actionlint, "-no-color", str(wrong)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "server_uri" in done.stdout


def test_every_action_is_named_by_its_commit(deploy: Path) -> None:
    used = re.findall(r"uses: (\S+)", (deploy.parent / WORKFLOW).read_text())
    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in used)


def test_the_workflow_tests_before_it_publishes(deploy: Path) -> None:
    jobs = yaml.safe_load((deploy.parent / WORKFLOW).read_text())["jobs"]
    assert sorted(jobs["release"]["needs"]) == sorted(set(jobs) - {"release"})
    assert "make test" in commands(jobs["test"])
    assert "make vm ARCH=arm64" in commands(jobs["arm64"])
    lines = commands(jobs["release"])
    order = [lines.index(command) for command in ("make check", "make release-test", "make release V", "make publish")]
    assert order == sorted(order)


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
