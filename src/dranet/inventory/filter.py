"""The ``--filter`` expression: which devices a node offers at all.

Its meaning is the reference driver's, oddities included, because people carry their expressions over: an error while
evaluating keeps the device, a result that is no boolean drops it, and values are read through fields named after Go
structs, where a field of another kind reads as its zero value. An expression that does not compile is fatal, since
nobody could know what was meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dranet.model.attributes import DEFAULT_FILTER
from dranet.model.device import Device


class DeviceFilter:
    """A compiled filter; the empty expression keeps everything."""

    def __init__(self, expression: str = DEFAULT_FILTER) -> None:
        self.expression = expression
        self._verdict: Callable[[Mapping[str, Any]], bool | None] | None = None
        if expression:
            from dranet.inventory.filter_program import compiled  # a tenth of a daemon's start

            self._verdict = compiled(expression)

    def keeps(self, device: Device) -> bool:
        """Whether the device is to be offered."""
        return self._verdict is None or self._verdict(device.attributes) is not False

    def is_true_for(self, device: Device) -> bool:
        """Whether the expression says so; unlike `keeps` an error does not: nothing is shared by mistake."""
        return self._verdict is not None and self._verdict(device.attributes) is True
