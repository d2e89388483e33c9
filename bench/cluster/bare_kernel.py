"""What the kernel alone needs for eight NICs into a namespace and back: cables on the same fabric, no driver near.

The messages are made before the clock starts, so this is the floor of every driver in the same run.
"""

from __future__ import annotations

import time

from dranet.linux import addresses, links
from dranet.linux.codec import Message
from dranet.linux.namespaces import Namespace, identity_of
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.virtual_links import create_veth
from tests.cluster.kubebed import Cluster, default_nics

NETWORK = "pod-network"
HOST = 9
"""The number of the made-up node that the NICs belong to."""
SETTLE_SECONDS = 0.5
"""As between prepare and the hook of a pod: what going down leaves to be done would make moves wait at random."""


class BareKernel:
    """Eight NICs like a node's, in a namespace no driver sees."""

    def __init__(self, bed: Cluster, nics: int) -> None:
        self._nics = default_nics(HOST, nics)
        self._bed = bed
        holder = bed.processes.start("bench-bare-kernel", ["unshare", "-n", "sleep", "infinity"])
        self._host = _namespace_of(holder.pid)
        for nic in self._nics:
            bed.fabric.plug(nic, HOST, holder.pid)

    def round(self, *, beside_its_network: bool = False) -> tuple[float, float]:
        """Seconds in and back. On the way in the pod's own network may just have come up, as it has for every hook:
        that leaves the kernel work for which the moves wait, with any caller."""
        names = [nic.name for nic in self._nics]
        with (
            Namespace.create() as pod,
            NetlinkSocket(namespace_fd=pod.fd) as inside,
            NetlinkSocket(namespace_fd=self._host.fd) as outside,
        ):
            indexes = [link.index for link in links.get_links(outside, names) if link]
            downs = [links.change(index, up=False) for index in indexes]
            into, home = (
                [links.change(i, namespace_fd=fd, name=n) for i, n in zip(indexes, names, strict=True)]
                for fd in (pod.fd, self._host.fd)
            )
            ups = self._ups(indexes)
            _ask(outside, downs)
            time.sleep(SETTLE_SECONDS)
            network = _raise_network(outside) if beside_its_network else None
            start = time.perf_counter()
            _ask(outside, into)
            _ask(inside, ups)
            attached = time.perf_counter()
            if network is not None:
                _lower_network(outside, network)
            time.sleep(SETTLE_SECONDS)
            leaving = time.perf_counter()
            _ask(inside, [*downs, *home])
            _ask(outside, ups)
            return attached - start, time.perf_counter() - leaving

    def _ups(self, indexes: list[int]) -> list[Message]:
        return [
            message
            for nic, index in zip(self._nics, indexes, strict=True)
            for message in (
                addresses.add(addresses.from_cidr(nic.addresses[0], index)),
                links.change(index, up=True),
            )
        ]

    def close(self) -> None:
        for nic in self._nics:
            self._bed.fabric.unplug(nic, HOST)
        self._host.close()
        self._bed.processes.stop("bench-bare-kernel", patience=0)


def _raise_network(host: NetlinkSocket) -> Namespace:
    """A pair of links into a namespace of its own: in the NICs' it would take the number of one of them."""
    pod = Namespace.create()
    _ask(host, [create_veth(NETWORK, NETWORK, peer_namespace_fd=pod.fd)])
    with NetlinkSocket(namespace_fd=pod.fd) as inside:
        for route in (host, inside):
            _ask(route, [links.change(_index(route), up=True)])
    return pod


def _lower_network(host: NetlinkSocket, pod: Namespace) -> None:
    _ask(host, [links.delete(_index(host))])
    pod.close()


def _index(route: NetlinkSocket) -> int:
    link = links.get_link(route, NETWORK)
    assert link is not None
    return link.index


def _namespace_of(pid: int) -> Namespace:
    """Of a process that has just been started: it leaves ours in a moment."""
    while identity_of(f"/proc/{pid}/ns/net") == identity_of("/proc/self/ns/net"):
        time.sleep(0.01)
    return Namespace.open(f"/proc/{pid}/ns/net")


def _ask(route: NetlinkSocket, messages: list[Message]) -> None:
    for error in route.batch(messages):
        if error is not None:
            raise error
