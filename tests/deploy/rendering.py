"""Rendering the chart with helm, and finding objects in the result."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]


def render(helm: str, deploy: Path, values: Manifest | None = None, *flags: str) -> subprocess.CompletedProcess[str]:
    chart = str(deploy / "helm" / "dranet")
    command = [helm, "template", "dranet", chart, "--namespace", "kube-system", *(flags or ["--no-hooks"])]
    return subprocess.run(
        [*command, "--values", "-"], input=json.dumps(values or {}), capture_output=True, text=True, check=False
    )


def manifests(text: str) -> list[Manifest]:
    return [item for item in yaml.safe_load_all(text) if item]


def the(kind: str, items: list[Manifest]) -> Manifest:
    [found] = [item for item in items if item["kind"] == kind]
    return found


def container(items: list[Manifest]) -> Manifest:
    found: Manifest = the("DaemonSet", items)["spec"]["template"]["spec"]["containers"][0]
    return found
