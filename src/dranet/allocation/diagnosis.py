"""Why a device was not an option.

The scheduler says "cannot allocate all claims" and no more. Here every device of a node is put before every request on
its own, and the first rule that rules it out is named, in the order in which the scheduler checks (but whether a
device belongs to the request's class comes before whether it is in use: others were never an option). A device that
passes alone may still be ruled out by its neighbours (a constraint no set of devices satisfies, counters used up by
the first picks): such devices are "usable", and if the claims do not fit although enough of them are, the combination
is at fault.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec

from dranet.allocation.candidates import NodeView, selector_expressions
from dranet.allocation.constraints import read_constraint
from dranet.allocation.devices import Device, DeviceId
from dranet.allocation.nodes import Node
from dranet.allocation.pools import Pool
from dranet.allocation.requests import Request, claim_name, read_requests, taint_blocks
from dranet.allocation.shares import left_text, shortest

if TYPE_CHECKING:
    from dranet.allocation.allocator import ClusterDevices

USABLE, POOL_INCOMPLETE, POOL_INVALID = "usable", "pool-incomplete", "pool-invalid"
IN_USE, BINDING, CLASS_SELECTOR, REQUEST_SELECTOR = "in-use", "binding-conditions", "class-selector", "request-selector"
SELECTOR_ERROR, OTHER_NODE, CAPACITY, COUNTERS = "selector-error", "other-node", "capacity", "counters"
TAINT, CONSTRAINT, NO_CLASS = "taint", "constraint", "no-class"


class DeviceVerdict(msgspec.Struct, frozen=True):
    """`rule` is "usable" or the first rule against the device; `detail` says it in words, `index` which selector,
    taint or constraint it was."""

    device: DeviceId
    rule: str
    detail: str = ""
    index: int | None = None

    @property
    def usable(self) -> bool:
        return self.rule == USABLE


class RequestDiagnosis(msgspec.Struct, frozen=True):
    """All devices of the node against one request (or one alternative, named `request/alternative`)."""

    claim: str
    request: str
    wanted: int
    all_devices: bool
    devices: tuple[DeviceVerdict, ...]

    @property
    def usable(self) -> tuple[DeviceId, ...]:
        return tuple(verdict.device for verdict in self.devices if verdict.usable)

    @property
    def enough(self) -> bool:
        """Whether the request could be served if it were alone and unconstrained by combinations."""
        if self.all_devices:
            return bool(self.usable)
        return len(self.usable) >= self.wanted


def diagnose(
    cluster: ClusterDevices, node: Node | Mapping[str, Any], claims: Sequence[Mapping[str, Any]]
) -> list[RequestDiagnosis]:
    """For each request of each claim, the first rule that ruled each device of the node out."""
    view = cluster.view(node)
    return [
        _Diagnosis(cluster, view, claim).of(request)
        for index, claim in enumerate(claims)
        for alternatives in read_requests(index, claim)
        for request in alternatives
    ]


class _Diagnosis:
    def __init__(self, cluster: ClusterDevices, view: NodeView, claim: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._view = view
        self._claim = claim

    def of(self, request: Request) -> RequestDiagnosis:
        request.class_ = self._cluster.classes.get(request.class_name)
        class_selectors = ((request.class_ or {}).get("spec") or {}).get("selectors") or ()
        request.selectors_key = (selector_expressions(class_selectors), selector_expressions(request.selectors))
        verdicts: list[DeviceVerdict] = []
        position = 0
        for pool in self._view.pools:
            if not pool.usable:
                verdicts += self._unusable(pool)
                continue
            for device in pool.devices:
                verdicts.append(self._verdict(position, device, request))
                position += 1
        return RequestDiagnosis(claim_name(self._claim), request.full_name, request.count, request.all, tuple(verdicts))

    def _unusable(self, pool: Pool) -> list[DeviceVerdict]:
        """Devices of a pool that offers none, from the slices that are known."""
        rule = POOL_INVALID if pool.complete else POOL_INCOMPLETE
        detail = pool.problem or "not all slices of the pool's newest generation are published"
        known = [device for slice_ in self._cluster.slices if slice_.pool_id == pool.id for device in slice_.devices]
        return [DeviceVerdict(device.id, rule, detail) for device in known]

    def _verdict(self, position: int, device: Device, request: Request) -> DeviceVerdict:
        for check in (
            self._class,
            self._use,
            self._selectors,
            self._capacity,
            self._counters,
            self._taints,
            self._constraints,
        ):
            found = check(position, device, request)
            if found is not None:
                return found
        return DeviceVerdict(device.id, USABLE)

    def _class(self, position: int, device: Device, request: Request) -> DeviceVerdict | None:
        if request.class_ is None:
            return DeviceVerdict(device.id, NO_CLASS, f"device class {request.class_name} does not exist")
        outcome = self._view.outcome(position, request)
        if outcome.matches or outcome.error or outcome.source != "class":
            return None
        return DeviceVerdict(device.id, CLASS_SELECTOR, _false(request.selectors_key[0][outcome.index]), outcome.index)

    def _use(self, position: int, device: Device, request: Request) -> DeviceVerdict | None:
        if not request.admin and device.id in self._cluster.state.exclusive:
            return DeviceVerdict(device.id, IN_USE, "held by another claim")
        return None

    def _selectors(self, position: int, device: Device, request: Request) -> DeviceVerdict | None:
        outcome = self._view.outcome(position, request)
        if outcome.error:
            message = self._view.selector_error(outcome, device, request, claim_name(self._claim))
            return DeviceVerdict(device.id, SELECTOR_ERROR, message, outcome.index)
        if not outcome.matches:
            if not outcome.source or outcome.index < 0:
                return DeviceVerdict(device.id, BINDING, "devices with binding conditions are not supported")
            text = request.selectors_key[1][outcome.index]
            return DeviceVerdict(device.id, REQUEST_SELECTOR, _false(text), outcome.index)
        if not self._view.on_node[position]:
            return DeviceVerdict(device.id, OTHER_NODE, "the device belongs to other nodes")
        return None

    def _capacity(self, position: int, device: Device, request: Request) -> DeviceVerdict | None:
        if not self._cluster.rules.consumable_capacity:
            return None
        wanted = self._view.consumption(device, request)
        missing = sorted(name for name in request.capacity or {} if name not in device.capacity)
        if missing:
            return DeviceVerdict(device.id, CAPACITY, f"has no capacity {', '.join(missing)}")
        if wanted.error or not wanted.fits_policy:
            return DeviceVerdict(device.id, CAPACITY, wanted.error or "the request does not fit the device's policy")
        used = self._cluster.state.capacity(device.id) or {}
        for name, amount in sorted(wanted.amounts.items()):
            offered, held = device.capacity[name].value, used.get(name, Fraction(0))
            if amount.value + held > offered.value:
                rest = f"{left_text(name, held, offered)} left" if held else f"{offered} offered"
                return DeviceVerdict(device.id, CAPACITY, f"{name}: {shortest(str(amount))} wanted, {rest}")
        return None

    def _counters(self, position: int, device: Device, request: Request) -> DeviceVerdict | None:
        if not device.counters:
            return None
        left = self._view.available_counters(self._view.pool_of[position], self._cluster.state)
        for key, amount in device.counters:
            left[key] = left.get(key, 0) - amount
        short = sorted(f"{name}/{counter}" for (name, counter), value in left.items() if value < 0)
        if short:
            return DeviceVerdict(device.id, COUNTERS, f"shared counters used up: {', '.join(short)}")
        return None

    def _taints(self, position: int, device: Device, request: Request) -> DeviceVerdict | None:
        if not self._cluster.rules.taints or not taint_blocks(device, request):
            return None
        shown = ", ".join(f"{taint.get('key')}:{taint.get('effect')}" for taint in device.taints)
        return DeviceVerdict(device.id, TAINT, shown)

    def _constraints(self, position: int, device: Device, request: Request) -> DeviceVerdict | None:
        """Only what rules a device out by itself: it lacks the attribute the constraint is about."""
        for place, raw in enumerate(self._claim["spec"].get("devices", {}).get("constraints") or ()):
            constraint = read_constraint(raw, self._cluster.rules)
            if constraint is None or not constraint.applies(request.base, request.alternative):
                continue
            if not constraint.accepts(device):
                name = raw.get("matchAttribute") or raw.get("distinctAttribute")
                return DeviceVerdict(device.id, CONSTRAINT, f"has no attribute {name}", place)
        return None


def _false(expression: str) -> str:
    return f"{' '.join(expression.split())}: is false"
