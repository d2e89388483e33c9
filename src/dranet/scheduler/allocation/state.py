"""Allocated devices.

An exclusive allocation makes a device unavailable. A share (a result with a share id) consumes capacity. Admin access
does neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from dranet.core.quantity import parse_quantity
from dranet.scheduler.allocation.devices import DeviceId


def _id(result: Mapping[str, Any]) -> DeviceId:
    return result["driver"], result["pool"], result["device"]


class AllocatedState:
    """Devices and capacity that claims hold, from the device results of their allocations."""

    def __init__(self, results: Iterable[Mapping[str, Any]] = (), *, shares: bool = True) -> None:
        self.exclusive: Counter[DeviceId] = Counter()
        self.shared: Counter[DeviceId] = Counter()
        self.consumed: dict[DeviceId, dict[str, Fraction]] = {}
        self._shares = shares
        self.add(results)

    def add(self, results: Iterable[Mapping[str, Any]]) -> None:
        for result in results:
            self._change(result, 1)

    def remove(self, results: Iterable[Mapping[str, Any]]) -> None:
        for result in results:
            self._change(result, -1)

    def _change(self, result: Mapping[str, Any], sign: int) -> None:
        if result.get("adminAccess"):
            return
        device = _id(result)
        if not (self._shares and result.get("shareID")):
            self._count(self.exclusive, device, sign)
            return
        self._count(self.shared, device, sign)
        amounts = self.consumed.setdefault(device, {})
        for name, amount in (result.get("consumedCapacity") or {}).items():
            amounts[name] = amounts.get(name, Fraction(0)) + sign * parse_quantity(str(amount)).value
        if not self.shared[device]:
            self.consumed.pop(device, None)

    @staticmethod
    def _count(counter: Counter[DeviceId], device: DeviceId, sign: int) -> None:
        counter[device] += sign
        if counter[device] <= 0:
            del counter[device]

    def capacity(self, device: DeviceId) -> dict[str, Fraction] | None:
        """Consumed capacity of a shared device; None if it is not shared or nothing was recorded."""
        return self.consumed.get(device) or None

    def in_use(self, device: DeviceId) -> bool:
        """Whether any claim holds it or a share of it. Admin access does not count."""
        return device in self.exclusive or device in self.shared
