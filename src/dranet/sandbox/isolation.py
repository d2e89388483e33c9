"""A process tree of its own for the sandbox, so that nothing of it can reach the machine or stay behind.

The sandbox runs in fresh network, mount and process namespaces, and without root in a user namespace too. That makes
the promise hold by construction, not by tidying up: the machine's interfaces are not there to be touched, the sandbox's
files are in a memory file system only it can see, and when its first process ends, however that happens, the kernel
ends all others and everything is gone.

`run_isolated` is the outer half: it starts a command in there and waits. `settle` is the inner half and comes first in
that command.
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

from dranet.kernel.namespaces import Namespace
from dranet.model.errors import DranetError

HOMES = ("/run", "/mnt", "/srv", "/opt")
"""Folders that a file system of our own may cover; the first that hides nothing we need is taken."""
MINE, NOBODYS = ("--net", "--mount", "--pid", "--fork", "--kill-child"), ("--user", "--map-root-user")
_MS_BIND, _PR_SET_PDEATHSIG = 4096, 1
_libc = ctypes.CDLL(None, use_errno=True)


class IsolationError(DranetError):
    """This machine does not let us have namespaces of our own."""


@dataclass(frozen=True, slots=True)
class Quarters:
    """Where the sandbox lives."""

    folder: Path
    """In memory, private, empty."""
    names: Path
    """Namespaces bound here have names; with the usual home, ``ip netns`` in the sandbox knows them."""
    pid: int
    """This process as the machine numbers it, for nsenter."""
    own_user: bool
    """Whether it is in a user namespace of its own."""

    def name(self, namespace: Namespace, name: str) -> None:
        """Give a namespace a name inside the sandbox."""
        target = self.names / name
        target.touch()
        _mount(f"/proc/self/fd/{namespace.fd}", str(target), "", _MS_BIND)


def run_isolated(command: Sequence[str], keep_open: Sequence[int] = ()) -> int:
    """Run a command in namespaces of its own; its exit status. It dies with us, even if we are killed."""
    prefix = isolating_prefix()
    us = os.getpid()

    def before() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != us:
            os._exit(1)

    # In a session of its own, so that an interrupt reaches it once, through us, however it was sent. It ends in its
    # own time then, and we with it; any other signal ends us, and the kernel ends it.
    started = subprocess.Popen([*prefix, *command], preexec_fn=before, start_new_session=True, pass_fds=keep_open)
    with started as process:
        previous = signal.signal(signal.SIGINT, lambda *_: os.killpg(process.pid, signal.SIGINT))
        try:
            status = process.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
    return status if status >= 0 else 128 - status


def settle() -> Quarters:
    """Make the private file systems; call once, inside, before anything else."""
    pid = int(os.readlink("/proc/self"))  # the old /proc still counts as the machine does
    _mount("proc", "/proc", "proc")
    home = free_home(needed_paths())
    _mount("dranet", home, "tmpfs")
    folder, names = Path(home, "dranet"), Path(home, "netns")
    folder.mkdir()
    names.mkdir()
    mapped = Path("/proc/self/uid_map").read_text().split()
    return Quarters(folder, names, pid, own_user=mapped[-1] == "1")


def isolating_prefix() -> list[str]:
    """The command that puts another one into namespaces of its own; raises where this machine does not allow it."""
    tool = shutil.which("unshare")
    if tool is None:
        raise IsolationError("the program unshare (package util-linux) is not installed; the sandbox needs it")
    tried = [MINE, (*NOBODYS, *MINE)] if os.geteuid() == 0 else [(*NOBODYS, *MINE)]
    said = ""
    for options in tried:
        probe = subprocess.run(
            [tool, *options, "--mount-proc", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if probe.returncode == 0:
            return [tool, *options, "--"]
        said = probe.stderr.strip()
    raise IsolationError(f"this machine lets us make no namespaces ({said}); {_advice()}")


def _advice() -> str:
    if os.geteuid() == 0:
        return "in a container, start it with --privileged"
    knobs = ("kernel.unprivileged_userns_clone=1", "kernel.apparmor_restrict_unprivileged_userns=0")
    there = [knob for knob in knobs if Path("/proc/sys", knob.partition("=")[0].replace(".", "/")).exists()]
    allow = "".join(f", or allow them with: sysctl -w {knob}" for knob in there)
    return f"run it as root{allow}"


def needed_paths() -> list[Path]:
    """What must stay in sight: Python, this program, the folder we are in."""
    return [Path(path).resolve() for path in (sys.executable, sys.prefix, sys.base_prefix, __file__, os.getcwd())]


def free_home(needed: Sequence[Path]) -> str:
    """A folder that may be covered."""
    for home in HOMES:
        if os.path.isdir(home) and not any(path.is_relative_to(home) for path in needed):
            return home
    raise IsolationError(f"Python or this program lies in each of {', '.join(HOMES)}; the sandbox must cover one")


def _mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise IsolationError(f"cannot mount {kind or source} on {target}: {reason}")
