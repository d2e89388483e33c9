"""The control groups a node's pods live in: one branch in every hierarchy of the machine, removed with the node.

Tried on machines with the separate hierarchies of cgroup v1; a unified machine has one hierarchy and takes the same
way.
"""

from __future__ import annotations

import errno
import os
from functools import partial
from pathlib import Path

from .processes import wait_until

ROOT = Path("/sys/fs/cgroup")


def make(name: str) -> None:
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
    for setting in ("cpuset.mems", "cpuset.cpus"):  # a v1 cpuset starts empty and takes no process until filled
        source = ROOT / "cpuset" / setting
        if source.exists():
            (ROOT / "cpuset" / name / setting).write_text(source.read_text())


def remove(name: str) -> None:
    """Leaves before branches; a group can be removed only when the kernel has buried its last process."""
    for hierarchy in _hierarchies():
        branch = hierarchy / name
        if branch.is_dir():
            wait_until(partial(_try_remove, branch), f"the processes in {branch} to end", 60)


def pod_processes(name: str, pod_uid: str) -> list[int]:
    """Processes of a pod's containers and sandbox, as the machine numbers them, in the order of their numbers."""
    hierarchy = ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "pids"
    found: set[int] = set()
    for group, _, _ in os.walk(hierarchy / name):
        if f"pod{pod_uid}" in group:
            found.update(_processes(Path(group)))
    return sorted(found)


def _processes(group: Path) -> list[int]:
    """None where the group has just gone: that of a container which ends is removed while it is read."""
    try:
        return [int(number) for number in (group / "cgroup.procs").read_text().split()]
    except OSError as problem:
        if problem.errno not in (errno.ENOENT, errno.ENODEV):
            raise
        return []


def _hierarchies() -> list[Path]:
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return sorted(path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink())


def _try_remove(branch: Path) -> bool:
    try:
        for folder, _, _ in os.walk(branch, topdown=False):
            os.rmdir(folder)
    except OSError:
        return False
    return True
