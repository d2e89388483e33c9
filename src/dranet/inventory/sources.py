"""Everything an inventory asks the outside world, as one seam.

`LiveKernel` asks the running kernel; a test hands over a world of its own. Each method is one question, asked once a
look: the number of netlink requests does not grow with the number of links. Any of them may raise KernelError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dranet.kernel import addresses, links, namespaces, rdma, routes, rules
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.sysfs import Sysfs
from dranet.kernel.traffic import bpf, tc


class Kernel(Protocol):
    """The node as its kernel describes it, in one network namespace."""

    def sysfs(self) -> Sysfs: ...

    def links(self) -> Sequence[links.Link]: ...

    def addresses(self) -> Sequence[addresses.Address]: ...

    def wide_routes(self) -> Sequence[routes.Route]:
        """Default routes and their halves, of all tables."""
        ...

    def routes(self) -> Sequence[routes.Route]:
        """Every route of every table: many on some nodes, so asked only by those who need them."""
        ...

    def rules(self) -> Sequence[rules.Rule]: ...

    def way_to(self, address: str) -> int | None:
        """The index of the link that a packet to this address leaves by."""
        ...

    def classifiers(self) -> Sequence[tc.BpfFilter]: ...

    def programs(self, indexes: Sequence[int]) -> Sequence[bpf.Attachment]:
        """The TCX programs on these links."""
        ...

    def rdma_ports(self) -> Sequence[rdma.RdmaPort]: ...


class LiveKernel:
    """The kernel this process runs on, in the caller's network namespace or another one.

    sysfs shows the links of the namespace it was mounted from: for another one, point ``sysfs_root`` at a mount of its.
    """

    def __init__(self, sysfs_root: str = "/sys", namespace_fd: int | None = None) -> None:
        self._sysfs_root = sysfs_root
        self._namespace_fd = namespace_fd
        self._route = NetlinkSocket(namespace_fd=namespace_fd)
        self._rdma = rdma.open_socket(namespace_fd)
        self._links = links.LinkMemory()

    @property
    def requests_sent(self) -> int:
        """Netlink requests so far, for those who count."""
        return self._route.requests_sent + (self._rdma.requests_sent if self._rdma else 0)

    def sysfs(self) -> Sysfs:
        return Sysfs(self._sysfs_root)

    def links(self) -> list[links.Link]:
        return self._links.list_links(self._route)

    def addresses(self) -> list[addresses.Address]:
        return addresses.list_addresses(self._route)

    def wide_routes(self) -> list[routes.Route]:
        return routes.list_wide_routes(self._route)

    def routes(self) -> list[routes.Route]:
        return routes.list_routes(self._route)

    def rules(self) -> list[rules.Rule]:
        return rules.list_rules(self._route)

    def way_to(self, address: str) -> int | None:
        found = routes.find_way(self._route, address)
        return found.index if found is not None else None

    def classifiers(self) -> list[tc.BpfFilter]:
        return tc.list_bpf_filters(self._route)

    def programs(self, indexes: Sequence[int]) -> list[bpf.Attachment]:
        if self._namespace_fd is None:
            return bpf.attachments(indexes)
        return namespaces.run_inside(self._namespace_fd, lambda: bpf.attachments(indexes))

    def rdma_ports(self) -> list[rdma.RdmaPort]:
        if self._rdma is None:
            return []
        return [port for device in rdma.list_devices(self._rdma) for port in rdma.list_ports(self._rdma, device)]

    def close(self) -> None:
        self._route.close()
        if self._rdma is not None:
            self._rdma.close()

    def __enter__(self) -> LiveKernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
