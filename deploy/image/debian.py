"""A minimal Debian root from packages: downloaded and unpacked, never installed.

Only libraries and the interpreter go in: no shell, no package manager, nothing to log in to. apt gets folders and a
sources list of its own; the mirror and its keys are those of the machine's own apt.

apt is asked at every build which versions are the newest, security updates included. What it says names the folder in
the cache, so a root is rebuilt exactly when Debian has something newer. packages.lock is the tested set. A build that
finds newer packages uses them and names them: Debian's archive drops the older ones, so a lock that refuses would break
every build after a security update. A publisher who wants exactly the lock builds with `locked`, which refuses instead.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # the recipe runs by path, with nothing installed

from tools import apt

SUITE = "trixie"
SECURITY = f"{SUITE}-security"
PYTHON = "3.13"
LOCK = Path(__file__).with_name("packages.lock")
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


@functools.cache
def root(cache: Path, architecture: str, locked: bool = False) -> Path:
    """The unpacked root for an architecture, with the newest packages there are now; apt is asked once in a build."""
    archive, work = _archive(cache, architecture)
    try:
        with (work / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once take turns
            archive.update()
            newest = files(archive.newest(*PACKAGES))
            _compare_with_lock(LOCK.read_text(), newest, architecture, locked)
            folder = cache / f"{SUITE}-{architecture}-{fingerprint(newest)}"
            if not (folder / "PACKAGES").exists():
                _unpack(archive.download(*PACKAGES), folder)
            listing(folder).write_text("".join(f"{line}\n" for line in newest))
    except apt.AptError as error:
        raise SystemExit(f"{error}; or use Dockerfile") from error
    return folder


def listing(root_folder: Path) -> Path:
    """Next to a root: what it was unpacked from, with hashes, as the lock has it."""
    return root_folder.with_name(f"{root_folder.name}.files")


def newest_files(cache: Path, architecture: str) -> list[str]:
    """What a build would take now."""
    archive, _ = _archive(cache, architecture)
    archive.update()
    return files(archive.newest(*PACKAGES))


def _archive(cache: Path, architecture: str) -> tuple[apt.Archive, Path]:
    work = cache / f"{SUITE}-{architecture}-apt"
    work.mkdir(parents=True, exist_ok=True)
    try:
        own = apt.own_release()
        return apt.Archive(work, sources(apt.mirror(own), apt.mirror(f"{own}-security")), architecture), work
    except apt.AptError as error:
        raise SystemExit(f"{error}; or use Dockerfile") from error


def files(uris: str) -> list[str]:
    """Names with versions, sizes and hashes of what apt would download, whichever mirror they come from."""
    found = sorted(line.split(maxsplit=1)[1] for line in uris.splitlines() if line.strip())
    if not found:
        raise SystemExit("apt names no packages to download, so the newest versions are unknown")
    return found


def _compare_with_lock(text: str, newest: Sequence[str], architecture: str, locked: bool) -> None:
    difference = lock_difference(text, newest, architecture)
    if not difference:
        return
    if locked:
        raise SystemExit(
            f"{difference}: build without --locked to use them, or run make release-lock, test the image and commit"
        )
    print(f"{difference}; this build uses them. To renew the lock: make release-lock", file=sys.stderr)


def lock_difference(text: str, newest: Sequence[str], architecture: str) -> str:
    """How Debian's newest packages differ from the lock, as one line; empty if they do not."""
    locked = [line for line in text.splitlines() if line.split()[0].endswith((f"_{architecture}.deb", "_all.deb"))]
    if locked == list(newest):
        return ""
    changed = ", ".join(sorted(line.split()[0] for line in set(newest) - set(locked)))
    return f"Debian's packages differ from {LOCK.name} ({changed or 'fewer than locked'})"


def fingerprint(found: Sequence[str]) -> str:
    """A name for exactly these packages."""
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def sources(mirror: str, security: str) -> str:
    """The lines of apt's sources."""
    suites = ((mirror, SUITE), (security, SECURITY))
    return "".join(f"deb [signed-by={apt.KEYRING}] {uri} {suite} main\n" for uri, suite in suites)


def _unpack(debs: Sequence[Path], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    apt.unpack(debs, folder)
    (folder / "PACKAGES").write_text("".join(f"{deb.name}\n" for deb in debs))


def wanted(path: str) -> bool:
    """Whether a file of the root goes into the image."""
    within = f"{path}/"
    return not (within.startswith(UNUSED) or any(part in within for part in UNUSED_IN_PATH) or path == "PACKAGES")


def python_command(root_folder: Path, architecture: str) -> list[str]:
    """How to run the root's interpreter from outside it, without becoming root or changing root."""
    library = root_folder / "usr/lib" / MULTIARCH[architecture]
    loader = root_folder / "usr" / LOADER[architecture]
    return [str(loader), "--library-path", str(library), str(root_folder / f"usr/bin/python{PYTHON}")]
