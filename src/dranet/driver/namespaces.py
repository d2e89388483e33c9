"""The node's own network namespace and the doors into those of pods: what every part stands on.

One route socket and one for ethtool live as long as the daemon, and one for each pod as long as it has cards: closing
a socket is work that the kernel's next move of a card would wait for.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dranet.kernel import namespaces
from dranet.kernel.ethtool import Ethtool
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket


class Host(msgspec.Struct):
    """The driver's own namespace, with where the host's /proc is to be seen."""

    namespace: Namespace
    route: NetlinkSocket
    proc_root: str = "/proc"
    boot: str = ""
    """Which boot of the machine this is."""
    sysfs_root: str = "/sys"
    may_rebind: bool = True
    """Whether a card that cannot be found may be got home by rebinding its PCI function."""
    _ethtool: Ethtool | None = None

    @classmethod
    def open(cls, proc_root: str = "/proc", *, sysfs_root: str = "/sys", may_rebind: bool = True) -> Host:
        """The namespace and the boot this process is in."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return cls(Namespace.current(), NetlinkSocket(), proc_root, boot, sysfs_root, may_rebind)

    @property
    def ethtool(self) -> Ethtool:
        """Opened when first used, for a kernel may have none; raises then."""
        if self._ethtool is None:
            self._ethtool = Ethtool(self.namespace.fd)
        return self._ethtool

    def close(self) -> None:
        if self._ethtool is not None:
            self._ethtool.close()
        self.route.close()
        self.namespace.close()


class PodNamespace:
    """An open network namespace of a pod. Its socket is opened when first used: moving cards in needs none."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self._route: NetlinkSocket | None = None
        self._number: int | None = None

    @classmethod
    def open(cls, path: str) -> PodNamespace:
        """By the path the runtime gave; raises NamespaceGone where it is gone."""
        return cls(Namespace.open(path))

    @property
    def route(self) -> NetlinkSocket:
        if self._route is None:
            self._route = NetlinkSocket(namespace_fd=self.namespace.fd)
        return self._route

    def number_on(self, host: Host) -> int:
        """By which number the host knows it. That lasts as long as the namespace, which we hold."""
        if self._number is None:
            self._number = namespaces.numbered(host.route, self.namespace.fd)
        return self._number

    def close(self) -> None:
        if self._route is not None:
            self._route.close()
        self.namespace.close()

    def __enter__(self) -> PodNamespace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
