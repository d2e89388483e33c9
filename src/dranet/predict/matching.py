"""Selectors tried on devices, and what the API server says of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dranet.allocation.alike_devices import AlikeDevices, Mask
from dranet.allocation.kubernetes_cel import COST_LIMIT, MAX_LENGTH
from dranet.allocation.selectors import DeviceInput, Selector, compile_new, device_input, shared_compiler
from dranet.cel import Issue
from dranet.predict.hardware import Unit

OLDEST, NEWEST = (1, 32), (1, 37)
TOO_LONG = f"Too long: may not be more than {MAX_LENGTH} bytes"
TOO_COSTLY = "too complex, exceeds cost limit"
REFUSALS = (TOO_LONG, TOO_COSTLY)
"""What the API server says of an expression that compiles and is too much."""


class Tester(msgspec.Struct, frozen=True):
    """Compiles each expression once, looks at each device once and tries each pair once, for one release."""

    kubernetes: tuple[int, int] = (1, 36)
    _problems: dict[str, tuple[str, tuple[Issue, ...]]] = msgspec.field(default_factory=dict)
    _inputs: dict[int, tuple[Unit, DeviceInput]] = msgspec.field(default_factory=dict)
    _verdicts: dict[str, tuple[Selector, dict[int, bool | str]]] = msgspec.field(default_factory=dict)

    def problems(self, expression: str) -> tuple[str, tuple[Issue, ...]]:
        """What the API server says of a new expression: the whole text and its places; empty where it is fine."""
        if expression not in self._problems:
            self._problems[expression] = self._problems_of(expression)
        return self._problems[expression]

    def _problems_of(self, expression: str) -> tuple[str, tuple[Issue, ...]]:
        if len(expression.encode()) > MAX_LENGTH:
            return TOO_LONG, ()
        compiled = compile_new(self._release, expression)
        if (compiled.cost_estimate() or 0) > COST_LIMIT:
            return TOO_COSTLY, ()
        return compiled.error or "", compiled.issues

    def verdict(self, expression: str, unit: Unit) -> bool | str | None:
        """True or false, the error as the scheduler words it, or None for an expression that does not compile."""
        known = self._verdicts.get(expression)
        if known is None:
            compiled = shared_compiler(self._release).compile(expression)
            known = self._verdicts[expression] = (compiled, {})
        compiled, answers = known
        if compiled.error is not None:
            return None
        found = answers.get(id(unit))
        if found is None:
            answer = compiled.evaluate(self._input(unit))
            found = answer.matches if answer.matches is not None else answer.error or "unknown error"
            answers[id(unit)] = found
        return found

    def alike(self, units: Iterable[Unit]) -> AlikeDevices:
        """These devices, ready for many selectors."""
        return AlikeDevices(map(self._input, units))

    def taken(self, devices: AlikeDevices, among: Mask, expression: str) -> Mask:
        """Those among the devices that an expression takes; one that fails or does not compile takes none."""
        return devices.judge(among, shared_compiler(self._release).compile(expression))[0]

    @property
    def _release(self) -> str:
        return ".".join(map(str, min(max(self.kubernetes, OLDEST), NEWEST)))

    def _input(self, unit: Unit) -> DeviceInput:
        # The unit is kept beside its input: an id alone could be taken over by another object.
        known = self._inputs.get(id(unit))
        if known is None:
            known = self._inputs[id(unit)] = (unit, device_input(unit.driver, unit.raw))
        return known[1]
