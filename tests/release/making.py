"""Running the scripts behind `make release` and `make publish`.

With one difference: a tree with changes is taken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dranet

PROJECT = Path(__file__).resolve().parents[2]
REGISTRY = "registry.invalid/team"
SOURCE = "https://example.invalid/dranet"


def run(script: str, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """One of the two scripts."""
    command = [sys.executable, str(PROJECT / "deploy/release" / script), *map(str, words)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def release(output: Path, **environment: str) -> Path:
    options = ("--dirty", "--registry", REGISTRY, "--output", output)
    done = run("release.py", dranet.__version__, *options, DRANET_SOURCE_URL=SOURCE, **environment)
    assert done.returncode == 0, done.stderr
    return output
