"""A release as a stranger gets it: made by `make release`'s script, pushed by `make publish`'s, from a real registry.

Not with `make` itself, which refuses a tree with changes and packages newer than the lock; a scenario is about the tree
as it is, on any day.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dranet
from tests.cluster import release
from tests.cluster.kubebed import Cluster, parts
from tests.cluster.kubebed.registry import start_registry

SCRIPTS = release.PROJECT / "deploy/release"


@dataclass(frozen=True)
class Published:
    """Where it is, and how to work with it."""

    registry: str
    dist: Path
    bed: Cluster

    @property
    def image(self) -> str:
        """By digest, as the chart must name it."""
        [entry] = json.loads((self.dist / "image/index.json").read_text())["manifests"]
        return f"{self.registry}/dranet@{entry['digest']}"

    def shell(self, lines: str, values: dict[str, Any]) -> str:
        """Run lines of a page as they stand there, with what is a bed's own added to helm's."""
        file = self.dist.parent / "values.json"
        file.write_text(json.dumps(values))
        added = re.sub(r"^(helm (?:install|upgrade) .*)$", rf"\1 --values {file}", lines, flags=re.MULTILINE)
        done = subprocess.run(["bash", "-euc", added], env=self._environment(), capture_output=True, text=True)
        assert done.returncode == 0, f"{added}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        programs = f"{parts.add_on(parts.HELM).parent}:{parts.kubectl().parent}:{Path(sys.executable).parent}"
        return {
            **os.environ,
            **trusting(self.bed),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "REGISTRY": self.registry,
            "KUBECONFIG": str(self.bed.layout.kubeconfig),
        }


def publish(bed: Cluster, folder: Path) -> Published:
    registry = f"{start_registry(bed)}/team"
    dist = folder / "dist"
    make = [SCRIPTS / "release.py", dranet.__version__, "--dirty", "--output", dist]
    for command in (make, [SCRIPTS / "publish.py", registry, "--dist", dist]):
        environment = {**os.environ, **trusting(bed)} if command is not make else None
        subprocess.run([sys.executable, *map(str, command)], check=True, stdout=sys.stderr, env=environment)
    return Published(registry, dist, bed)


def trusting(bed: Cluster) -> dict[str, str]:
    """For helm and our own client; the public authorities are nobody's business here."""
    return {"SSL_CERT_FILE": str(bed.layout.pki / "ca.crt")}


def lines_of(page: str, begin: str) -> str:
    """The indented block of a page that begins with a line, or has it."""
    text = (release.PROJECT / page).read_text()
    blocks = re.findall(r"(?:^    .+\n)+", text, re.MULTILINE)
    [block] = [block for block in blocks if re.search(rf"^    {re.escape(begin)}", block, re.MULTILINE)]
    return "".join(line.removeprefix("    ") for line in block.splitlines(keepends=True))
