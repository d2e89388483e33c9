"""OCI layouts, read."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def blob(layout: Path, descriptor: Mapping[str, Any]) -> bytes:
    """The content of a descriptor, which must be what the descriptor says."""
    digest = str(descriptor["digest"]).removeprefix("sha256:")
    content = (layout / "blobs/sha256" / digest).read_bytes()
    assert len(content) == descriptor["size"]
    assert hashlib.sha256(content).hexdigest() == digest
    return content


def top(layout: Path) -> dict[str, Any]:
    [entry] = json.loads((layout / "index.json").read_text())["manifests"]
    return dict(entry)


def images(layout: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Architecture and manifest of each image."""
    for descriptor in json.loads(blob(layout, top(layout)))["manifests"]:
        yield descriptor["platform"]["architecture"], json.loads(blob(layout, descriptor))


def unpack(layout: Path, architecture: str, root: Path) -> None:
    manifest = dict(images(layout))[architecture]
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(blob(layout, layer)), mode="r:gz") as tar:
            tar.extractall(root, filter="tar")
