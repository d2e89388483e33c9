"""Debian packages without installing them: an apt with folders and sources of its own, for the image and the test beds.

The mirror and its keys are those of the machine's own apt; its package lists and installed packages are neither read
nor changed, no maintainer script runs, and no root rights are needed. Standard library only: this runs before there is
an environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class AptError(Exception):
    """apt could not do it: what was asked and what it said."""


@dataclass(frozen=True)
class Archive:
    """Some suites of Debian, with package lists and downloads below `folder`. Call `update` before anything else."""

    folder: Path
    sources: str
    """The lines of apt's sources; see `source`."""
    architecture: str = ""
    """Of the packages; empty: this machine's."""

    def update(self) -> None:
        """Read the newest package lists."""
        for name in ("lists/partial", "cache/archives/partial", "empty", "single"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text(self.sources)
        self._apt("apt-get", "update")

    def newest(self, *packages: str) -> str:
        """What would be downloaded now: a line a package with its file, size and hash."""
        for old in (self.folder / "single").glob("*.deb"):
            old.unlink()  # of what lies there apt says nothing
        return self._apt("apt-get", "download", "--print-uris", *packages, cwd=self.folder / "single")

    def download(self, *packages: str) -> list[Path]:
        """These packages without what they depend on."""
        single = self.folder / "single"
        for old in single.glob("*.deb"):
            old.unlink()
        self._apt("apt-get", "download", *packages, cwd=single)
        return sorted(single.glob("*.deb"))

    def closure(self, *packages: str) -> list[Path]:
        """The packages and all they depend on."""
        listed = self._apt("apt-get", "install", "--yes", "--print-uris", *packages)
        self._apt("apt-get", "install", "--yes", "--download-only", *packages)
        names = [line.split()[1] for line in listed.splitlines() if line.startswith("'")]
        return [self.folder / "cache/archives" / name for name in names]

    def depends(self, package: str) -> list[str]:
        """The names a package depends on directly."""
        lines = self._apt("apt-cache", "depends", "--important", package).splitlines()
        return [line.split()[-1] for line in lines if "Depends:" in line]

    def _apt(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        options = (word for option in self._options() for word in ("-o", option))
        return run([program, "-q", *options, *arguments], cwd)

    def _options(self) -> list[str]:
        folder = self.folder
        wanted = [f"APT::Architecture={self.architecture}", f"APT::Architectures={self.architecture}"]
        return [
            *(wanted if self.architecture else []),
            f"APT::Sandbox::User={os.environ.get('USER', 'root')}",
            "APT::Install-Recommends=false",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::Languages=none",
            f"Dir::Cache={folder}/cache",
            f"Dir::Etc::sourcelist={folder}/sources.list",
            f"Dir::Etc::sourceparts={folder}/empty",
            "Dir::Etc::preferences=/dev/null",
            f"Dir::Etc::preferencesparts={folder}/empty",
            f"Dir::State::lists={folder}/lists",
            f"Dir::State::status={folder}/status",  # empty: an installed package must not be preferred
        ]


def source(suite: str, mirror_suite: str = "") -> str:
    """A line of apt's sources, from the mirror that this machine's own release comes from, or another suite of it."""
    return f"deb [signed-by={KEYRING}] {mirror(mirror_suite)} {suite} main\n"


def mirror(suite: str = "") -> str:
    """Where this machine's own apt gets a suite from; by default its own release."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise AptError("apt-get and dpkg-deb are needed to fetch Debian packages, and are not on this machine")
    wanted = suite or own_release()
    for line in run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]).splitlines():
        uri, _, release = line.partition(" ")
        if release == wanted:
            return uri
    raise AptError(f"apt on this machine has no archive for {wanted!r}: add one to its sources and run apt-get update")


def own_release() -> str:
    """The code name of the Debian this machine runs."""
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise AptError("/etc/os-release has no VERSION_CODENAME: parts come from Debian and need a Debian machine")


def unpack(packages: Sequence[Path], root: Path) -> None:
    """Unpack the packages over each other; base-files first, for it brings the links /bin, /lib and /sbin."""
    for package in sorted(packages, key=lambda path: (not path.name.startswith("base-files_"), path.name)):
        run(["dpkg-deb", "-x", str(package), str(root)])


def version(package: Path) -> str:
    """The version of a downloaded package."""
    return run(["dpkg-deb", "-f", str(package), "Version"]).strip()


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    """What a program printed; raises AptError with its last words."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AptError(f"{' '.join(command[-3:])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
