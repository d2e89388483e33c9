"""Selectors tried on devices: what a class offers, what a request may get."""

from __future__ import annotations

from dataclasses import dataclass, field

from dranet.allocation.kubernetes_cel import COST_LIMIT, MAX_LENGTH
from dranet.allocation.selectors import DeviceInput, SelectorCompiler, device_input
from dranet.cel import Issue
from dranet.manifests.claim_views import Request, World
from dranet.predict.hardware import Hardware, Unit
from dranet.predict.request_drivers import class_selectors

OLDEST, NEWEST = (1, 32), (1, 37)
TOO_LONG = f"Too long: may not be more than {MAX_LENGTH} bytes"
TOO_COSTLY = "too complex, exceeds cost limit"
REFUSALS = (TOO_LONG, TOO_COSTLY)
"""What the API server says of an expression that compiles and is too much."""


@dataclass(frozen=True)
class Tester:
    """Compiles each expression once, looks at each device once and tries each pair once, for one release."""

    kubernetes: tuple[int, int] = (1, 36)
    _compilers: dict[bool, SelectorCompiler] = field(default_factory=dict)
    _inputs: dict[int, tuple[Unit, DeviceInput]] = field(default_factory=dict)
    _verdicts: dict[str, dict[int, bool | str]] = field(default_factory=dict)

    def problems(self, expression: str) -> tuple[str, tuple[Issue, ...]]:
        """What the API server says of a new expression: the whole text and its places; empty where it is fine."""
        if len(expression.encode()) > MAX_LENGTH:
            return TOO_LONG, ()
        compiled = self._compiler(stored=False).compile(expression)
        if (compiled.cost_estimate() or 0) > COST_LIMIT:
            return TOO_COSTLY, ()
        return compiled.error or "", compiled.issues

    def verdict(self, expression: str, unit: Unit) -> bool | str | None:
        """True or false, the error as the scheduler words it, or None for an expression that does not compile."""
        compiled = self._compiler(stored=True).compile(expression)
        if compiled.error is not None:
            return None
        known = self._verdicts.setdefault(expression, {})
        if id(unit) not in known:
            answer = compiled.evaluate(self._input(unit))
            known[id(unit)] = answer.matches if answer.matches is not None else answer.error or "unknown error"
        return known[id(unit)]

    def of_class(self, world: World, hardware: Hardware, name: str) -> list[Unit]:
        """Devices a class offers; those its selectors fail on are left out."""
        if name not in world.classes:
            return []
        texts = class_selectors(world, name)
        return [unit for unit in hardware.units if all(self.verdict(text, unit) is True for text in texts)]

    def candidates(self, world: World, hardware: Hardware, request: Request) -> list[Unit]:
        """Devices a request may get: its class and all its selectors match."""
        texts = [selector.text for selector in request.selectors]
        offered = self.of_class(world, hardware, request.device_class)
        return [unit for unit in offered if all(self.verdict(text, unit) is True for text in texts)]

    def _compiler(self, *, stored: bool) -> SelectorCompiler:
        if stored not in self._compilers:
            major, minor = min(max(self.kubernetes, OLDEST), NEWEST)
            self._compilers[stored] = SelectorCompiler(f"{major}.{minor}", stored=stored)
        return self._compilers[stored]

    def _input(self, unit: Unit) -> DeviceInput:
        # The unit is kept beside its input: an id alone could be taken over by another object.
        known = self._inputs.get(id(unit))
        if known is None:
            known = self._inputs[id(unit)] = (unit, device_input(unit.driver, unit.raw))
        return known[1]
