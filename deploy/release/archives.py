"""Archives of a release that are neither image nor chart: the kustomize overlays, and the plugin for krew.

Both have fixed times, owners and order, so the same commit gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from chart import install_yaml
from facts import NAME, PROJECT, Facts
from oci import LayerWriter

OVERLAYS = PROJECT / "deploy/kustomize"
UNSET = "set-your-registry.invalid/dranet"
PLUGIN = """\
#!/bin/sh
# kubectl dranet: runs the Python package of the same version, without installing it.
command -v uvx >/dev/null && exec uvx --from {package} kubectl-{name} "$@"
command -v pipx >/dev/null && exec pipx run --spec {package} kubectl-{name} "$@"
echo "kubectl {name} needs uv or pipx to run the Python package {package}" >&2
exit 127
"""


def kustomize(facts: Facts, image_digest: str) -> bytes:
    """The overlays of all clouds. Those of a release with a registry name its image by digest."""
    files: dict[str, tuple[bytes, int]] = {}
    for path in sorted(OVERLAYS.rglob("*.yaml")):
        text = path.read_text()
        if path.name == "install.yaml":
            text = install_yaml(facts, image_digest)
        elif facts.registry:
            # The manifest names the image already, so there is nothing left to replace, and nothing to ask for.
            text = _without_images(text)
        files[f"{NAME}-{facts.version}/{path.relative_to(OVERLAYS)}"] = (text.encode(), 0o644)
    return _archive(files)


def krew_archive(facts: Facts) -> bytes:
    """What krew unpacks: a script, because the package has compiled libraries for each Python."""
    script = PLUGIN.format(package=f"{NAME}=={facts.version}", name=NAME).encode()
    licence = (PROJECT / "LICENSE").read_bytes()
    return _archive({f"kubectl-{NAME}": (script, 0o755), "LICENSE": (licence, 0o644)})


def krew_manifest(facts: Facts, archive: Path) -> dict[str, Any]:
    """For krew's index. YAML takes JSON as it is."""
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]},
        "uri": f"{facts.source}/releases/download/v{facts.version}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "files": [{"from": f"kubectl-{NAME}", "to": "."}, {"from": "LICENSE", "to": "."}],
        "bin": f"kubectl-{NAME}",
    }
    spec = {
        "version": f"v{facts.version}",
        "homepage": facts.source,
        "shortDescription": "Predict and explain placement of GPUs and NICs",
        "description": "Plans, explains and checks claims for GPUs and NICs (Dynamic Resource Allocation).\n"
        "Needs uv or pipx, which run the Python package of the same version.\n",
        "platforms": [platform],
    }
    api = "krew.googlecontainertools.github.com/v1alpha2"
    return {"apiVersion": api, "kind": "Plugin", "metadata": {"name": NAME}, "spec": spec}


def write_krew(facts: Facts, dist: Path) -> None:
    """Archive and manifest; without a place for the source there is no address to download from."""
    archive = dist / f"kubectl-{NAME}-{facts.version}.tar.gz"
    archive.write_bytes(krew_archive(facts))
    if facts.source:
        (dist / "krew.yaml").write_text(json.dumps(krew_manifest(facts, archive), indent=1) + "\n")


def _without_images(text: str) -> str:
    """A kustomization without the entry that replaces the image, and without the comments on it."""
    head, found, _ = text.partition("# A build from source is in no registry")
    return head if found else "".join(line for line in text.splitlines(True) if UNSET not in line)


def _archive(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        writer = LayerWriter(tar)
        for name, (content, mode) in files.items():
            writer.file(name, content, mode)
    return gzip.compress(buffer.getvalue(), 9, mtime=0)
