"""The host's network namespace and those of pods, with their netlink sockets.

One route socket and one for ethtool live as long as the daemon, and one for each pod as long as it has devices: the
kernel's next move of a link waits until a closed socket is gone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from dranet.linux import links
from dranet.linux.ethtool import Ethtool
from dranet.linux.namespaces import Closeable, Namespace
from dranet.linux.netlink import NetlinkSocket


class Host(msgspec.Struct):
    """The driver's own network namespace, and the paths of the host's /proc and /sys."""

    namespace: Namespace
    route: NetlinkSocket
    proc_root: str = "/proc"
    boot: str = ""
    """The boot ID of the machine."""
    sysfs_root: str = "/sys"
    may_rebind: bool = True
    """Whether a lost link may be recreated by rebinding its PCI function to its driver."""
    _ethtool: Ethtool | None = None

    @classmethod
    def open(cls, proc_root: str = "/proc", *, sysfs_root: str = "/sys", may_rebind: bool = True) -> Host:
        """The namespace and the boot of this process."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(Namespace.current(), NetlinkSocket(), proc_root, boot, sysfs_root, may_rebind)

    @property
    def ethtool(self) -> Ethtool:
        """Opened at first use; raises on a kernel without ethtool netlink."""
        if self._ethtool is None:
            self._ethtool = Ethtool(self.namespace.fd)
        return self._ethtool

    def close(self) -> None:
        if self._ethtool is not None:
            self._ethtool.close()
        self.route.close()
        self.namespace.close()


class PodNamespace(Closeable):
    """An open network namespace of a pod. Its socket is opened at first use, because moving links in needs none."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._route: NetlinkSocket | None = None
        self._number: int | None = None

    @classmethod
    def open(cls, path: str) -> PodNamespace:
        """Open by the path from the runtime; raises NamespaceGone for one that was removed."""
        return cls(Namespace.open(path))

    @property
    def route(self) -> NetlinkSocket:
        if self._route is None:
            self._route = NetlinkSocket(namespace_fd=self.namespace.fd)
        return self._route

    def number_on(self, host: Host) -> int:
        """Its netns ID on the host, which stays valid while the namespace is open."""
        if self._number is None:
            self._number = links.ensure_nsid(host.route, self.namespace.fd)
        return self._number

    def close(self) -> None:
        if self._route is not None:
            self._route.close()
        self.namespace.close()


class OpenNamespaces:
    """Network namespaces of pods with attached devices, kept open, by the path from the runtime.

    A runtime may remove a namespace without a hook (containerd after its own restart, CRI-O before its hook). An open
    one lives until the devices are out; a virtual link would be destroyed with it.
    """

    def __init__(self) -> None:
        self._open: dict[str, PodNamespace] = {}

    def open(self, netns: str) -> PodNamespace:
        """Open a namespace and keep it open; raises NamespaceGone for one that was removed."""
        if netns not in self._open:
            self._open[netns] = PodNamespace.open(netns)
        return self._open[netns]

    @contextlib.contextmanager
    def visit(self, netns: str) -> Iterator[PodNamespace]:
        """The namespace that is kept open, else one opened for the block."""
        if netns in self._open:
            yield self._open[netns]
        else:
            with PodNamespace.open(netns) as pod:
                yield pod

    @property
    def is_empty(self) -> bool:
        return not self._open

    def drop_all_except(self, used: Collection[str]) -> None:
        """Stop keeping namespaces open that are not among these."""
        for netns in set(self._open) - set(used):
            if (pod := self._open.pop(netns, None)) is not None:
                pod.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()
