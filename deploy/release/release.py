"""Everything a release consists of, below one folder: ``make release VERSION=x``.

No container engine, no helm, no root rights: only apt's and pip's downloads and the standard library's archives. The
same commit, the same packages and the same registry give the same bytes, wherever and whenever it is made. The lists of
contents name the packages with their hashes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

# Both recipes run by path, with nothing installed.
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "image"))

import archives
import build
import chart
import debian
import facts as facts_of
import papers
import sbom
import wheels
from facts import NAME, PROJECT, PROVENANCE, Facts
from oci import INDEX, Image, add_blob, layout_files, to_json

LARGEST = 30_000_000
"""Bytes that a node may have to pull."""


def main() -> None:
    """Parse, make, print."""
    parser = argparse.ArgumentParser(description="Make a release of this commit.")
    parser.add_argument("version")
    parser.add_argument("--registry", default="", help="where image and chart will be published: host/path")
    parser.add_argument("--output", type=Path, default=PROJECT / "dist")
    parser.add_argument("--locked", action="store_true", help="fail if Debian's packages differ from packages.lock")
    parser.add_argument("--dirty", action="store_true", help="also from a tree that differs from its commit, for tests")
    options = parser.parse_args()
    facts = facts_of.from_tree(options.version, options.registry, options.dirty, options.locked)
    make(facts, options.output)
    print((options.output / papers.SUMS).read_text(), end="")


def make(facts: Facts, dist: Path) -> None:
    """All of it; the folder appears when everything is in it."""
    cache = build.default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    dist.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=dist.parent) as scratch:
        work = Path(scratch) / "dist"
        work.mkdir()
        (work / "release-notes.md").write_text(papers.notes(facts, (PROJECT / "CHANGELOG.md").read_text()))
        wheels.build_ours(cache, work, "sdist", "wheel", epoch=facts.epoch, source=facts.source)
        [wheel] = work.glob("*.whl")
        _write_json(work / f"{wheel.name}.spdx.json", sbom.of_wheel(facts, wheel))
        make_image(facts, cache, work, wheel)
        address(facts, work)
        shutil.rmtree(dist, ignore_errors=True)
        work.rename(dist)


def make_image(facts: Facts, cache: Path, dist: Path, wheel: Path) -> None:
    """The image of every architecture, as one OCI layout, each with its list of contents."""
    labels = (("org.opencontainers.image.revision", facts.commit), ("org.opencontainers.image.source", facts.source))
    recipe = build.Recipe(cache, wheel, facts.locked, facts.epoch, tuple(pair for pair in labels if pair[1]))
    images: dict[str, Image] = {}
    for architecture in debian.MULTIARCH:
        images[architecture] = image = build.build(recipe, architecture)
        _say_size(architecture, image)
        root, libraries = debian.root(cache, architecture, facts.locked), wheels.libraries(cache, architecture)
        content = sbom.of_image(facts, architecture, image.digest, root, libraries, wheel)
        _write_json(dist / f"{NAME}-{facts.version}-image-{architecture}.spdx.json", content)
    _write_layout(dist / "image", index_layout(facts, images))


def index_layout(facts: Facts, images: dict[str, Image]) -> dict[str, bytes]:
    """One name for all architectures."""
    blobs = {digest: content for image in images.values() for digest, content in image.blobs.items()}
    index: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [image.descriptor for image in images.values()],
        "annotations": {"org.opencontainers.image.version": facts.version},
    }
    top = add_blob(blobs, to_json(index), INDEX)
    return layout_files([{**top, "annotations": {"org.opencontainers.image.ref.name": facts.version}}], blobs)


def address(facts: Facts, dist: Path) -> str:
    """Write what names the registry, and the papers, which name everything; the chart's digest."""
    image_digest = top_digest(dist / "image")
    archive = chart.pack(facts, image_digest)
    chart_digest, files = chart.artifact(facts, archive)
    _write_layout(dist / "chart", files)
    (dist / f"{NAME}-{facts.version}.tgz").write_bytes(archive)
    (dist / "install.yaml").write_text(chart.install_yaml(facts, image_digest))
    (dist / f"{NAME}-{facts.version}-kustomize.tar.gz").write_bytes(archives.kustomize(facts, image_digest))
    archives.write_krew(facts, dist)
    artifacts = {facts.image: image_digest, f"{facts.registry or 'localhost'}/charts/{NAME}": chart_digest}
    _write_json(dist / PROVENANCE, papers.provenance(facts, dist, artifacts))
    (dist / papers.SUMS).write_text(papers.sums(dist))
    return chart_digest


def top_digest(layout: Path) -> str:
    """Of the one thing that an OCI layout of ours holds."""
    [entry] = json.loads((layout / "index.json").read_text())["manifests"]
    return str(entry["digest"])


def _say_size(architecture: str, image: Image) -> None:
    print(f"{architecture}: {image.compressed / 1e6:.1f} MB compressed, {image.unpacked / 1e6:.1f} MB unpacked")
    if image.compressed > LARGEST:
        raise SystemExit(f"the image for {architecture} is larger than {LARGEST / 1e6:.0f} MB compressed")


def _write_layout(folder: Path, files: dict[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _write_json(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
