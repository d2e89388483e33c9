"""What a release has in its registry, by digest: ``python deploy/release/artifacts.py dist``.

One reference a line: the image and the chart. With ``--contents``: each architecture's image and the file with the list
of its contents.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

# Both recipes run by path, with nothing installed.
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "image"))

import facts as facts_of
import release
from facts import NAME, Facts


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(description="Name the artifacts of the release in a folder by digest.")
    parser.add_argument("dist", type=Path)
    parser.add_argument("--contents", action="store_true", help="images of each architecture, with their SPDX files")
    options = parser.parse_args()
    facts = facts_of.from_folder(options.dist)
    if not facts.registry:
        raise SystemExit(f"the release in {options.dist} was not published: make publish REGISTRY=host/path")
    lines = contents(facts, options.dist) if options.contents else artifacts(facts, options.dist)
    print("\n".join(lines))


def artifacts(facts: Facts, dist: Path) -> Iterator[str]:
    yield f"{facts.image}@{release.top_digest(dist / 'image')}"
    yield f"{facts.registry}/charts/{NAME}@{release.top_digest(dist / 'chart')}"


def contents(facts: Facts, dist: Path) -> Iterator[str]:
    digest = release.top_digest(dist / "image").removeprefix("sha256:")
    index = json.loads((dist / "image/blobs/sha256" / digest).read_text())
    for entry in index["manifests"]:
        architecture = entry["platform"]["architecture"]
        listing = dist / f"{NAME}-{facts.version}-image-{architecture}.spdx.json"
        yield f"{facts.image}@{entry['digest']} {listing}"


if __name__ == "__main__":
    main()
