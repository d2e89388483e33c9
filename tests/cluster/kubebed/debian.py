"""Images with a whole Debian in them, for jobs that need more than busybox: MPI over ssh, Python with libraries.

debootstrap fills a folder, which becomes the one layer of an image. It runs in a mount namespace of its own, so that
what it mounts cannot stay behind on the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .cache import BedError, cached
from .fetch import KEYRING, Package, mirror, unpacked
from .images import ImageConfig, image_from_root

DEBOOTSTRAP = Package("debootstrap", "bookworm")


@dataclass(frozen=True)
class DebianImage:
    """What goes into the image; any change makes another entry in the cache."""

    name: str
    packages: Sequence[str]
    suite: str = "bookworm"
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files by path, for instance `etc/ssh/sshd_config.d/job.conf`."""
    config: ImageConfig = field(default_factory=lambda: ImageConfig(command=("/bin/bash",)))

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:12]

    @property
    def reference(self) -> str:
        return f"localhost/{self.name}:{self.digest}"


# Open MPI reaches its workers by ssh with keys the operator mounts; host keys are the same in all pods, to no harm.
MPI = DebianImage(
    "mpi",
    ("openmpi-bin", "openssh-server", "openssh-client", "iproute2", "python3-mpi4py"),
    files={
        "run/sshd/.keep": "",  # sshd does not start without this folder, and there is no systemd to make it
        "etc/ssh/sshd_config.d/job.conf": "StrictModes no\nUsePAM no\n",
        "etc/ssh/ssh_config.d/job.conf": "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n",
    },
    config=ImageConfig(command=("/usr/sbin/sshd", "-De")),
)


def debian_image(image: DebianImage) -> Path:
    """The tar file to load, built on first use (one to two minutes)."""
    return cached(f"images/{image.name}-{image.digest}", lambda folder: _build(image, folder)) / "image.tar"


def _build(image: DebianImage, folder: Path) -> None:
    root = folder / "root"
    bootstrap(image, root)
    for path, text in image.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    image_from_root(root, folder / "image.tar", image.reference, image.config)
    subprocess.run(["rm", "-rf", "--one-file-system", str(root)], check=True)


def bootstrap(image: DebianImage, root: Path) -> None:
    """A Debian with the image's packages in the empty folder `root`."""
    tool = unpacked(DEBOOTSTRAP)
    command = ["unshare", "-m", "nice", str(tool / "usr/sbin/debootstrap"), "--variant=minbase", f"--keyring={KEYRING}"]
    command += [f"--include={','.join(image.packages)}", image.suite, str(root), mirror()]
    scripts = str(tool / "usr/share/debootstrap")
    environment = {**os.environ, "DEBOOTSTRAP_DIR": scripts, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise BedError(f"debootstrap of {image.name} failed: {(done.stdout + done.stderr)[-2000:]}")
    for leftover in (*root.glob("var/cache/apt/archives/*.deb"), *root.glob("var/lib/apt/lists/*_*")):
        leftover.unlink()
