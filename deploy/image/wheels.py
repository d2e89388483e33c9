"""Python packages of the image: our own wheel, and the locked libraries for the image's interpreter.

Everything from the package index has its hash in a requirements file. What was fetched once stays in the cache under
the hash of that file, so a build after the first needs no network for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import debian

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
LIBRARIES = HERE / "requirements.txt"
TOOLS = HERE / "build-requirements.txt"
WHEEL_PLATFORMS = {
    "amd64": ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64"),
    "arm64": ("manylinux2014_aarch64", "manylinux_2_28_aarch64", "manylinux_2_17_aarch64"),
}


def libraries(cache: Path, architecture: str) -> list[Path]:
    """The locked libraries for the image's Python, as wheels."""
    locked = ["--require-hashes", f"--requirement={LIBRARIES}"]
    folder = _kept(
        cache / f"libraries-{architecture}-{hash_of(LIBRARIES)}",
        lambda place: pip("download", "--no-deps", f"--dest={place}", *target(architecture), *locked),
    )
    return sorted(folder.glob("*.whl"))


def build_ours(cache: Path, output: Path, *kinds: str, epoch: int = 0, source: str = "") -> list[Path]:
    """Our own distributions (``wheel``, ``sdist``) below ``output``, by the locked build tool.

    Not through pip: its isolation would fetch the newest build tool from any publisher.
    """
    locked = ["--require-hashes", f"--requirement={TOOLS}"]
    tools = _kept(
        cache / f"tools-{hash_of(TOOLS)}",
        lambda place: pip("install", "--no-deps", f"--target={place}", *locked),
    )
    before = {"PYTHONPATH": str(tools), "SOURCE_DATE_EPOCH": str(max(epoch, 315532800)), "DRANET_SOURCE_URL": source}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(output), *(f"-t{kind}" for kind in kinds)]
    _run(command, before, cwd=PROJECT)
    return sorted(output.glob("dranet-*"))


def unpack(wheels: Sequence[Path], site: Path) -> None:
    """Install wheels by unpacking them; the man page of ours is no use in an image without man."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            outside = [name for name in archive.namelist() if ".data/" in name]
            if any("/share/man/" not in name for name in outside):
                raise SystemExit(f"{wheel.name} has files outside the package folder; the recipe must learn about them")
            archive.extractall(site, [name for name in archive.namelist() if name not in outside])


def target(architecture: str) -> list[str]:
    """What pip must know to fetch wheels for the image and not for this machine."""
    platforms = [f"--platform={name}" for name in WHEEL_PLATFORMS[architecture]]
    return [*platforms, "--implementation=cp", f"--python-version={debian.PYTHON}", "--only-binary=:all:"]


def hash_of(*files: Path) -> str:
    """A short name for the content of files."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def pip(*arguments: str) -> None:
    """This interpreter's pip; its complaint where it fails."""
    _run([sys.executable, "-m", "pip", *arguments], {})


def _kept(folder: Path, fill: Callable[[Path], None]) -> Path:
    """A folder of the cache; one that was not finished is never seen."""
    if not folder.exists():
        scratch = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
        try:
            fill(scratch)
            scratch.rename(folder)
        except OSError:
            if not folder.exists():  # else another build was quicker
                raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _run(command: Sequence[str], environment: dict[str, str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[2:])} failed:\n{(done.stdout + done.stderr)[-2000:]}")
