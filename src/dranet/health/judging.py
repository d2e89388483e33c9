"""From readings to findings: each check looks at one card now, at the look before, and at its siblings. Pure.

Siblings are cards of one model on one machine. Where the machine's description gives no value, the most common one
among them is right and the others are wrong; two cards that differ prove nothing, so a majority is needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from dranet.health.policy import DEGRADED, OFF, Policy
from dranet.health.reading import CardReading
from dranet.model.faults import FaultKind

T = TypeVar("T")
_MINUTE, _HOUR = 60.0, 3600.0


class Finding(msgspec.Struct, frozen=True):
    """One fault of one card, in words."""

    device: str
    fault: FaultKind
    message: str
    severity: str = DEGRADED


class Expected(msgspec.Struct, frozen=True):
    """What the machine's description says of its cards; None where it says nothing."""

    speed_mbps: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By device."""
    cards: int | None = None


class Look(msgspec.Struct, frozen=True):
    """All cards of a node at one moment, their earlier readings, oldest first, and what is expected."""

    cards: Sequence[CardReading]
    before: Mapping[str, Sequence[CardReading]] = msgspec.field(default_factory=dict)
    """By device; all of them from the same hands."""
    expected: Expected = Expected()

    def siblings(self, apart: Callable[[CardReading], str] = lambda card: "") -> Iterable[list[CardReading]]:
        """Cards of one model, group by group; `apart` says what else must be the same."""
        found: dict[tuple[str, str], list[CardReading]] = {}
        for card in self.cards:
            found.setdefault((card.model or card.device, apart(card)), []).append(card)
        return found.values()

    def in_the_same_hands(self, card: CardReading) -> Sequence[CardReading]:
        """The earlier readings since the card last moved or changed hands, which takes its link down and up."""
        earlier = self.before.get(card.device, ())
        return earlier if earlier and not card.moves % 2 and card.is_where(earlier[-1]) else ()


def judge(look: Look, policy: Policy) -> list[Finding]:
    """Every finding, by device and fault; faults that are switched off are not looked for."""
    found = []
    for fault, check in _CHECKS.items():
        if policy[fault].severity == OFF:
            continue
        for device, message in check(look, policy):
            found.append(Finding(device, fault, message, policy[fault].severity))
    found += [
        Finding(card.device, fault, message, policy[fault].severity)
        for card in look.cards
        for fault, message in card.certain
        if policy[fault].severity != OFF and not (fault is FaultKind.LINK_DOWN and _is_rising(look, card, policy))
    ]
    return sorted(found, key=lambda finding: (finding.device, finding.fault))


def _is_rising(look: Look, card: CardReading, policy: Policy) -> bool:
    """Whether a link that the driver has moved is still about to find its carrier: real ones train for seconds."""
    here = look.in_the_same_hands(card)
    if card.moves == 0 or any(not _has_no_carrier(old) for old in here):
        return False
    return not here or card.at - here[0].at < policy[FaultKind.LINK_DOWN].window_seconds


def _has_no_carrier(card: CardReading) -> bool:
    return any(fault is FaultKind.LINK_DOWN for fault, _ in card.certain)


Check = Callable[[Look, Policy], Iterator[tuple[str, str]]]


def _flapping(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    limit = policy[FaultKind.LINK_FLAPPING]
    for card in look.cards:
        recent = [old for old in look.in_the_same_hands(card) if card.at - old.at <= limit.window_seconds]
        if card.carrier_changes is None or not recent or recent[0].carrier_changes is None:
            continue
        changes = card.carrier_changes - recent[0].carrier_changes
        if changes >= limit.changes:
            yield card.device, f"the carrier changed {changes} times in {_duration(card.at - recent[0].at)}"


def _slow(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    for siblings in look.siblings():
        usual = _usual(siblings, lambda c: c.speed_mbps)
        for card in siblings:
            told = look.expected.speed_mbps.get(card.device)
            wanted = told or usual
            if wanted is not None and card.speed_mbps is not None and 0 < card.speed_mbps < wanted:
                whose = "this kind of machine has" if told else "its siblings have"
                yield card.device, f"runs at {card.speed_mbps} Mb/s where {whose} {wanted}"


def _pcie(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    for card in look.cards:
        if card.pcie and card.pcie_best and card.pcie.is_below(card.pcie_best):
            yield card.device, f"PCIe link at {card.pcie}, card and slot can do {card.pcie_best}"


def _errors(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    limits = policy[FaultKind.PORT_ERRORS]
    for card in look.cards:
        if _has_no_carrier(card):
            continue  # which is a fault of its own, and counts as an error itself
        earlier = look.in_the_same_hands(card)
        for name, most, window in (
            *((name, most, _HOUR) for name, most in limits.fatal.items()),
            *((name, most, _MINUTE) for name, most in limits.per_minute.items()),
        ):
            grown = _growth(card, earlier, name, window)
            if grown is not None and grown >= most:
                yield card.device, f"{name} grew by {grown} within {_duration(window)} (limit {most})"
                break


def _growth(card: CardReading, earlier: Sequence[CardReading], counter: str, window: float) -> int | None:
    """By how much a counter grew within the window; a counter that went back was reset and proves nothing."""
    base = next((old for old in earlier if card.at - old.at <= window and counter in old.counters), None)
    if base is None or counter not in card.counters:
        return None
    grown = card.counters[counter] - base.counters[counter]
    return grown if grown >= 0 else None


def _mtu(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    # A claim may ask for any MTU: cards are compared with those in the same hands.
    for siblings in look.siblings(apart=lambda card: card.holder):
        usual = _usual(siblings, lambda c: c.mtu)
        for card in siblings:
            if card.mtu is not None and usual is not None and card.mtu != usual:
                yield card.device, f"MTU {card.mtu} where its siblings have {usual}"


def _gid(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    for card in look.cards:
        # Without a carrier IPv6 addresses stay tentative, and have no GID.
        if card.has_gid is False and card.has_address and card.is_up and not _has_no_carrier(card):
            yield card.device, f"{card.rdma_device} has no RoCE v2 GID for any address of {card.interface}"


def _firmware(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    for siblings in look.siblings():
        usual = _usual(siblings, lambda c: c.firmware or None)
        for card in siblings:
            if card.firmware and usual is not None and card.firmware != usual:
                yield card.device, f"firmware {card.firmware} where its siblings have {usual}"


def _missing(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    wanted = look.expected.cards
    if wanted is not None and len(look.cards) < wanted:
        yield "", f"{len(look.cards)} cards where this kind of machine has {wanted}"


def _gpudirect(look: Look, policy: Policy) -> Iterator[tuple[str, str]]:
    for card in look.cards:
        if card.no_gpudirect:
            yield card.device, card.no_gpudirect


def _usual(cards: Sequence[CardReading], of: Callable[[CardReading], T | None]) -> T | None:
    """The value that more than half of the cards have."""
    values = Counter(value for card in cards if (value := of(card)) is not None)
    if not values:
        return None
    value, count = values.most_common(1)[0]
    return value if count * 2 > values.total() else None


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


_CHECKS: Mapping[FaultKind, Check] = {
    FaultKind.LINK_FLAPPING: _flapping,
    FaultKind.SLOW_LINK: _slow,
    FaultKind.PCIE_DEGRADED: _pcie,
    FaultKind.PORT_ERRORS: _errors,
    FaultKind.CARD_MISSING: _missing,
    FaultKind.MTU_MISMATCH: _mtu,
    FaultKind.GID_MISSING: _gid,
    FaultKind.FIRMWARE_MISMATCH: _firmware,
    FaultKind.NO_GPUDIRECT: _gpudirect,
}
