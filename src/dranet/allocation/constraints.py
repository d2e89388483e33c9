"""Constraints of a claim over the devices picked for it.

A constraint answers `accepts` without side effects, then `add` and `remove` keep its state. `state` is hashable and
holds all that later answers depend on; the search uses it to recognise situations it has seen before.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Protocol

from dranet.allocation.devices import AttributeValue, Device
from dranet.allocation.rules import Rules


class Constraint(Protocol):
    """What the search asks of a constraint. `forgets` marks one whose state does not return when a pick is undone."""

    forgets: bool

    def applies(self, request: str, subrequest: str) -> bool: ...
    def accepts(self, device: Device) -> bool: ...
    def add(self, request: str, device: Device) -> None: ...
    def remove(self, request: str) -> None: ...
    def state(self) -> Hashable: ...
    def restore(self, state: Any) -> None: ...
    def reset(self) -> None: ...


class _Named:
    """Which requests a constraint covers: none named means all; a parent's name covers its alternatives."""

    def __init__(self, raw: Mapping[str, Any], attribute: str) -> None:
        self.attribute = attribute
        self._requests = frozenset(raw.get("requests") or ())

    def applies(self, request: str, subrequest: str) -> bool:
        if not self._requests or request in self._requests:
            return True
        return bool(subrequest) and f"{request}/{subrequest}" in self._requests


class MatchAttribute(_Named):
    """All devices must have the same value; the first one sets it."""

    forgets = False

    def __init__(self, raw: Mapping[str, Any]) -> None:
        super().__init__(raw, raw["matchAttribute"])
        self._value: AttributeValue | None = None
        self._count = 0

    def accepts(self, device: Device) -> bool:
        value = device.attribute(self.attribute)
        if value is None:
            return False
        return self._count == 0 or (value[0] != "other" and value == self._value)

    def add(self, request: str, device: Device) -> None:
        if self._count == 0:
            self._value = device.attribute(self.attribute)
        self._count += 1

    def remove(self, request: str) -> None:
        self._count -= 1

    def state(self) -> Hashable:
        return self._value if self._count else None

    def restore(self, state: Any) -> None:
        pass

    def reset(self) -> None:
        self._count = 0


class DistinctAttribute(_Named):
    """All devices must have different values; values of different types differ."""

    forgets = False

    def __init__(self, raw: Mapping[str, Any]) -> None:
        super().__init__(raw, raw["distinctAttribute"])
        self._values: list[AttributeValue] = []

    def accepts(self, device: Device) -> bool:
        value = device.attribute(self.attribute)
        return value is not None and _differs(value, self._values)

    def add(self, request: str, device: Device) -> None:
        value = device.attribute(self.attribute)
        assert value is not None
        self._values.append(value)

    def remove(self, request: str) -> None:
        self._values.pop()

    def state(self) -> Hashable:
        return frozenset(self._values)

    def restore(self, state: Any) -> None:
        pass

    def reset(self) -> None:
        self._values.clear()


class ForgetfulDistinctAttribute(_Named):
    """distinctAttribute up to 1.36: it remembers one value per request name, and undoing a pick forgets that request.

    So duplicates can slip through. Predicting what the scheduler does means making the same mistakes.
    """

    forgets = True

    def __init__(self, raw: Mapping[str, Any]) -> None:
        super().__init__(raw, raw["distinctAttribute"])
        self._values: dict[str, AttributeValue] = {}
        self._count = 0

    def accepts(self, device: Device) -> bool:
        value = device.attribute(self.attribute)
        return value is not None and (self._count == 0 or _differs(value, self._values.values()))

    def add(self, request: str, device: Device) -> None:
        value = device.attribute(self.attribute)
        assert value is not None
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
        self._values.clear()
        self._count = 0


def _differs(value: AttributeValue, others: Any) -> bool:
    return all(value[0] != "other" and value != other for other in others)


def read_constraint(raw: Mapping[str, Any], rules: Rules) -> Constraint | None:
    """None for a constraint this release does not know."""
    if raw.get("matchAttribute") is not None:
        return MatchAttribute(raw)
    if raw.get("distinctAttribute") is not None and rules.distinct_supported:
        return DistinctAttribute(raw) if rules.distinct_remembers_all else ForgetfulDistinctAttribute(raw)
    return None
