"""A minimal Debian root from packages: downloaded and unpacked, never installed.

Only libraries and the interpreter go in: no shell, no package manager, nothing to log in to. apt gets folders and a
sources list of its own; the mirror and its keys are those of the machine's own apt.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SUITE = "trixie"
PYTHON = "3.13"
PACKAGES = (
    "libbz2-1.0",
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    f"libpython{PYTHON}-minimal",
    f"libpython{PYTHON}-stdlib",
    "libsqlite3-0",
    "libssl3t64",
    "libstdc++6",
    "libuuid1",
    "libzstd1",
    f"python{PYTHON}-minimal",
    "zlib1g",
)
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MULTIARCH = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
LOADER = {"amd64": "lib64/ld-linux-x86-64.so.2", "arm64": "lib/ld-linux-aarch64.so.1"}

UNUSED = (
    f"usr/lib/python{PYTHON}/ensurepip/",
    f"usr/lib/python{PYTHON}/idlelib/",
    f"usr/lib/python{PYTHON}/pydoc_data/",
    f"usr/lib/python{PYTHON}/test/",
    f"usr/lib/python{PYTHON}/tkinter/",
    f"usr/lib/python{PYTHON}/turtledemo/",
    f"usr/lib/python{PYTHON}/_pyrepl/",
    "usr/share/doc/",
    "usr/share/lintian/",
    "usr/share/locale/",
    "usr/share/man/",
    "usr/share/bug/",
    "usr/lib/valgrind/",
    "usr/share/applications/",
    "usr/share/pixmaps/",
    "usr/share/binfmts/",
)
UNUSED_IN_PATH = ("/gconv/", "/audit/", "/engines-3/", "/ossl-modules/", "/locale/")


def root(cache: Path, architecture: str) -> Path:
    """The unpacked root for an architecture, from the cache or freshly downloaded."""
    listed = hashlib.sha256(" ".join(PACKAGES).encode()).hexdigest()[:8]
    folder = cache / f"{SUITE}-{architecture}-{listed}"
    if not (folder / "PACKAGES").exists():
        shutil.rmtree(folder, ignore_errors=True)
        debs = _download(cache / f"{SUITE}-{architecture}-debs", architecture)
        for deb in debs:
            _run(["dpkg", "-x", str(deb), str(folder)])
        (folder / "PACKAGES").write_text("".join(f"{deb.name}\n" for deb in debs))
    return folder


def wanted(path: str) -> bool:
    """Whether a file of the root goes into the image."""
    within = f"{path}/"
    return not (within.startswith(UNUSED) or any(part in within for part in UNUSED_IN_PATH) or path == "PACKAGES")


def python_command(root_folder: Path, architecture: str) -> list[str]:
    """How to run the root's interpreter from outside it, without becoming root or changing root."""
    library = root_folder / "usr/lib" / MULTIARCH[architecture]
    loader = root_folder / "usr" / LOADER[architecture]
    return [str(loader), "--library-path", str(library), str(root_folder / f"usr/bin/python{PYTHON}")]


def _download(folder: Path, architecture: str) -> Sequence[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("lists/partial", "cache/archives/partial", "empty"):
        (folder / name).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {SUITE} main\n")
    apt = _private_apt(folder, architecture)
    _run([*apt, "update", "-qq"])
    _run([*apt, "download", "-qq", *PACKAGES], folder)
    return sorted(folder.glob("*.deb"))


def _private_apt(folder: Path, architecture: str) -> list[str]:
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Sandbox::User": "root",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::preferencesparts": folder / "empty",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": folder / "empty",
        "Dir::State::lists": folder / "lists",
        "Dir::State::status": "/dev/null",
    }
    return ["apt-get", *(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))]


def _mirror() -> str:
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = release.get("VERSION_CODENAME", "").strip('"')
    for line in _run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]).splitlines():
        uri, _, name = line.partition(" ")
        if name == codename:
            return uri
    raise SystemExit(
        f"apt has no archive for {codename!r}: build on a Debian machine whose apt works, or use Dockerfile"
    )


def _run(command: Sequence[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout
