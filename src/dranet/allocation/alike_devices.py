"""Devices that agree in all a selector reads: it is asked about one of them.

Sets of devices are bit masks over their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from dranet.allocation.selector_reads import Read
from dranet.allocation.selectors import DeviceInput, Selector

Mask = int


class AlikeDevices:
    """Some devices, and which of them selectors take."""

    def __init__(self, devices: Iterable[DeviceInput]) -> None:
        self._devices = list(devices)
        self.all: Mask = (1 << len(self._devices)) - 1
        self._groups: dict[object, list[tuple[Mask, DeviceInput]]] = {}

    def judge(self, among: Mask, selector: Selector) -> tuple[Mask, Mask]:
        """Of these devices, those the selector takes and those it fails on."""
        taken = failed = 0
        for group, device in self._alike(among, selector.reads):
            verdict = selector.evaluate(device)
            taken |= group if verdict.matches else 0
            failed |= group if verdict.matches is None else 0
        return taken, failed

    def _alike(self, among: Mask, reads: tuple[Read, ...] | None) -> list[tuple[Mask, DeviceInput]]:
        if (among, reads) not in self._groups:
            found: dict[object, tuple[Mask, DeviceInput]] = {}
            for number, device in enumerate(self._devices):
                if among >> number & 1:
                    seen = None if reads is None or device.problem else device.key(reads)
                    key = number if seen is None else seen
                    mask, first = found.get(key, (0, device))
                    found[key] = (mask | 1 << number, first)
            self._groups[among, reads] = list(found.values())
        return self._groups[among, reads]
