"""The candidates of one node, in the order in which they are tried, and what is known of each beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from dranet.allocation.capacity import Consumption, consumption
from dranet.allocation.devices import CounterKey, Device
from dranet.allocation.nodes import Node
from dranet.allocation.pools import Pool, device_on_node
from dranet.allocation.requests import Request
from dranet.allocation.rules import Rules
from dranet.allocation.selectors import SelectorCompiler
from dranet.allocation.state import AllocatedState

_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional"
    " fields"
)


class SelectorOutcome(msgspec.Struct, frozen=True):
    """Verdict of all selectors on a device: matches, or the selector that said no, or the one that failed.

    `source` is "class" or "request", `index` the selector's place there.
    """

    matches: bool
    source: str = ""
    index: int = -1
    phase: str = ""
    error: str = ""


_MATCHES = SelectorOutcome(True)


class NodeView:
    """Pools and candidates of a node. Candidates are numbered; a set of them is a bit mask."""

    __slots__ = ("_rules", "_selectors", "candidates", "invalid", "node", "on_node", "pool_of", "pools")

    def __init__(self, node: Node, pools: Sequence[Pool], rules: Rules, selectors: SelectorCompiler) -> None:
        self.node = node
        self.pools = pools
        self.candidates: list[Device] = []
        self.pool_of: list[Pool] = []
        self.invalid = any(pool.problem for pool in pools)
        for pool in pools:
            if pool.usable:
                self.candidates += pool.devices
                self.pool_of += [pool] * len(pool.devices)
        self.on_node = [not device.owner.per_device or device_on_node(device, node) for device in self.candidates]
        self._rules = rules
        self._selectors = selectors

    def outcome(self, index: int, request: Request) -> SelectorOutcome:
        """What class and request selectors say of a candidate; remembered on the device."""
        device = self.candidates[index]
        found = device.verdicts.get(request.selectors_key)
        if found is None:
            found = device.verdicts[request.selectors_key] = self._evaluate(device, request)
        return found

    def _evaluate(self, device: Device, request: Request) -> SelectorOutcome:
        if not self._rules.binding_conditions and device.has_binding:
            return SelectorOutcome(False, "binding conditions")
        class_selectors = ((request.class_ or {}).get("spec") or {}).get("selectors") or ()
        for source, selectors in (("class", class_selectors), ("request", request.selectors)):
            for place, selector in enumerate(selectors):
                compiled = self._selectors.compile(selector["cel"]["expression"])
                if compiled.error is not None:
                    return SelectorOutcome(False, source, place, "compile", compiled.error)
                verdict = compiled.evaluate(device.input)
                if verdict.error is not None:
                    return SelectorOutcome(False, source, place, "runtime", verdict.error)
                if not verdict.matches:
                    return SelectorOutcome(False, source, place)
        return _MATCHES

    def selector_error(self, outcome: SelectorOutcome, device: Device, request: Request, claim: str) -> str:
        """The message of a selector that failed, in the words of the scheduler."""
        owner = f"class {request.class_name}" if outcome.source == "class" else f"claim {claim}"
        where, error = "", outcome.error
        if outcome.phase == "runtime" and self._rules.errors_name_device:
            where = f" on device {'/'.join(device.id)}"
            if "no such key:" in error:
                error += _HINT
        return f"{owner}: selector #{outcome.index}{where}: CEL {outcome.phase} error: {error}"

    def consumption(self, device: Device, request: Request) -> Consumption:
        """What the request would take of the device's capacities; remembered on the device."""
        found = device.consumption.get(request.capacity_key)
        if found is None:
            found = consumption(request.capacity or {}, device.capacity, self._rules)
            device.consumption[request.capacity_key] = found
        return found

    def available_counters(self, pool: Pool, allocated: AllocatedState) -> dict[CounterKey, Fraction]:
        """Counters of the pool less what devices in use draw from them; may be negative."""
        left = dict(pool.counters)
        for device in (*pool.devices, *pool.others):
            if device.counters and allocated.in_use(device.id):
                for key, amount in device.counters:
                    if key in left:
                        left[key] -= amount
        return left


def selector_expressions(selectors: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The texts of selectors in their order; what verdicts are remembered by."""
    return tuple((selector.get("cel") or {}).get("expression", "") for selector in selectors)
