"""Which link is the card of a plan? The kernel is believed, not the record.

A card may have been renamed inside its pod, or have come home under another name by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.driver.records.plan import Found, Wanted
from dranet.kernel import links
from dranet.kernel.links import Link
from dranet.kernel.netlink import NetlinkSocket

Card = tuple[Found, Wanted | None]


def temporary_name(found: Found) -> str:
    """The name a card travels home under: unique on the node, so it cannot collide with anything there."""
    return f"dranet{found.link.index:x}"[:15]


def find_at_home(route: NetlinkSocket, cards: Sequence[Card], *, settings: bool = False) -> list[Link | None]:
    """The cards on the host, wherever their names have got to; None for one that is not there.

    The name it has in the pod is no hint here: a user chose it, and might have chosen another card's. `settings` reads
    those of the IP layers too.
    """
    names = [[temporary_name(found), found.link.name] for found, _ in cards]
    return _find_all(route, cards, names, settings)


def find_in_pod(route: NetlinkSocket, cards: Sequence[Card]) -> list[Link | None]:
    """The cards in their pod, also where the pod has renamed them; None for one that is not there."""
    names = [[*([wanted.name] if wanted else []), temporary_name(found), found.link.name] for found, wanted in cards]
    return _find_all(route, cards, names, False)


def _find_all(
    route: NetlinkSocket, cards: Sequence[Card], names: Sequence[list[str]], settings: bool
) -> list[Link | None]:
    """By index first, all in one conversation: an index usually survives a move."""
    hinted = links.get_links(route, [found.link.index for found, _ in cards], settings=settings)
    return [
        link if link is not None and _same(link, card, known) else _search(route, card, known, settings)
        for link, card, known in zip(hinted, cards, names, strict=True)
    ]


def _search(route: NetlinkSocket, card: Card, names: list[str], settings: bool) -> Link | None:
    for link in links.get_links(route, names, settings=settings):
        if link is not None and _same(link, card, names):
            return link
    if card[0].link.kind != "device":
        return None
    anywhere = next((link for link in links.list_links(route) if _same(link, card, names)), None)
    if anywhere is None or not settings:
        return anywhere
    return links.get_links(route, [anywhere.index], settings=True)[0]  # a list does not tell settings


def _same(link: Link, card: Card, names: list[str]) -> bool:
    """Hardware is known by its PCI function and burnt-in address; a virtual link by its address, since users may set
    that only to what the plan says, or by index and name together."""
    was, wanted = card[0].link, card[1]
    if link.kind != was.kind or link.encapsulation != was.encapsulation:
        return False
    if was.parent_device:
        return link.parent_device == was.parent_device and link.permanent_mac == was.permanent_mac
    if was.permanent_mac:
        return link.permanent_mac == was.permanent_mac
    known = {was.mac} | ({wanted.mac} if wanted and wanted.mac else set())
    return link.mac in known or (link.index == was.index and link.name in names)
