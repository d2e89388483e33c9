"""A real container (runc) with exactly the device nodes that a readiness gate gives it, in a pod's network namespace.

What containerd does with a CDI file is done here by hand, because containerd is a lot for an emulated processor: every
node of the gate is made in the container's fresh /dev and allowed in its device cgroup, and nothing else is.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Node = dict[str, Any]
CAPABILITIES = ["CAP_MKNOD", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_DAC_OVERRIDE"]
"""A generous container: even one that may make device nodes must not get at other people's NICs."""


def nodes_of(gate: Path) -> list[Node]:
    """The device nodes that a CDI file gives to a container."""
    (device,) = json.loads(gate.read_text())["devices"]
    found: list[Node] = device["containerEdits"].get("deviceNodes", [])
    return found


def run(netns: Path, nodes: Sequence[Node], script: str) -> list[str]:
    """What a shell script prints inside, line by line."""
    with tempfile.TemporaryDirectory() as name, _root(Path(name) / "rootfs"):
        (Path(name) / "config.json").write_text(json.dumps(_specification(netns, nodes, script)))
        done = subprocess.run(
            ["runc", "run", "--bundle", name, "guest-test"], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout.splitlines()


@contextmanager
def _root(folder: Path) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "--bind", "/", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _specification(netns: Path, nodes: Sequence[Node], script: str) -> dict[str, Any]:
    spaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "cgroup")]
    allowed = [{"allow": True, "type": "c", "major": n["major"], "minor": n["minor"], "access": "rw"} for n in nodes]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs", "readonly": True},
        "process": {
            "args": ["/bin/sh", "-c", script],
            "cwd": "/",
            "env": ["PATH=/usr/sbin:/usr/bin"],
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), CAPABILITIES),
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"},
        ],
        "linux": {
            "namespaces": [*spaces, {"type": "network", "path": str(netns)}],
            "devices": [{k: n[k] for k in ("path", "type", "major", "minor")} for n in nodes],
            "resources": {"devices": [{"allow": False, "access": "rwm"}, *allowed]},
            "cgroupsPath": "/guest-test",
        },
    }
