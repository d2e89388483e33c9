"""What must be so after a sequence, whatever happened in it.

- every card is home and as it was, to the last attribute. A virtual card that the pod has destroyed (deleted, or taken
  into a namespace that died with the pod) cannot come home; then the driver has said so, and nothing else has happened;
- nothing is on the node that was not there before: no link, no rule, no receipt;
- the other pod has not noticed anything;
- the next pod gets the same cards and they work.
"""

from __future__ import annotations

from collections.abc import Iterable

from dranet.kernel import links
from dranet.kernel.netlink import NetlinkSocket
from tests import pictures
from tests.adversary.node import same, until
from tests.adversary.objects import CHILD, Sandbox
from tests.adversary.played import Played

OF_THE_MODE = frozenset({"kind", "flags", "neighbours"})
"""What of a child of IPVLAN its mode decides: L3 asks no neighbours."""


class Checks:
    """Compares with how it was before the first pod came."""

    def __init__(self, played: Played) -> None:
        self._played, self._node, self._report = played, played.node, played.report
        self._before = {card: self._node.known_picture(card) for card in self._node.cards}
        self._tables = self._node.tables()
        self.mistakable: set[str] = set()
        """Cards that nobody can tell apart any more: with the store is lost what does not change, and the rest did."""
        self.unheard_of: set[str] = set()
        """Cards that the pod had hidden when the store was lost: hardware comes home as the kernel leaves it."""

    def cards(self, cards: Iterable[str]) -> None:
        for card in cards:
            until(lambda card=card: self._node.where(card, None) in ("home", "gone"))  # type: ignore[misc]
            if self._node.where(card, None) == "gone" and card in self._played.excused and not self._node.hardware:
                self._report.destroyed += 1
                if not self._played.driver.deaths and not any(card in words for words in self._played.driver.said):
                    self._wrong(f"{card} was destroyed and nobody said so")
                continue
            if self._node.where(card, None) != "home":
                self._wrong(f"{card} is {self._node.where(card, None)}, not home")
                continue
            if card in self.unheard_of and self._node.hardware:
                continue
            before = self._tellable(self._before[card])
            found = same(before, lambda card=card: self._tellable(self._node.picture(card)))  # type: ignore[misc]
            if found:
                words = "; ".join(found)
                self._wrong(f"{card} is not as it was: {words}; last words: {self._played.driver.said[-3:]}")
            if self._may_hear_all():
                self._node.known.pop(card, None)  # what is forgiven here is no fault of the next sequence
        for card in [] if self.mistakable else self._node.mend():
            self._before[card] = self._node.known_picture(card)
            self._played.excused.discard(card)

    def node(self) -> None:
        if self._node.names() != set(self._node.cards):
            self._wrong(f"the node has {sorted(self._node.names())}")
        if self._node.tables() != self._tables:
            self._wrong("the node's rules have changed")
        if left := list((self._played.folder / "cdi").iterdir()):
            self._wrong(f"left in the CDI folder: {[path.name for path in left]}")

    def other_pod(self, seen: list[pictures.Picture], now: list[pictures.Picture]) -> None:
        """One beside, which had nothing to do with it."""
        seen, now = self._but_modes(seen), self._but_modes(now)
        if now != seen:
            changed = [words for then, new in zip(seen, now, strict=False) for words in pictures.differences(then, new)]
            self._wrong(f"the other pod was touched: {len(seen)} links then, {len(now)} now; " + "; ".join(changed))

    def successor(self, new: Sandbox) -> None:
        """It has every card that its predecessor has not destroyed; where one was, it may have none. One that was
        hidden when the store was lost nobody knows of: docs/hostile-pods.md. No container starts without its card."""
        places = {card: self._node.where(card, new.inside.netns) for card in self._played.cards_of(new.pod)}
        for claim in self._played.claims_of(new.pod):
            if self._played.has_receipt(claim) and any(places[card] != "pod" for card in claim.cards):
                self._wrong(f"a container of the successor could start without its cards: {places}")
        if {"gone", "elsewhere"} & set(places.values()) or self.unheard_of & set(places):
            return
        if any(place != "pod" for place in places.values()):
            self._wrong(f"the successor did not get its cards: {places}, {self._played.driver.said[-3:]}")
        shared = self._played.shared
        if shared and CHILD not in self._played.links_in(new):
            self._wrong(f"the successor did not get its share of {shared}: {self._played.driver.said[-3:]}")

    def next_pod(self, cards: list[str]) -> None:
        """The next tenant gets the same cards, up and usable, with nothing of its predecessor's."""
        if self._report.wrong:
            return
        self._played.restart_driver()  # one that does not wait to die
        sandbox = self._played.start_pod("next", {"c-next": tuple(cards)})
        for card in cards:
            if not until(lambda card=card: self._node.where(card, sandbox.inside.netns) == "pod"):  # type: ignore[misc]
                self._wrong(f"the next pod did not get {card}")
        with NetlinkSocket(namespace_fd=sandbox.inside.netns.fd) as route:
            found = [link for link in links.list_links(route) if not link.is_loopback]
            if not all(link.is_up for link in found):
                self._wrong("a card of the next pod is not up")
        self._played.end_pod("next")
        self._played.settle("next")  # how the cards come home from it is looked at with all others

    def _wrong(self, what: str) -> None:
        self._report.wrong.append(what)

    def _but_modes(self, inside: list[pictures.Picture]) -> list[pictures.Picture]:
        """All children of IPVLAN on a card have one mode, and who makes one more sets it: docs/hostile-pods.md."""
        if "ipvlan" not in self._report.story:
            return inside
        is_child = [b"ipvlan" in picture.get("kind", b"") for picture in inside]
        return [
            {key: value for key, value in picture.items() if not child or key not in OF_THE_MODE}
            for picture, child in zip(inside, is_child, strict=True)
        ]

    def _tellable(self, picture: pictures.Picture) -> pictures.Picture:
        """A card of which a pod had a child of IPVLAN that hears every multicast goes on hearing it: the kernel counts
        them and forgets to count back. docs/hostile-pods.md"""
        counted = {"allmulti"} if self._may_hear_all() else set()
        return {key: value for key, value in self._known(picture).items() if key not in counted}

    def _may_hear_all(self) -> bool:
        ipvlan = "ipvlan" in self._report.story or self._report.shared == "IPVLAN"
        return ipvlan and "flags" in self._report.story

    def _known(self, picture: pictures.Picture) -> pictures.Picture:
        """After a lost store only what was published can be given back: name, MTU, MAC, alias, addresses."""
        if not self._report.forgotten or not picture:
            return picture
        return {key: picture[key] for key in ("name", "mtu", "address", "addresses")}


def inside(sandbox: Sandbox) -> list[pictures.Picture]:
    """Everything in a pod."""
    namespace = sandbox.inside.netns
    with NetlinkSocket(namespace_fd=namespace.fd) as route:
        names = sorted(link.name for link in links.list_links(route))
        until(lambda: all(_is_settled(route, name) for name in names))
    return [pictures.take(namespace.fd, name) for name in names]


def _is_settled(route: NetlinkSocket, name: str) -> bool:
    """Asked one by one: then the kernel looks at the carrier now; in a list it is up to a second behind."""
    link = links.get_link(route, name)
    return link is None or not link.is_up or link.operstate != "down"
