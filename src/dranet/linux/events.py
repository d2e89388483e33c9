"""Notifications of changes on this node, by kind, on one file descriptor.

Links, addresses, routes, rules, neighbours and classifiers send events on route netlink, RDMA devices on RDMA netlink
(on recent kernels), and hotplugged hardware on uevents. BPF attachments send no events. If the kernel drops events
because there are too many, it reports that, and all kinds count as changed.
"""

from __future__ import annotations

import enum
import errno
import select

from dranet.linux import links, neighbours, routes, rules
from dranet.linux.addresses import RTM_DELADDR, RTM_NEWADDR
from dranet.linux.codec import Reply
from dranet.linux.namespaces import Closeable
from dranet.linux.netlink import NETLINK_KOBJECT_UEVENT, NETLINK_RDMA, NETLINK_ROUTE, NetlinkError, NetlinkSocket
from dranet.linux.traffic import tc

_LINK, _NEIGHBOUR, _TC, _IPV4_ADDRESS, _IPV4_ROUTE, _IPV4_RULE = 1, 3, 4, 5, 7, 8
_IPV6_ADDRESS, _IPV6_ROUTE, _IPV6_RULE = 9, 11, 19
_UEVENTS, _RDMA_NOTIFY = 1, 4
_BUFFER = 1 << 20
_ABSENT = (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT, errno.EINVAL, errno.EPERM)


class Change(enum.Enum):
    """A kind of change."""

    LINK = "link"
    ADDRESS = "address"
    ROUTE = "route"
    DEFAULT_ROUTE = "default route"
    RULE = "rule"
    NEIGHBOUR = "neighbour"
    CLASSIFIER = "classifier"
    RDMA = "rdma"
    PCI = "pci"


_MEANING = {
    links.RTM_NEWLINK: Change.LINK,
    links.RTM_DELLINK: Change.LINK,
    RTM_NEWADDR: Change.ADDRESS,
    RTM_DELADDR: Change.ADDRESS,
    routes.RTM_NEWROUTE: Change.ROUTE,
    routes.RTM_DELROUTE: Change.ROUTE,
    rules.RTM_NEWRULE: Change.RULE,
    rules.RTM_DELRULE: Change.RULE,
    neighbours.RTM_NEWNEIGH: Change.NEIGHBOUR,
    neighbours.RTM_DELNEIGH: Change.NEIGHBOUR,
    tc.RTM_NEWTFILTER: Change.CLASSIFIER,
    tc.RTM_DELTFILTER: Change.CLASSIFIER,
    tc.RTM_NEWQDISC: Change.CLASSIFIER,
    tc.RTM_DELQDISC: Change.CLASSIFIER,
}
_SUBSYSTEMS = {b"SUBSYSTEM=pci": Change.PCI, b"SUBSYSTEM=infiniband": Change.RDMA}
_GROUPS = {
    Change.LINK: (_LINK,),
    Change.ADDRESS: (_IPV4_ADDRESS, _IPV6_ADDRESS),
    Change.ROUTE: (_IPV4_ROUTE, _IPV6_ROUTE),
    Change.DEFAULT_ROUTE: (_IPV4_ROUTE, _IPV6_ROUTE),
    Change.RULE: (_IPV4_RULE, _IPV6_RULE),
    Change.NEIGHBOUR: (_NEIGHBOUR,),
    Change.CLASSIFIER: (_TC,),
}
EVERYTHING = frozenset(Change)


class Monitor(Closeable):
    """Changes in one namespace. Wait until `fileno()` is readable, then `drain()`."""

    def __init__(self, wanted: frozenset[Change] = EVERYTHING, namespace_fd: int | None = None) -> None:
        self._wanted = wanted
        self._poll = select.epoll()
        self._route = NetlinkSocket(NETLINK_ROUTE, namespace_fd)
        self._route.reserve(_BUFFER)
        self._route.subscribe(*sorted({group for change in wanted for group in _GROUPS.get(change, ())}))
        devices = bool(wanted & {Change.PCI, Change.RDMA})
        self._devices = _try_subscribe(NETLINK_KOBJECT_UEVENT, _UEVENTS, namespace_fd) if devices else None
        self._rdma = _try_subscribe(NETLINK_RDMA, _RDMA_NOTIFY, namespace_fd) if Change.RDMA in wanted else None
        for socket in self._sockets():
            self._poll.register(socket.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        return self._poll.fileno()

    def drain(self) -> frozenset[Change]:
        """The kinds of change since the last call; never blocks."""
        found: set[Change] = set()
        events, lost = self._route.pending()
        for event in events:
            found |= _meaning(event)
        if self._devices:
            datagrams, some_lost = self._devices.pending_datagrams()
            found |= {change for data in datagrams for change in _device_changes(data)}
            lost = lost or some_lost
        if self._rdma:
            rdma_events, some_lost = self._rdma.pending()
            found |= {Change.RDMA} if rdma_events else set()
            lost = lost or some_lost
        return self._wanted if lost else self._wanted & found

    def close(self) -> None:
        self._poll.close()
        for socket in self._sockets():
            socket.close()

    def _sockets(self) -> list[NetlinkSocket]:
        return [socket for socket in (self._route, self._devices, self._rdma) if socket is not None]


def _try_subscribe(family: int, group: int, namespace_fd: int | None) -> NetlinkSocket | None:
    """A subscribed socket, or None if the kernel has no such events or does not permit to listen."""
    try:
        socket = NetlinkSocket(family, namespace_fd)
    except NetlinkError as error:
        if error.errno in _ABSENT:
            return None
        raise
    try:
        socket.reserve(_BUFFER)
        socket.subscribe(group)
    except NetlinkError as error:
        socket.close()
        if error.errno in _ABSENT:
            return None
        raise
    return socket


def _meaning(event: Reply) -> set[Change]:
    change = _MEANING.get(event.type)
    if change is None:
        return set()
    if change is Change.ROUTE and routes.is_default_like(event.payload):
        return {Change.ROUTE, Change.DEFAULT_ROUTE}
    return {change}


def _device_changes(data: bytes) -> set[Change]:
    return {_SUBSYSTEMS[field] for field in data.split(b"\0") if field in _SUBSYSTEMS}
