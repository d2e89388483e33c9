"""Build the documentation as a site: `make docs-site`. No network is needed once its packages are there.

MkDocs wants one folder, and our pages link from docs/ to the README and to examples/, as they must to work where the
repository is read. So the tree is copied as it is, and the site's addresses are the repository's paths. A link or
anchor that leads nowhere, and a page that no menu has, fail the build (`strict`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "build/site-source"
PARTS = ("docs", "examples", *(path.name for path in ROOT.glob("*.md")), "LICENSE")


def main() -> int:
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, SOURCE / part)
    # Not --quiet: it would keep warnings from being counted, and strict from being strict.
    command = [ROOT / ".venv-site/bin/mkdocs", "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
