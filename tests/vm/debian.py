"""Debian packages without installing them: resolved by apt in a state folder of its own, unpacked side by side.

The mirror is the one this machine's apt already uses; only the suite differs. Nothing of the machine's own package
state is read or changed, no maintainer script runs, and no root rights are needed. Programs unpacked this way start
through their own dynamic loader (`command`), so they do not care which distribution the machine runs.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

LOADER = "usr/lib64/ld-linux-x86-64.so.2"
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/systemd")


class NotAvailable(Exception):
    """This machine cannot have the virtual machine; the message says what is missing."""


@dataclass(frozen=True)
class Archive:
    """One Debian suite, with package lists and downloads kept under `folder`."""

    suite: str
    folder: Path

    def update(self) -> None:
        for name in ("state/lists/partial", "cache/archives/partial"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text(f"deb {debian_mirror()} {self.suite} main\n")
        self._apt("apt-get", "update")

    def closure(self, *packages: str) -> list[Path]:
        """Downloads the packages and all they depend on, and answers the files."""
        listed = self._apt("apt-get", "install", "--yes", "--print-uris", *packages)
        self._apt("apt-get", "install", "--yes", "--download-only", *packages)
        names = [line.split()[1] for line in listed.splitlines() if line.startswith("'")]
        return [self.folder / "cache/archives" / name for name in names]

    def download(self, package: str) -> Path:
        """Downloads one package without what it depends on."""
        target = self.folder / "single" / package
        target.mkdir(parents=True, exist_ok=True)
        self._apt("apt-get", "download", package, cwd=target)
        (found,) = target.glob("*.deb")
        return found

    def depends(self, package: str) -> list[str]:
        lines = self._apt("apt-cache", "depends", "--important", package).splitlines()
        return [line.split()[-1] for line in lines if "Depends:" in line]

    def _apt(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        command = [program, "-q", *(word for option in self._options() for word in ("-o", option)), *arguments]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotAvailable(f"{program} {' '.join(arguments[:3])} in {self.suite}: {done.stderr.strip()}")
        return done.stdout

    def _options(self) -> list[str]:
        folder = self.folder
        return [
            f"Dir::State={folder}/state",
            f"Dir::State::status={folder}/status",
            f"Dir::Cache={folder}/cache",
            f"Dir::Etc::sourcelist={folder}/sources.list",
            "Dir::Etc::sourceparts=/dev/null",
            "Dir::Etc::preferences=/dev/null",
            "Dir::Etc::preferencesparts=/dev/null",
            "APT::Install-Recommends=false",
            f"APT::Sandbox::User={os.environ.get('USER', 'root')}",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
            "Acquire::Languages=none",
        ]


def debian_mirror() -> str:
    """Where this machine's apt gets Debian itself (not its security updates) from."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise NotAvailable("apt-get and dpkg-deb are needed to fetch Debian packages, and are not on this machine")
    template = "$(REPO_URI) $(CODENAME)"
    command = ["apt-get", "indextargets", "--format", template, "Created-By: Packages", "Origin: Debian"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    mirrors = sorted({line.split()[0] for line in lines if line.strip() and "-" not in line.split()[1]})
    if not mirrors:
        raise NotAvailable("apt on this machine knows no Debian mirror (run apt-get update on a Debian machine)")
    return mirrors[0]


def unpack(packages: list[Path], root: Path) -> None:
    """Unpacks the packages over each other; base-files first, for it brings the links /bin, /lib and /sbin."""
    for package in sorted(packages, key=lambda path: (not path.name.startswith("base-files_"), path.name)):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)


def command(root: Path, program: str, *arguments: str) -> list[str]:
    """The command line that starts a program unpacked under `root`, on any distribution."""
    libraries = ":".join(str(root / folder) for folder in LIBRARIES)
    return [str(root / LOADER), "--library-path", libraries, str(root / program), *arguments]
