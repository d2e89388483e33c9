"""The pod: a process with its own network namespace that does what it likes with it.

In most pods it is root of a user namespace of its own, with CAP_NET_ADMIN and CAP_SYS_ADMIN there; in some it is
root of the machine as far as its network goes, as in a privileged pod. It says of every act whether the kernel let it.
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

from dranet.kernel import links
from dranet.kernel.errors import KernelError
from dranet.kernel.links import Link
from dranet.kernel.namespaces import CLONE_NEWNET, Namespace
from dranet.kernel.netlink import NetlinkSocket
from tests.adversary.processes import Died, Failed, Process

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
_libc = ctypes.CDLL(None, use_errno=True)


class NotPossible(Exception):
    """This kernel has no such thing; the act does not count as tried."""


class NothingThere(Exception):
    """There is nothing to do it to: all cards are gone, or it takes two."""


@dataclass
class Prey:
    """What an act works on: the pod's network from inside, and what the attacker knows or has made."""

    route: NetlinkSocket
    random: random.Random
    host_names: tuple[str, ...]
    """Names that links on the node have, as anybody can guess them."""
    folder: Path
    own_root: bool
    made: set[str] = field(default_factory=set)
    children: list[Namespace] = field(default_factory=list)
    keepers: list[int] = field(default_factory=list)
    """Processes that keep namespaces alive."""
    held: list[int] = field(default_factory=list)
    """Descriptors of BPF links."""
    taken: set[str] = field(default_factory=set)
    """Cards that were deleted or taken to where they die with the pod, by permanent name of the play."""

    def cards(self) -> list[Link]:
        """The pod's links that it did not make itself."""
        found = links.list_links(self.route)
        return [link for link in found if not link.is_loopback and link.name not in self.made]

    def card(self) -> Link:
        found = self.cards()
        if not found:
            raise NothingThere
        return self.random.choice(found)

    def name(self) -> str:
        return f"evil{self.random.randrange(1 << 32):08x}"

    def make(self, message: Any) -> Link:
        """Create a link; the name in the message is the attacker's from now on."""
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


Act = Callable[[Prey], None]


class Attacker:
    """The answering side, in the child."""

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
        self._prey = Prey(route, random.Random(), host_names, folder, own_root)

    def __call__(self, verb: str, *words: Any) -> Any:
        from tests.adversary.acts import ACTS

        if verb == "hello":
            return os.getpid()
        if verb == "act":
            name, seed = words
            self._prey.random.seed(seed)
            return self._try(ACTS[name])
        if verb == "keepers":
            return self._prey.keepers
        raise ValueError(verb)

    def _try(self, act: Act) -> str:
        """`done`, `refused`, `nothing` where it had no object, `impossible` on this kernel."""
        try:
            act(self._prey)
        except NothingThere:
            return "nothing"
        except NotPossible:
            return "impossible"
        except (KernelError, OSError):
            return "refused"
        return "done"


class Pod:
    """The asking side: a pod with its sandbox as the runtime has it."""

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
        """End its processes; the sandbox's namespace is the runtime's."""
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
