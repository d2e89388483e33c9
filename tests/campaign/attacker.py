"""The malicious pod: a process with its own network namespace.

In most pods it is root of its own user namespace, with CAP_NET_ADMIN and CAP_SYS_ADMIN there; in some it is root of the
machine for its network, as in a privileged pod. It reports for every attack whether the kernel allowed it.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dranet.core.errors import KernelError
from dranet.linux import links
from dranet.linux.links import Link
from dranet.linux.namespaces import CLONE_NEWNET, Namespace
from dranet.linux.netlink import NetlinkSocket
from tests.campaign.processes import Died, Failed, Process

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
_libc = ctypes.CDLL(None, use_errno=True)


class NotPossible(Exception):
    """This kernel does not support the attack; it does not count as tried."""


class NothingThere(Exception):
    """There is no target: all NICs are gone, or it needs two."""


@dataclass
class PodNetwork:
    """The target of attacks: the pod's network from inside, and what the attacker knows or has created."""

    route: NetlinkSocket
    random: random.Random
    host_names: tuple[str, ...]
    """Names of links on the host, which anybody can guess."""
    folder: Path
    own_root: bool
    made: set[str] = field(default_factory=set)
    children: list[Namespace] = field(default_factory=list)
    keepers: list[int] = field(default_factory=list)
    """Processes that keep namespaces alive."""
    held: list[int] = field(default_factory=list)
    """Descriptors of BPF links."""

    def nics(self) -> list[Link]:
        """The pod's links that it did not create."""
        found = links.list_links(self.route)
        return [link for link in found if not link.is_loopback and link.name not in self.made]

    def nic(self) -> Link:
        found = self.nics()
        if not found:
            raise NothingThere
        return self.random.choice(found)

    def name(self) -> str:
        return f"evil{self.random.randrange(1 << 32):08x}"

    def make(self, message: Any) -> Link:
        """Create a link, whose name the message ends with."""
        name = message.what.rsplit(" ", 1)[-1]
        self.made.add(name)
        try:
            self.route.request(message)
        except KernelError as error:
            if getattr(error, "errno", 0) in (95, 2):  # EOPNOTSUPP, ENOENT: the kernel has no such kind
                raise NotPossible(str(error)) from error
            raise
        link = links.get_link(self.route, name)
        assert link is not None
        return link


Act = Callable[[PodNetwork], None]


class Attacker:
    """The called side, in the child."""

    def __init__(self, own_root: bool, host_names: tuple[str, ...], folder: Path) -> None:
        if own_root:
            uid, gid = os.getuid(), os.getgid()
            _check(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET))
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        else:
            _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWNET))
        _check(_libc.mount(b"none", b"/", None, 0x40000 | 0x4000, None))  # private, recursive
        route = NetlinkSocket()
        route.request(links.change(1, up=True))
        self._network = PodNetwork(route, random.Random(), host_names, folder, own_root)

    def __call__(self, verb: str, *words: Any) -> Any:
        from tests.campaign.attacks import ACTS

        if verb == "hello":
            return os.getpid()
        if verb == "act":
            name, seed = words
            self._network.random.seed(seed)
            return self._try(ACTS[name])
        if verb == "keepers":
            return self._network.keepers
        raise ValueError(verb)

    def _try(self, act: Act) -> str:
        """`done`, `refused`, `nothing` without a target, `impossible` on this kernel."""
        try:
            act(self._network)
        except NothingThere:
            return "nothing"
        except NotPossible:
            return "impossible"
        except (KernelError, OSError):
            return "refused"
        return "done"


class Pod:
    """The calling side: a pod and its network namespace."""

    def __init__(self, own_root: bool, host_names: tuple[str, ...], folder: Path) -> None:
        self._process = Process(lambda: Attacker(own_root, host_names, folder))
        pid = self._process.call("hello")
        self.netns = Namespace.open(f"/proc/{pid}/ns/net")

    @property
    def alive(self) -> bool:
        return self._process.alive

    def act(self, name: str, seed: int) -> str:
        try:
            return str(self._process.call("act", name, seed))
        except (Died, Failed) as error:
            if isinstance(error, Failed):
                raise
            return "died"

    def kill(self) -> None:
        """Kill its processes; the runtime owns the network namespace."""
        keepers: list[int] = []
        if self.alive:
            keepers = self._process.call("keepers")
            self._process.kill()
        for pid in keepers:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _check(result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
