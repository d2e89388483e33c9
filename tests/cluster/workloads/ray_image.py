"""An image with Ray and gloo: Ray from its wheels, torch from Debian.

Ray's own packages come before Debian's on the path: Debian's are older, and its agent dies of them.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from tests.cluster.kubebed.cache import BedError, cached
from tests.cluster.kubebed.debian import DebianImage, bootstrap
from tests.cluster.kubebed.images import ImageConfig, image_from_root

RAY_VERSION = "2.60.0"
BASE = DebianImage("ray", ("python3", "python3-torch", "iproute2", "wget", "procps"))
WHEELS = (f"ray[default]=={RAY_VERSION}", "numpy<2")
FOLDER = "opt/ray"
PYTHON = "3.11"
"""What the Debian in the image has; wheels must be for it, whatever Python this machine has."""
CONFIG = ImageConfig(
    command=("/bin/bash",),
    env={
        "PYTHONPATH": f"/{FOLDER}",
        "PATH": f"/{FOLDER}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HOME": "/root",
    },
)
DIGEST = hashlib.sha256(repr((BASE.digest, WHEELS, CONFIG)).encode()).hexdigest()[:12]
REFERENCE = f"localhost/ray:{DIGEST}"


def ray_image() -> Path:
    """The tar file to load; four minutes on first use."""
    return cached(f"images/ray-{DIGEST}", _build) / "image.tar"


def _build(folder: Path) -> None:
    root = folder / "root"
    bootstrap(BASE, root)
    _install(root / FOLDER)
    image_from_root(root, folder / "image.tar", REFERENCE, CONFIG)
    subprocess.run(["rm", "-rf", "--one-file-system", str(root)], check=True)


def _install(target: Path) -> None:
    command = ["nice", sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
    command += ["--only-binary=:all:", f"--python-version={PYTHON}", f"--target={target}", *WHEELS]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BedError(f"pip cannot fetch Ray: {done.stderr[-2000:]}")
    for script in (target / "bin").iterdir():
        lines = script.read_text("utf-8", "replace").split("\n", 1)
        if lines[0].startswith("#!"):
            script.write_text("\n".join(["#!/usr/bin/python3", *lines[1:]]))
