"""Which link is the card of a plan? The kernel is believed, not the record, and least of all what a pod can write.

A pod with CAP_NET_ADMIN chooses names, alternative names, MACs and even the indexes of links it makes. What it cannot
choose: the PCI function behind a netdev and its burnt-in address; and where the other end of a virtual link is, for
that one is out of its reach. So hardware is known by its function, a veth by its peer, and other virtual links by the
link below them together with their index, or their name or MAC where the index was taken in the other namespace. Where
both ends of a veth are on the node, the other end may be a card too and go its own way: such a one is known by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.records.kernel_rows import LinkRow
from dranet.driver.records.plan import Found, Wanted
from dranet.kernel import links, namespaces
from dranet.kernel.links import Link
from dranet.kernel.netlink import NetlinkError, NetlinkSocket
from dranet.kernel.virtual_links import vlan_id

Card = tuple[Found, Wanted | None]
Numbers = Sequence[int | None]
"""By which number the peer's namespace is known where we look, card by card; None for that namespace itself."""

ANYWHERE, NOWHERE = -1, -2
"""The peer's namespace does not matter; the namespace where we look has never met it."""


def temporary_name(found: Found) -> str:
    """The name a card travels home under: unique on the node, so it cannot collide with anything there."""
    return f"dranet{found.link.index:x}"[:15]


def find_at_home(route: NetlinkSocket, cards: Sequence[Card], *, settings: bool = False) -> list[Link | None]:
    """The cards on the host, wherever their names have got to; None for one that is not there.

    The name it has in the pod is no hint here: a user chose it, and might have chosen another card's. `settings` reads
    those of the IP layers too.
    """
    names = [[temporary_name(found), found.link.name] for found, _ in cards]
    numbers = [ANYWHERE if _peer_may_move(found.link) else found.link.parent_netnsid for found, _ in cards]
    return _find_all(route, cards, names, numbers, _hinted(route, cards, settings), settings)


def find_in_pod(pod: PodNamespace, cards: Sequence[Card], host: Host | None = None) -> list[Link | None]:
    """The cards in their pod, also where the pod has renamed them; None for one that is not there.

    Without the host a veth is known by the index of its peer alone: good enough for a look, not for a move.
    """
    names = [[*([wanted.name] if wanted else []), temporary_name(found), found.link.name] for found, wanted in cards]
    numbers: Numbers = [ANYWHERE for _ in cards]
    hinted = _hinted(pod.route, cards)
    if host is not None and any(is_virtual(found.link) for found, _ in cards):
        # To tell of a link the kernel numbers the namespace of its peer: where the cards are not at hand, of all links.
        numbers = _numbers(host, pod, cards)
        if not all(map(_is_card, hinted, cards, names, numbers)):
            links.list_links(pod.route)
            numbers = _numbers(host, pod, cards)
    return _find_all(pod.route, cards, names, numbers, hinted)


def _numbers(host: Host, pod: PodNamespace, cards: Sequence[Card]) -> Numbers:
    places = {found.link.parent_netnsid for found, _ in cards if found.link.parent_index is not None}
    known = {place: _seen_from_pod(host, pod, place) for place in places}
    return [None if found.link.parent_index is None else known[found.link.parent_netnsid] for found, _ in cards]


def is_virtual(was: LinkRow) -> bool:
    return not was.parent_device and not was.permanent_mac


def _peer_may_move(was: LinkRow) -> bool:
    """Whether the other end of a veth was on the node too."""
    return was.kind == "veth" and was.parent_index is not None and was.parent_netnsid is None


def _seen_from_pod(host: Host, pod: PodNamespace, number: int | None) -> int:
    """The number of a peer's namespace in the pod, from its number on the host; None there is the host itself."""
    if number is None:
        return namespaces.numbered(pod.route, host.namespace.fd)
    return _translated(host.route, number, pod.number_on(host))


def seen_from_host(host: Host, pod: PodNamespace, card: Link) -> int | None:
    """The other way round: the number on the host of the namespace of a peer, for a card that is in a pod."""
    home = namespaces.numbered(pod.route, host.namespace.fd)
    if card.parent_netnsid is None or card.parent_netnsid == home:
        return None
    return _translated(pod.route, card.parent_netnsid, home)


def _translated(route: NetlinkSocket, number: int, target: int) -> int:
    try:
        found = namespaces.translated(route, number, target)
    except NetlinkError:  # the peer's namespace is gone, and the peer with it
        return NOWHERE
    return NOWHERE if found is None else found


def _hinted(route: NetlinkSocket, cards: Sequence[Card], settings: bool = False) -> list[Link | None]:
    """What has the cards' indexes, all in one conversation: an index usually survives a move."""
    return links.get_links(route, [found.link.index for found, _ in cards], settings=settings)


def _find_all(
    route: NetlinkSocket,
    cards: Sequence[Card],
    names: Sequence[list[str]],
    numbers: Numbers,
    hinted: Sequence[Link | None],
    settings: bool = False,
) -> list[Link | None]:
    return [
        link if _is_card(link, card, known, number) else _search(route, card, known, number, settings)
        for link, card, known, number in zip(hinted, cards, names, numbers, strict=True)
    ]


def _is_card(link: Link | None, card: Card, names: list[str], number: int | None) -> bool:
    return link is not None and _same(link, card, names, number)


def _search(route: NetlinkSocket, card: Card, names: list[str], number: int | None, settings: bool) -> Link | None:
    for link in links.get_links(route, names, settings=settings):
        if link is not None and _same(link, card, names, number):
            return link
    anywhere = next((link for link in links.list_links(route) if _same(link, card, names, number)), None)
    if anywhere is None or not settings:
        return anywhere
    return links.get_links(route, [anywhere.index], settings=True)[0]  # a list does not tell settings


def _same(link: Link, card: Card, names: list[str], number: int | None) -> bool:
    was, wanted = card[0].link, card[1]
    if link.kind != was.kind or link.encapsulation != was.encapsulation:
        return False
    if was.parent_device:
        return link.parent_device == was.parent_device and was.permanent_mac in ("", link.permanent_mac)
    if was.permanent_mac:
        return link.permanent_mac == was.permanent_mac
    known = {was.mac} | ({wanted.mac} if wanted and wanted.mac else set())
    if _peer_may_move(was):
        return link.mac in known or (link.index == was.index and link.name in names)
    if link.parent_index != was.parent_index or (number != ANYWHERE and link.parent_netnsid != number):
        return False
    if was.kind == "veth":
        return True  # no two links have the same peer
    if was.kind == "vlan" and vlan_id(link.info) != vlan_id(was.info):
        return False
    return link.index == was.index or link.mac in known or link.name in names
