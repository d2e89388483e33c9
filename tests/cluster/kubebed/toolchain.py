"""Go, which builds the parts that Debian has not: the machine's own, else Debian's, unpacked and never installed."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tools import apt

from .cache import cached
from .fetch import in_our_words

VERSION = "1.26"
SUITE = "forky"


def go() -> str:
    """The command. A machine's own that is too old says so itself when it reads a go.mod."""
    if found := shutil.which("go"):
        return found
    return str(cached(f"deb/{SUITE}-golang-{VERSION}", _fetch) / f"usr/lib/go-{VERSION}/bin/go")


def _fetch(folder: Path) -> None:
    """Program and library sources are two packages, the one with links into the other."""
    with in_our_words(), tempfile.TemporaryDirectory(prefix="bed-apt-") as scratch:
        archive = apt.Archive(Path(scratch), apt.source(SUITE))
        archive.update()
        apt.unpack(archive.download(f"golang-{VERSION}-go", f"golang-{VERSION}-src"), folder)
