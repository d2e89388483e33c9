"""Debian packages, unpacked into the cache and never installed.

containerd, etcd, the CNI plugins and kubectl come from a newer Debian than the machine may run: they are Go
programs that start on an older libc too. apt gets folders and a sources list of its own, so neither the machine's
package lists nor its installed packages are read or changed. The mirror and its keys are those the machine's own
apt uses.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .cache import BedError, cached

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Package:
    """A binary package of one Debian release. Releases move, so the version found is written beside the files."""

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
    codename = _codename()
    listed = _run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]).splitlines()
    for line in listed:
        uri, _, release = line.partition(" ")
        if release == codename:
            return uri
    raise BedError(f"apt on this machine has no archive for release {codename!r}: add one to its sources")


def _codename() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise BedError(
        "/etc/os-release has no VERSION_CODENAME: the bed takes parts from Debian and needs a Debian machine"
    )


def _fetch(package: Package, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="bed-apt-") as scratch:
        apt = _private_apt(Path(scratch), package.suite)
        _run([*apt, "update", "-qq"])
        _run([*apt, "download", "-qq", package.name], cwd=Path(scratch))
        (archive,) = Path(scratch).glob(f"{package.name}_*.deb")
        _run(["dpkg", "-x", str(archive), str(folder)])
        (folder / "VERSION").write_text(_run(["dpkg-deb", "-f", str(archive), "Version"]))


def _private_apt(scratch: Path, suite: str) -> list[str]:
    """An apt-get that knows only `suite` and keeps everything in `scratch`."""
    for name in ("lists/partial", "cache/archives/partial", "empty"):
        (scratch / name).mkdir(parents=True)
    (scratch / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
    settings = {
        "Dir::State::lists": scratch / "lists",
        "Dir::State::status": "/dev/null",  # an installed package of the same name must not be preferred
        "Dir::Cache": scratch / "cache",
        "Dir::Etc::sourcelist": scratch / "sources.list",
        "Dir::Etc::sourceparts": scratch / "empty",
        "Dir::Etc::preferencesparts": scratch / "empty",
        "APT::Sandbox::User": "root",
    }
    return ["apt-get", *(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))]


def _run(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise BedError(f"{' '.join(command[-3:])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
