"""What a release is made from: the commit, its time, who says so. Every file of the release follows from these.

They are kept in the provenance statement, from where `make publish` reads them again.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import build

PROJECT = Path(__file__).resolve().parents[2]

PROVENANCE = "provenance.json"
NAME = "dranet"


@dataclass(frozen=True)
class Facts:
    version: str
    commit: str
    epoch: int
    """Seconds of the commit, or of SOURCE_DATE_EPOCH."""
    source: str = ""
    """Where the source is published; empty if not set."""
    registry: str = ""
    """Where image and chart will be; empty: nowhere, and the chart names an image on the node."""
    locked: bool = False
    """Whether the release had to be made from exactly the packages of the lock."""

    @property
    def created(self) -> str:
        return datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def image(self) -> str:
        return f"{self.registry or 'localhost'}/{NAME}"

    def at(self, registry: str) -> Facts:
        return replace(self, registry=registry.strip("/"))

    def document(self) -> dict[str, object]:
        return asdict(self)


def from_tree(version: str, registry: str, dirty: bool, locked: bool) -> Facts:
    """Of the tree as it is; it must be a commit and nothing else, unless `dirty` says that this is known."""
    if version != build.version():
        raise SystemExit(
            f"VERSION={version} was asked for and the tree is {build.version()}: "
            "set it in src/dranet/__init__.py and deploy/helm/dranet/Chart.yaml, then make install-yaml docs"
        )
    changed = _git("status", "--porcelain")
    if changed and not dirty:
        raise SystemExit(
            f"the tree differs from its commit, so this build could not be repeated; commit first:\n{changed}"
        )
    commit = _git("rev-parse", "HEAD") + ("-dirty" if changed else "")
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct"))
    return Facts(version, commit, epoch, os.environ.get("DRANET_SOURCE_URL", ""), locked=locked).at(registry)


def from_folder(dist: Path) -> Facts:
    """Of a release that was made."""
    try:
        statement = json.loads((dist / PROVENANCE).read_text())
    except FileNotFoundError:
        raise SystemExit(f"no release in {dist}: make release VERSION={build.version()}") from None
    return Facts(**statement["predicate"]["buildDefinition"]["externalParameters"])


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(PROJECT), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"a release is made from a git checkout: git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()
