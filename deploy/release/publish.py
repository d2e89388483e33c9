"""Push image and chart of a release to a registry: ``make publish REGISTRY=host:port/path``.

The chart must name the image where it is, so files that name the registry are rewritten for this one; image and wheel
stay as they are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# Both recipes run by path, with nothing installed.
sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "image"))

import facts as facts_of
import release
from facts import NAME, PROJECT
from registry import Registry


def main() -> None:
    """Parse, push, and say how to install what is there now."""
    parser = argparse.ArgumentParser(description="Push image and chart of the release in dist/ to a registry.")
    parser.add_argument("registry", help="host:port/path")
    parser.add_argument("--dist", type=Path, default=PROJECT / "dist")
    options = parser.parse_args()
    facts = facts_of.from_folder(options.dist).at(options.registry)
    release.address(facts, options.dist)
    image = Registry(facts.image).push(options.dist / "image", facts.version)
    where = f"{facts.registry}/charts/{NAME}"
    chart = Registry(where).push(options.dist / "chart", facts.version)
    print(f"image  {facts.image}:{facts.version}@{image}\nchart  {where}:{facts.version}@{chart}\n")
    print(f"helm install {NAME} oci://{where} --version {facts.version} --namespace kube-system")


if __name__ == "__main__":
    main()
