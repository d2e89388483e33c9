"""Devices that are already in use.

Exclusive use takes a device away. Shared use (a result with a share id) leaves it there but consumes capacity. Admin
access counts as neither. `versions` grow with every change, so that answers computed earlier are recognised as stale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from dranet.allocation.devices import DeviceId, PoolId
from dranet.model.quantity import parse_quantity


def _id(result: Mapping[str, Any]) -> DeviceId:
    return result["driver"], result["pool"], result["device"]


class AllocatedState:
    """What claims hold, from the device results of their allocations."""

    def __init__(self, results: Iterable[Mapping[str, Any]] = (), *, shares: bool = True) -> None:
        self.exclusive: Counter[DeviceId] = Counter()
        self.shared: Counter[DeviceId] = Counter()
        self.consumed: dict[DeviceId, dict[str, Fraction]] = {}
        self.versions: Counter[PoolId] = Counter()
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
        self.versions[device[:2]] += 1
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

    def changes(self, pools: Iterable[PoolId]) -> int:
        """Grows whenever something in one of these pools is taken or given back."""
        return sum(self.versions[pool] for pool in pools)

    def in_use(self, device: DeviceId) -> bool:
        """Whether any claim has it or a share of it; what an admin looks at is not in use."""
        return device in self.exclusive or device in self.shared
