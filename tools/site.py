"""Build the documentation website: `make docs-site`. It needs no network once its packages are installed.

MkDocs reads one folder, but our pages link from docs/ to the README and to examples/. So this copies the tree
unchanged, and the site's addresses are the repository's paths. A broken link or anchor, and a page that is missing in
the menu, fail the build (`strict`).
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
    # Not --quiet: it hides warnings from the count that --strict uses.
    command = [str(ROOT / ".venv-site/bin/mkdocs"), "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main())
