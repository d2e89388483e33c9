"""What the kernel alone needs for eight cards into a namespace and home: cables on the same fabric, no driver near.

The messages are made before the clock starts, so this is the floor of every driver in the same run.
"""

from __future__ import annotations

import time

from kubebed import Cluster, default_cards

from dranet.kernel import addresses, links
from dranet.kernel.codec import Message
from dranet.kernel.namespaces import Namespace, identity_of
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.virtual_links import create_veth

NETWORK = "pod-network"
HOST = 9
"""The number of the made-up node that the cards belong to."""
SETTLE_SECONDS = 0.5
"""As between prepare and the hook of a pod: what going down leaves to be done would make moves wait at random."""


class BareKernel:
    """Eight cards like a node's, in a namespace no driver sees."""

    def __init__(self, bed: Cluster, cards: int) -> None:
        self._cards = default_cards(HOST, cards)
        self._bed = bed
        holder = bed.processes.start("bench-bare-kernel", ["unshare", "-n", "sleep", "infinity"])
        self._host = _namespace_of(holder.pid)
        for card in self._cards:
            bed.fabric.plug(card, HOST, holder.pid)

    def round(self, *, beside_its_network: bool = False) -> tuple[float, float]:
        """Seconds in and home. On the way in the pod's own network may just have come up, as it has for every hook:
        that leaves the kernel work for which the moves wait, whoever asks for them."""
        names = [card.name for card in self._cards]
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
            for card, index in zip(self._cards, indexes, strict=True)
            for message in (
                addresses.add(addresses.from_cidr(card.addresses[0], index)),
                links.change(index, up=True),
            )
        ]

    def close(self) -> None:
        for card in self._cards:
            self._bed.fabric.unplug(card, HOST)
        self._host.close()
        self._bed.processes.stop("bench-bare-kernel", patience=0)


def _raise_network(host: NetlinkSocket) -> Namespace:
    """A pair of links into a namespace of its own: in the cards' it would take the number of one of them."""
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
