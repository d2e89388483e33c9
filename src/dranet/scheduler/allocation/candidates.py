"""The candidate devices of one node in the order of the search, and cached results for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from dranet.cel import Err
from dranet.scheduler.allocation.capacity import Consumption, consumption
from dranet.scheduler.allocation.devices import NO_GROUPS, AttributeValue, CounterKey, Device
from dranet.scheduler.allocation.nodes import NodeLabels
from dranet.scheduler.allocation.pools import Pool, device_on_node
from dranet.scheduler.allocation.requests import Fatal, Request
from dranet.scheduler.allocation.rules import Rules
from dranet.scheduler.allocation.selectors import SelectorCompiler
from dranet.scheduler.allocation.state import AllocatedState
from dranet.scheduler.releases import Gate

_HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional"
    " fields"
)


class SelectorOutcome(msgspec.Struct, frozen=True):
    """The result of all selectors on a device: it matches, or the first selector that did not match or failed.

    `source` is "class" or "request", `index` the selector's index there.
    """

    matches: bool
    source: str = ""
    index: int = -1
    phase: str = ""
    error: str = ""


_MATCHES = SelectorOutcome(True)


class NodeCandidates:
    """Pools and candidate devices of a node. Candidates are numbered; a set of them is a bit mask."""

    __slots__ = ("_rules", "_selectors", "candidates", "invalid", "may_skip", "node", "on_node", "pool_of", "pools")

    def __init__(self, node: NodeLabels, pools: Sequence[Pool], rules: Rules, selectors: SelectorCompiler) -> None:
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
        declared = rules.optional_node_operations and Gate.OPTIONAL_NODE_OPERATIONS in node.declared_features
        self.may_skip = declared or not rules.checks_node_operations
        """Whether devices may be allocated for which the kubelet does not call the driver."""
        self._rules = rules
        self._selectors = selectors

    def outcome(self, index: int, request: Request) -> SelectorOutcome:
        """The result of the class and request selectors on a candidate, cached on the device."""
        device = self.candidates[index]
        found = device.selector_outcomes.get(request.selectors_key)
        if found is None:
            found = device.selector_outcomes[request.selectors_key] = self._evaluate(device, request)
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
                result = compiled.evaluate(device.input)
                if result.error is not None:
                    return SelectorOutcome(False, source, place, "runtime", result.error)
                if not result.matches:
                    return SelectorOutcome(False, source, place)
        return _MATCHES

    def selector_error(self, outcome: SelectorOutcome, device: Device, request: Request, claim: str) -> str:
        """The scheduler's message for a selector that failed."""
        owner = f"class {request.class_name}" if outcome.source == "class" else f"claim {claim}"
        where, error = "", outcome.error
        if outcome.phase == "runtime" and self._rules.errors_name_device:
            where = f" on device {'/'.join(device.id)}"
            if "no such key:" in error:
                error += _HINT
        return f"{owner}: selector #{outcome.index}{where}: CEL {outcome.phase} error: {error}"

    def attribute(self, device: Device, request: Request, name: str) -> AttributeValue | None:
        """The value that a constraint compares: a derived attribute of the request hides one of the device.

        Raises Fatal if the derived attribute cannot be evaluated.
        """
        expression = request.derived.get(name) if self._rules.derived_attributes else None
        if expression is None:
            return device.attribute(name, lists=self._rules.list_attributes)
        if expression not in device.derived:
            device.derived[expression] = self._derive(device, name, expression)
        found = device.derived[expression]
        if isinstance(found, str):
            raise Fatal(found)
        return found

    def _derive(self, device: Device, name: str, expression: str) -> AttributeValue | str:
        compiled = self._selectors.compile_derived(expression)
        if compiled.error is not None:
            return f"compile derived attribute {name} failed: {compiled.error}"
        value = compiled.derive(device.input)
        if isinstance(value, Err):
            return f"evaluate derived attribute {name} on device {'/'.join(device.id)} failed: {value.message}"
        # Without list attributes, a list is a value that cannot be compared.
        comparable = self._rules.list_attributes or not value.is_list
        return frozenset((value.kind, element) for element in value.elements if comparable)

    def consumption(self, device: Device, request: Request) -> Consumption:
        """What the request consumes of the device's capacities, cached on the device."""
        found = device.consumption.get(request.capacity_key)
        if found is None:
            found = consumption(request.capacity or {}, device.capacity, self._rules)
            device.consumption[request.capacity_key] = found
        return found

    def available_counters(self, pool: Pool, allocated: AllocatedState) -> dict[CounterKey, Fraction]:
        """Counters of the pool minus what allocated devices consume; may be negative."""
        left = dict(pool.counters)
        for device in (*pool.devices, *pool.others):
            if device.counters and allocated.in_use(device.id):
                for key, amount in device.counters:
                    if key in left:
                        left[key] -= amount
        return left

    def groups_in_use(self, pool: Pool, allocated: AllocatedState) -> dict[str, frozenset[str]]:
        """By counter set, the compatibility groups that all allocated devices have in common."""
        found: dict[str, frozenset[str]] = {}
        for device in (*pool.devices, *pool.others):
            for name, groups in device.groups if allocated.in_use(device.id) else ():
                common = found.get(name, groups)
                # Devices with and without groups are never in use together, unless a slice changed afterwards.
                found[name] = common if NO_GROUPS in (common, groups) else common & groups
        return found


def selector_expressions(selectors: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The texts of selectors, in order; the key of cached results."""
    return tuple((selector.get("cel") or {}).get("expression", "") for selector in selectors)
