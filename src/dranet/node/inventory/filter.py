"""The ``--filter`` expression: which devices a node offers.

Its semantics are the reference driver's, so that expressions can be carried over: an evaluation error keeps the device,
a result that is not a boolean drops it, and values are read through fields named after Go structs, where a field of
another kind reads as its zero value. An expression that does not compile is fatal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dranet.core.attributes import DEFAULT_FILTER
from dranet.core.device import Device


class DeviceFilter:
    """A compiled filter; the empty expression keeps every device."""

    def __init__(self, expression: str = DEFAULT_FILTER) -> None:
        self.expression = expression
        self._evaluate: Callable[[Mapping[str, Any]], bool | None] | None = None
        if expression:
            # Imported late: CEL is a tenth of the daemon's start, and `dranet check` has no filter.
            from dranet.node.inventory.filter_program import compile_filter

            self._evaluate = compile_filter(expression)

    def keeps(self, device: Device) -> bool:
        """Whether the device is offered."""
        return self._evaluate is None or self._evaluate(device.attributes) is not False

    def is_true_for(self, device: Device) -> bool:
        """Whether the expression is true; unlike in `keeps`, an error is not: no device is shared by mistake."""
        return self._evaluate is not None and self._evaluate(device.attributes) is True
