"""Constraints of a claim over the devices picked for it.

A constraint compares values of one attribute. A value is a set: of one element, or of the elements of a list while list
attributes are enabled. The empty set stands for a value that cannot be compared. `accepts` has no side effects; `add`
and `remove` keep the state. `state` is hashable and contains everything that later answers depend on; the search uses
it to recognise a state it has visited before.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from dranet.scheduler.allocation.devices import AttributeValue
from dranet.scheduler.allocation.rules import Rules


class Constraint:
    """The interface of a constraint, and which requests it covers."""

    forgets = False
    """Whether its state is not restored when a pick is undone."""

    def __init__(self, raw: Mapping[str, Any], attribute: str, *, lists: bool) -> None:
        self.attribute = attribute
        self._requests = frozenset(raw.get("requests") or ())
        self._lists = lists
        self.reset()

    def applies(self, request: str, subrequest: str) -> bool:
        """No named request means all; a parent's name covers its alternatives."""
        if not self._requests or request in self._requests:
            return True
        return bool(subrequest) and f"{request}/{subrequest}" in self._requests

    def accepts(self, value: AttributeValue | None) -> bool:
        """Whether a device with this value may be added; None if it does not have the attribute."""
        # The first value is not compared. With list attributes, Kubernetes converts it, and rejects what it cannot.
        return value is not None and (bool(value) or not self._lists) and self._compare(value)

    def _compare(self, value: AttributeValue) -> bool:
        raise NotImplementedError

    def add(self, request: str, value: AttributeValue) -> None:
        raise NotImplementedError

    def remove(self, request: str) -> None:
        raise NotImplementedError

    def state(self) -> Hashable:
        raise NotImplementedError

    def restore(self, state: Any) -> None:
        """Only for a constraint that forgets."""

    def reset(self) -> None:
        raise NotImplementedError


class MatchAttribute(Constraint):
    """All devices must have an element in common; the first one sets what is possible."""

    _common: list[AttributeValue]
    """What is common, after each device."""

    def _compare(self, value: AttributeValue) -> bool:
        return not self._common or bool(self._common[-1] & value)

    def add(self, request: str, value: AttributeValue) -> None:
        self._common.append(self._common[-1] & value if self._common else value)

    def remove(self, request: str) -> None:
        self._common.pop()

    def state(self) -> Hashable:
        return self._common[-1] if self._common else None

    def reset(self) -> None:
        self._common = []


class DistinctAttribute(Constraint):
    """No two devices may have an element in common; values of different types differ."""

    _values: list[AttributeValue]

    def _compare(self, value: AttributeValue) -> bool:
        return _differs(value, self._values)

    def add(self, request: str, value: AttributeValue) -> None:
        self._values.append(value)

    def remove(self, request: str) -> None:
        self._values.pop()

    def state(self) -> Hashable:
        return frozenset(self._values)

    def reset(self) -> None:
        self._values = []


class ForgetfulDistinctAttribute(Constraint):
    """distinctAttribute up to 1.36: it keeps one value per request name, and undoing a pick drops that request.

    So duplicates can pass. The model has to repeat the scheduler's bug to predict its answers.
    """

    forgets = True
    _values: dict[str, AttributeValue]

    def _compare(self, value: AttributeValue) -> bool:
        return self._count == 0 or _differs(value, self._values.values())

    def add(self, request: str, value: AttributeValue) -> None:
        self._values[request] = value
        self._count += 1

    def remove(self, request: str) -> None:
        self._values.pop(request, None)
        self._count -= 1

    def state(self) -> Hashable:
        return self._count > 0, tuple(sorted(self._values.items(), key=lambda item: item[0]))

    def restore(self, state: Any) -> None:
        self._values = dict(state[1])

    def reset(self) -> None:
        self._values = {}
        self._count = 0


def _differs(value: AttributeValue, others: Any) -> bool:
    return all(value and not value & other for other in others)


def read_constraint(raw: Mapping[str, Any], rules: Rules) -> Constraint | None:
    """None for a constraint this release does not know."""
    if (name := raw.get("matchAttribute")) is not None:
        return MatchAttribute(raw, name, lists=rules.list_attributes)
    if (name := raw.get("distinctAttribute")) is not None and rules.distinct_supported:
        distinct = DistinctAttribute if rules.distinct_remembers_all else ForgetfulDistinctAttribute
        return distinct(raw, name, lists=rules.list_attributes)
    return None
