"""Looks over time: a fault counts once it was seen often enough in a row, and goes when it is not seen any more."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dranet.health.judging import Expected, Finding, Look, judge
from dranet.health.policy import Policy, default_policy
from dranet.health.reading import CardReading
from dranet.model.faults import FaultKind

_KEPT_SECONDS = 3700.0
"""The longest window of any counter is an hour."""
_MOST_KEPT = 32
"""Looks come when something happens, too: the oldest within the window matters, those between are thinned out."""


class History:
    """The looks of one node."""

    def __init__(self, policy: Policy | None = None, expected: Expected | None = None) -> None:
        self._policy = policy or default_policy()
        self.expected = expected or Expected()
        self._readings: dict[str, list[CardReading]] = {}
        self._seen: dict[tuple[str, FaultKind], int] = {}

    def look(self, cards: Sequence[CardReading]) -> list[Finding]:
        """Take in one look; the findings that count now."""
        found = judge(Look(cards, self._readings, self.expected), self._policy)
        self._remember(cards)
        self._seen = {(f.device, f.fault): self._seen.get((f.device, f.fault), 0) + 1 for f in found}
        return [f for f in found if self._seen[f.device, f.fault] >= self._policy[f.fault].seen]

    @property
    def is_doubtful(self) -> bool:
        """Whether something was seen that does not count yet: another look soon decides."""
        return any(count < self._policy[fault].seen for (_, fault), count in self._seen.items())

    def _remember(self, cards: Sequence[CardReading]) -> None:
        judged = [msgspec.structs.replace(card, traffic={}) if card.traffic else card for card in cards]
        self._readings = {card.device: _kept(self._readings.get(card.device, ()), card) for card in judged}


def _kept(earlier: Sequence[CardReading], card: CardReading) -> list[CardReading]:
    """With those of the same hands: who had the card before is nobody's measure."""
    recent = [*earlier, card] if earlier and card.is_where(earlier[-1]) else [card]
    if card.at - recent[0].at > _KEPT_SECONDS:
        recent = [old for old in recent if card.at - old.at <= _KEPT_SECONDS]
    # Every second one goes, never the oldest: growth is measured from there.
    return recent if len(recent) <= _MOST_KEPT else recent[::2]
