"""Counters of cards that claims have, as metrics: the node's own exporters do not see into pods.

The health watch reads them, so a scrape reads nothing: it tells the last look's values, a few seconds old. A card has a
fixed set of counters and one claim, so there are two or three dozen series a card and no more; they go with the claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dranet.driver.store import Store
from dranet.health.reading import CardReading

WHOSE = ("device", "namespace", "pod", "claim")
BYTES, ERRORS, DROPS, CONGESTION = (f"dranet_driver_card_{what}" for what in ("bytes", "errors", "drops", "congestion"))
FAMILIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    BYTES: (
        "bytes of claimed cards; RDMA bytes are those of the port's own counters, which most cards count apart",
        ("path", "direction"),
    ),
    ERRORS: ("errors of claimed cards, by the kernel's name of the counter", ("counter",)),
    DROPS: ("packets that claimed cards dropped, by the kernel's name of the counter", ("counter",)),
    CONGESTION: ("marks, notifications and waits of claimed cards, by the kernel's name of the counter", ("counter",)),
}
"""What each metric means, and its labels besides those that say whose card it is."""
READ_TIME = "dranet_driver_cards_read_time_seconds"
READ_TIME_MEANS = "when the counters of the cards were read; who wants rates at once divides by differences of this"
_BYTES = {
    "rx_bytes": ('path="interface",direction="receive"', 1),
    "tx_bytes": ('path="interface",direction="transmit"', 1),
    "port_rcv_data": ('path="rdma",direction="receive"', 4),
    "port_xmit_data": ('path="rdma",direction="transmit"', 4),
}
"""RDMA ports count words of four bytes."""
_DROPS = frozenset({"rx_dropped", "tx_dropped", "port_xmit_discards"})
_PAUSES = frozenset({"rx_pause_frames", "tx_pause_frames", "port_xmit_wait"})
_CONGESTION = _PAUSES | {"np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled"}


class Owner(NamedTuple):
    """Whose a card is, for people."""

    namespace: str
    pod: str
    claim: str


def owners(store: Store) -> dict[str, Owner]:
    """By claim UID."""
    return {plan.uid: Owner(plan.namespace, plan.pod.name, plan.name) for plan in store.plans.values()}


class CardCounters:
    """What the last look at the cards' health showed. Written as text by hand: by way of the Prometheus client's own
    families the four hundred series of sixteen cards take five times as long, more than all the rest of a scrape."""

    def __init__(self) -> None:
        self.cards: Sequence[CardReading] = ()
        self.owners: Callable[[], Mapping[str, Owner]] = dict

    def text(self) -> str:
        """In the text format of Prometheus. Names of devices, pods and claims need no escaping: they are DNS labels."""
        known, cards = self.owners(), self.cards
        lines: dict[str, list[str]] = {name: [] for name in FAMILIES}
        for card in cards:
            owner = known.get(card.holder)
            if owner is not None:
                whose = f'device="{card.device}",namespace="{owner.namespace}",pod="{owner.pod}",claim="{owner.claim}"'
                for name, labels, value in _series(card):
                    lines[name].append(f"{name}_total{{{whose},{labels}}} {value}\n")
        return _read_time(cards) + "".join(
            f"# HELP {name}_total {meaning}\n# TYPE {name}_total counter\n{''.join(lines[name])}"
            for name, (meaning, _) in FAMILIES.items()
        )


def _read_time(cards: Sequence[CardReading]) -> str:
    since_boot = time.time() - time.monotonic()
    told = "".join(f"{READ_TIME} {card.at + since_boot:.3f}\n" for card in cards[:1])
    return f"# HELP {READ_TIME} {READ_TIME_MEANS}\n# TYPE {READ_TIME} gauge\n{told}"


def _series(card: CardReading) -> Iterator[tuple[str, str, int]]:
    for counters in (card.traffic, card.counters):
        for counter, value in counters.items():
            if counter in _BYTES:
                labels, size = _BYTES[counter]
                yield BYTES, labels, value * size
            else:
                kind = DROPS if counter in _DROPS else CONGESTION if counter in _CONGESTION else ERRORS
                yield kind, f'counter="{counter}"', value
