"""Isolation of the demo: it cannot reach the machine's interfaces, and leaves nothing behind.

The sandbox runs in new network, mount and PID namespaces, and without root also in a user namespace. So isolation does
not depend on cleanup: the machine's interfaces are not visible, the sandbox's files are in a private tmpfs, and when
its first process exits for any reason, the kernel kills all others.

`run_isolated` starts a command in there and waits. `prepare_sandbox` is the first call inside that command.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dranet.core.errors import DranetError
from dranet.linux.namespaces import Namespace

MOUNT_POINTS = ("/run", "/mnt", "/srv", "/opt")
"""Folders that the private tmpfs may cover; the first one that hides nothing needed is used."""
_NAMESPACES, _USER_NAMESPACE = ("--net", "--mount", "--pid", "--fork", "--kill-child"), ("--user", "--map-root-user")
_MS_BIND, _PR_SET_PDEATHSIG = 4096, 1
_libc = ctypes.CDLL(None, use_errno=True)


class IsolationError(DranetError):
    """This machine does not permit new namespaces."""


@dataclass(frozen=True, slots=True)
class SandboxRoot:
    """The private file systems of the sandbox."""

    folder: Path
    """An empty tmpfs."""
    names: Path
    """Named network namespaces are mounted here. If this is below /run, ``ip netns`` lists them."""
    pid: int
    """The PID of this process on the machine, for nsenter."""
    own_user: bool
    """Whether the sandbox has its own user namespace."""

    def name(self, namespace: Namespace, name: str) -> None:
        """Mount a namespace under a name inside the sandbox."""
        target = self.names / name
        target.touch()
        _mount(f"/proc/self/fd/{namespace.fd}", str(target), "", _MS_BIND)


def run_isolated(command: Sequence[str], keep_open: Sequence[int] = ()) -> int:
    """Run a command in new namespaces; returns its exit status. It is killed when this process dies."""
    prefix = isolation_command()
    us = os.getpid()

    def before() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != us:
            os._exit(1)

    # In a session of its own, so that Ctrl-C reaches it only through us. It then stops in its own time, and we wait.
    # Any other signal ends us, and the kernel kills it.
    started = subprocess.Popen([*prefix, *command], preexec_fn=before, start_new_session=True, pass_fds=keep_open)
    with started as process:
        previous = signal.signal(signal.SIGINT, lambda *_: os.killpg(process.pid, signal.SIGINT))
        try:
            status = process.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
    return status if status >= 0 else 128 - status


def prepare_sandbox() -> SandboxRoot:
    """Mount the private file systems. Call it first and once inside `run_isolated`."""
    pid = int(os.readlink("/proc/self"))  # the old /proc still has the machine's PIDs
    _mount("proc", "/proc", "proc")
    base = find_mount_point(needed_paths())
    _mount("dranet", base, "tmpfs")
    folder, names = Path(base, "dranet"), Path(base, "netns")
    folder.mkdir()
    names.mkdir()
    mapped = Path("/proc/self/uid_map").read_text().split()
    return SandboxRoot(folder, names, pid, own_user=mapped[-1] == "1")


def isolation_command() -> list[str]:
    """The command prefix that runs a command in new namespaces; raises if this machine does not permit them."""
    tool = shutil.which("unshare")
    if tool is None:
        raise IsolationError("the sandbox needs the program unshare; install the package util-linux")
    tried = [_NAMESPACES, (*_USER_NAMESPACE, *_NAMESPACES)] if os.geteuid() == 0 else [(*_USER_NAMESPACE, *_NAMESPACES)]
    reason = ""
    for options in tried:
        probe = subprocess.run(
            [tool, *options, "--mount-proc", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if probe.returncode == 0:
            return [tool, *options, "--"]
        reason = probe.stderr.strip()
    raise IsolationError(f"cannot create namespaces on this machine: {reason}; {_advice()}")


def _advice() -> str:
    if os.geteuid() == 0:
        return "in a container, start it with --privileged"
    knobs = ("kernel.unprivileged_userns_clone=1", "kernel.apparmor_restrict_unprivileged_userns=0")
    there = [knob for knob in knobs if Path("/proc/sys", knob.partition("=")[0].replace(".", "/")).exists()]
    allow = "".join(f", or allow them with: sysctl -w {knob}" for knob in there)
    return f"run it as root{allow}"


def needed_paths() -> list[Path]:
    """Paths that must stay visible: Python, this program, the working directory."""
    return [Path(path).resolve() for path in (sys.executable, sys.prefix, sys.base_prefix, __file__, os.getcwd())]


def find_mount_point(needed: Sequence[Path]) -> str:
    """A folder that may be covered by a mount."""
    for folder in MOUNT_POINTS:
        if os.path.isdir(folder) and not any(path.is_relative_to(folder) for path in needed):
            return folder
    folders = ", ".join(MOUNT_POINTS)
    raise IsolationError(f"cannot mount a tmpfs on {folders}: Python or this program is in each; move one of them")


def _mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise IsolationError(f"cannot mount {kind or source} on {target}: {reason}")
