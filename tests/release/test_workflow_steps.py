"""The release workflow's own steps, run here: a clean clone, a real registry, and stand-ins for cosign and gh.

The stand-ins write down how they are called. What they are called with must be in the registry and in the folder.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import dranet
from tests.release.layouts import top
from tests.release.making import PROJECT
from tests.release.registries import registry

TAG = f"v{dranet.__version__}"
SKIPPED = {"Install packages that a minimal Debian lacks", "Checks", "Build the release twice and test it"}
"""Of this machine: its packages, and what other tests of this tier do."""
STAND_IN = '#!/bin/sh\nprintf "%s\\n" "$0 $*" >> "$CALLS"\n'


def steps() -> list[dict[str, Any]]:
    workflow = yaml.safe_load((PROJECT / ".github/workflows/release.yaml").read_text())
    return [step for step in workflow["jobs"]["release"]["steps"] if "run" in step and step["name"] not in SKIPPED]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone of the commit, as the workflow has it, with this machine's virtual environment."""
    clone = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", PROJECT, clone], check=True)
    (clone / ".venv").symlink_to(PROJECT / ".venv")
    (clone / ".git/info/exclude").write_text(".venv\n")  # .gitignore names the folder, not a link
    for name in ("pyproject.toml", "constraints.txt", "tools/setup.sh"):
        os.utime(clone / name, (0, 0))  # the environment is newer than what it was made from
    return clone


def stand_ins(folder: Path) -> Path:
    folder.mkdir()
    for name in ("cosign", "gh"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    return folder


def test_the_steps_release_publish_sign_and_announce(checkout: Path, tmp_path: Path) -> None:
    programs, calls = stand_ins(tmp_path / "bin"), tmp_path / "calls"
    (tmp_path / "registry").mkdir()
    with registry(tmp_path / "registry") as address:
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
            "CALLS": str(calls),
            "GITHUB_REF_NAME": TAG,
            "GITHUB_WORKSPACE": str(checkout),
            "REGISTRY": f"{address}/team",
            "REGISTRY_USER": "publisher",
            "REGISTRY_PASSWORD": "secret",
            "DRANET_SOURCE_URL": "https://example.invalid/dranet",
        }
        for step in steps():
            run = ["bash", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(run, cwd=checkout, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{step['name']}: {done.stderr}"
    check_calls(calls.read_text(), checkout / "dist", f"{address}/team")
    package = {path.name for path in (checkout / "dist/python").iterdir()}
    assert package == {f"dranet-{TAG[1:]}-py3-none-any.whl", f"dranet-{TAG[1:]}.tar.gz"}


def check_calls(calls: str, dist: Path, where: str) -> None:
    image, chart = (top(dist / name)["digest"] for name in ("image", "chart"))
    assert f"cosign sign --yes {where}/dranet@{image}\n" in calls
    assert f"cosign sign --yes {where}/charts/dranet@{chart}\n" in calls
    index = json.loads((dist / "image/blobs/sha256" / image.removeprefix("sha256:")).read_text())
    for entry in index["manifests"]:
        listing = f"dist/dranet-{TAG[1:]}-image-{entry['platform']['architecture']}.spdx.json"
        assert f"--type spdxjson --predicate {listing} {where}/dranet@{entry['digest']}\n" in calls
    assert calls.count("--type slsaprovenance1") == 2
    assert "cosign sign-blob --yes --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS\n" in calls
    [announced] = [line for line in calls.splitlines() if "gh release create" in line]
    assert {"dist/SHA256SUMS", "dist/krew.yaml", "dist/install.yaml", "dist/provenance.json"} <= set(announced.split())
    assert (
        shutil.which("sha256sum")
        and not subprocess.run(
            ["sha256sum", "--check", "--quiet", "--ignore-missing", "SHA256SUMS"], cwd=dist
        ).returncode
    )
