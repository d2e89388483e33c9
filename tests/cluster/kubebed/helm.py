"""helm for tests: charts installed the way their users install them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cache import BedError


@dataclass(frozen=True)
class Helm:
    program: Path
    kubeconfig: Path
    cache: Path | None = None
    """As for kubectl."""

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        command = [str(self.program), "--kubeconfig", str(self.kubeconfig), *arguments]
        cache = {"KUBECACHEDIR": str(self.cache)} if self.cache else {}
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, env={**os.environ, **cache})
        if done.returncode != 0:
            raise BedError(f"helm {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def template(self, chart: Path, values: Mapping[str, Any] | None = None, namespace: str = "kube-system") -> str:
        """The manifests as helm would send them."""
        place = ("--namespace", namespace, "--values", "-")
        return self.run("template", chart.name, str(chart), *place, stdin=json.dumps(values or {}))

    def install(
        self, release: str, chart: Path, values: Mapping[str, Any] | None, namespace: str, seconds: int = 120
    ) -> None:
        """Install, or upgrade what is there; returns when everything it made is ready."""
        place = ("--namespace", namespace, "--create-namespace", "--values", "-")
        patience = ("--wait", f"--timeout={seconds}s")
        self.run("upgrade", "--install", release, str(chart), *place, *patience, stdin=json.dumps(values or {}))

    def uninstall(self, release: str, namespace: str) -> None:
        self.run("uninstall", release, "--namespace", namespace, "--wait", "--ignore-not-found")
