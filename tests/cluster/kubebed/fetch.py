"""Debian packages, unpacked into the cache and never installed.

containerd, etcd, the CNI plugins and kubectl come from a newer Debian than the machine may run: they are Go
programs that start on an older libc too. `tools.apt` downloads and unpacks them.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import apt

from .cache import BedError, cached

KEYRING = Path(apt.KEYRING)


@dataclass(frozen=True)
class Package:
    """A binary package of one Debian release. Releases move, so the version found is written next to the files."""

    name: str
    suite: str

    @property
    def key(self) -> str:
        return f"deb/{self.suite}-{self.name}"


def unpacked(package: Package) -> Path:
    """The folder into which the package's files were unpacked."""
    return cached(package.key, lambda folder: _fetch(package, folder))


def version(package: Package) -> str:
    return (unpacked(package) / "VERSION").read_text().strip()


def mirror() -> str:
    """The Debian archive of the machine's own apt configuration."""
    with in_our_words():
        return apt.mirror()


def _fetch(package: Package, folder: Path) -> None:
    with in_our_words(), tempfile.TemporaryDirectory(prefix="bed-apt-") as scratch:
        archive = apt.Archive(Path(scratch), apt.source(package.suite))
        archive.update()
        (found,) = archive.download(package.name)
        apt.unpack([found], folder)
        (folder / "VERSION").write_text(f"{apt.version(found)}\n")


@contextlib.contextmanager
def in_our_words() -> Iterator[None]:
    try:
        yield
    except apt.AptError as error:
        raise BedError(str(error)) from error
