"""The kernel as the inventory asks it, as one interface that tests can replace.

Each method is called once in a scan, so the number of netlink requests does not grow with the number of links. Any of
them may raise KernelError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dranet.linux import addresses, links, namespaces, rdma, routes, rules
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.linux.traffic import bpf, tc


class Kernel(Protocol):
    """The node as its kernel describes it, in one network namespace."""

    def sysfs(self) -> Sysfs: ...

    def links(self) -> Sequence[links.Link]: ...

    def addresses(self) -> Sequence[addresses.Address]: ...

    def default_routes(self) -> Sequence[routes.Route]:
        """Default routes and their two halves (such as 0.0.0.0/1), of all tables."""
        ...

    def routes(self) -> Sequence[routes.Route]:
        """Every route of every table: many on some nodes, so read only where needed."""
        ...

    def rules(self) -> Sequence[rules.Rule]: ...

    def egress_link(self, address: str) -> int | None:
        """The index of the link that the kernel sends packets to this address through."""
        ...

    def classifiers(self) -> Sequence[tc.BpfFilter]: ...

    def programs(self, indexes: Sequence[int]) -> Sequence[bpf.Attachment]:
        """The TCX programs on these links."""
        ...

    def rdma_ports(self) -> Sequence[rdma.RdmaPort]: ...


class LiveKernel:
    """The running kernel, in the caller's network namespace or another one.

    sysfs shows the links of the namespace it was mounted in: for another one, ``sysfs_root`` must be mounted there.
    """

    def __init__(self, sysfs_root: str = "/sys", namespace_fd: int | None = None) -> None:
        self._sysfs_root = sysfs_root
        self._namespace_fd = namespace_fd
        self._route = NetlinkSocket(namespace_fd=namespace_fd)
        self._rdma = rdma.open_socket(namespace_fd)
        self._links = links.LinkCache()

    @property
    def requests_sent(self) -> int:
        """Netlink requests so far; the benchmark counts them."""
        return self._route.requests_sent + (self._rdma.requests_sent if self._rdma else 0)

    def sysfs(self) -> Sysfs:
        return Sysfs(self._sysfs_root)

    def links(self) -> list[links.Link]:
        return self._links.list_links(self._route)

    def addresses(self) -> list[addresses.Address]:
        return addresses.list_addresses(self._route)

    def default_routes(self) -> list[routes.Route]:
        return routes.list_default_like_routes(self._route)

    def routes(self) -> list[routes.Route]:
        return routes.list_routes(self._route)

    def rules(self) -> list[rules.Rule]:
        return rules.list_rules(self._route)

    def egress_link(self, address: str) -> int | None:
        found = routes.lookup_route(self._route, address)
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
