"""A node with cards of many looks, and where each of them is at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dranet.kernel import addresses, codec, links, namespaces, neighbours, routes, rules, sysctl, virtual_links
from dranet.kernel.codec import Message
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkError, NetlinkSocket
from dranet.kernel.traffic import htb
from tests import pictures

CARDS = ("card0", "card1", "card2", "card3")
WAIT_SECONDS = 20.0
"""Only what is wrong takes so long; on a busy machine a namespace may take seconds to die."""


class Node:
    """What sequences ask of every kind of node."""

    namespace: Namespace
    route: NetlinkSocket
    cards: Sequence[str]
    hardware = False
    addresses: Mapping[str, str] = MappingProxyType({})
    """The PCI functions of cards, by name, where they have any."""
    not_cards = frozenset({"lo", "eth0"})

    def __init__(self) -> None:
        self.known: dict[str, pictures.Picture] = {}
        """How cards are when nothing is wrong: as the last sequence left them, which has looked."""

    @cached_property
    def kinds_of_children(self) -> tuple[str, ...]:
        return tuple(_possible_children(self.route, self.cards[0]))

    @cached_property
    def keeps_bandwidth(self) -> bool:
        """Whether the kernel has what shares of bandwidth are made of."""
        with Namespace.create() as trial, NetlinkSocket(namespace_fd=trial.fd) as route:
            (error,) = route.batch([htb.create(1)])  # its loopback, which nobody else has
        return error is None

    def names(self) -> set[str]:
        return {link.name for link in links.list_links(self.route)} - self.not_cards

    def tables(self) -> list[Any]:
        """Rules of the node; routes belong to the pictures of cards."""
        return sorted(map(repr, rules.list_rules(self.route)))

    def picture(self, card: str) -> pictures.Picture:
        return pictures.take(self.namespace.fd, card)

    def known_picture(self, card: str) -> pictures.Picture:
        if card not in self.known:
            until(lambda: self._is_settled(card))  # one that has just come home may not have its carrier yet
            self.known[card] = self.picture(card)
        return self.known[card]

    def where(self, card: str, pod: Namespace | None) -> str:
        """`home`, `pod`, `gone` or `elsewhere`."""
        raise NotImplementedError

    def mend(self) -> list[str]:
        """Make anew what was destroyed."""
        return []

    def close(self) -> None:
        self.route.close()
        self.namespace.close()

    def _is_settled(self, name: str) -> bool:
        card = links.get_link(self.route, name)
        return card is not None and (not card.is_up or card.operstate == "up")


class VirtualNode(Node):
    """Cards are veth pairs; the other ends are in a fabric where no pod can reach them."""

    cards = CARDS

    def __init__(self) -> None:
        super().__init__()
        self.namespace, self.fabric = Namespace.create(), Namespace.create()
        self.route = NetlinkSocket(namespace_fd=self.namespace.fd)
        self._far = NetlinkSocket(namespace_fd=self.fabric.fd)
        self.route.request(links.change(1, up=True))
        self.route.request(virtual_links.create_veth("eth0", "eth0", peer_namespace_fd=self.fabric.fd))
        self.mend()

    def mend(self) -> list[str]:
        """Make anew what was destroyed."""
        destroyed = [name for name in self.cards if links.get_link(self._far, name) is None]
        for name in destroyed:
            self._make(name)
            self.known.pop(name, None)
        return destroyed

    def _make(self, name: str) -> None:
        self.route.request(virtual_links.create_veth(name, name, peer_namespace_fd=self.fabric.fd))
        card, peer = links.get_link(self.route, name), links.get_link(self._far, name)
        assert card is not None and peer is not None
        self._far.request(links.change(peer.index, up=True))
        dress(self.namespace, self.route, name, self.cards.index(name))
        until(lambda: self._is_settled(name))

    def where(self, card: str, pod: Namespace | None) -> str:
        """`home`, `pod`, `gone` or `elsewhere`: asked of the other end of the cable, which nobody can fool."""
        peer = links.get_link(self._far, card)
        if peer is None or peer.parent_netnsid is None:
            return "gone"
        if peer.parent_netnsid == namespaces.nsid(self._far, self.namespace.fd):
            return "home"
        if pod is not None and pod.fd >= 0 and peer.parent_netnsid == namespaces.nsid(self._far, pod.fd):
            return "pod"
        return "elsewhere"

    def close(self) -> None:
        super().close()
        self._far.close()
        self.fabric.close()


def _possible_children(route: NetlinkSocket, card: str) -> Iterator[str]:
    """The kinds of interfaces that this kernel can make on top of a card."""
    makers = {"Macvlan": virtual_links.create_macvlan, "IPVLAN": virtual_links.create_ipvlan}
    parent = links.get_link(route, card)
    assert parent is not None
    for kind, make in makers.items():
        try:
            route.request(make("probe", parent.index, {"Macvlan": "bridge", "IPVLAN": "l2"}[kind]))
        except NetlinkError:
            continue  # this kernel has none
        probe = links.get_link(route, "probe")
        assert probe is not None
        route.request(links.delete(probe.index))
        yield kind


def dress(namespace: Namespace, route: NetlinkSocket, name: str, number: int) -> None:
    """Cards differ: what one has by default, another has set by an administrator."""
    card = links.get_link(route, name)
    assert card is not None
    messages: list[Message] = [links.add_altname(card.index, f"rail{number}")]
    if number == 0:
        messages += [links.change(card.index, mtu=1400, alias="first", txqlen=500)]
    if number == 1:
        messages += [
            links.change(card.index, gso_max_segs=100, gso_max_size=30000, group=7),
            links.add_altname(card.index, "a-second-alternative-name"),
            Message(36, 0x500, _pfifo(card.index), "put a discipline on a card"),
        ]
        sysctl.write_all(namespace.fd, {f"net/ipv4/conf/{name}/arp_ignore": "1"})
    route_messages = []
    if number != 3:  # the last one is down and bare
        cidrs = (f"10.{number}.0.1/24", f"fd00:{number}::1/64")
        found = [addresses.from_cidr(cidr, card.index, flags=addresses.IFA_F_NODAD) for cidr in cidrs]
        messages += [addresses.add(address) for address in found]
        messages += [links.change(card.index, up=True)]
        route_messages = [
            routes.add(routes.to(f"10.20{number}.0.0/16", index=card.index, gateway=f"10.{number}.0.254")),
            neighbours.add(neighbours.permanent(card.index, f"10.{number}.0.9", "02:00:00:00:00:09")),
        ]
    for message in (*messages, *route_messages):
        route.request(message)


def _pfifo(index: int) -> bytes:
    from dranet.kernel.traffic import tc

    return tc._TCMSG.pack(0, index, 0, 0xFFFFFFFF, 0) + codec.text(1, "pfifo") + codec.u32(2, 33)


def until(condition: Callable[[], bool], seconds: float = WAIT_SECONDS) -> bool:
    """Whether it comes true in time; the kernel notices some things a moment later."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def same(before: pictures.Picture, take: Callable[[], pictures.Picture]) -> list[str]:
    """Differences that stay."""
    now = take()
    end = time.monotonic() + WAIT_SECONDS
    while now != before and time.monotonic() < end:
        time.sleep(0.01)
        now = take()
    return pictures.differences(before, now)


def folder_for(parent: Path) -> Path:
    for part in ("cdi", "netns", "mounts"):
        (parent / part).mkdir(parents=True, exist_ok=True)
    return parent
