"""Write down what the image is made of, to the byte: ``python deploy/image/lock.py``.

A version alone can be any bytes. The hash of each wheel, for both architectures, makes it these; pip refuses others.
Change a version in a file by hand, then run this. Debian's packages are locked as they are now, the newest.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import build
import debian
import wheels

FILES = ("requirements.txt", "build-requirements.txt")


def main() -> None:
    for name in FILES:
        path = build.HERE / name
        lines = path.read_text().splitlines()
        remarks = [line for line in lines if line.startswith("#")]
        wanted = [line.split()[0] for line in lines if "==" in line]
        path.write_text("\n".join([*remarks, *(entry(one) for one in wanted)]) + "\n")
    lock_debian(build.default_cache())


def lock_debian(cache: Path) -> None:
    """The packages of both architectures, with their hashes."""
    lines = [line for architecture in debian.MULTIARCH for line in debian.newest_files(cache, architecture)]
    debian.LOCK.write_text("".join(f"{line}\n" for line in lines))


def entry(requirement: str) -> str:
    """One requirement with the hashes of its wheels."""
    hashes: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for architecture in debian.MULTIARCH:
            target = Path(folder) / architecture
            wheels.pip("download", "--no-deps", f"--dest={target}", *wheels.target(architecture), requirement)
            hashes |= {hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in target.glob("*.whl")}
    return " \\\n".join([requirement, *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))])


if __name__ == "__main__":
    main()
