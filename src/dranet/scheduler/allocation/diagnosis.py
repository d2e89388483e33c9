"""Why a device is not usable for a request.

kube-scheduler reports only "cannot allocate all claims". `diagnose` checks every device of a node against every request
alone, in the order of the scheduler's checks, and reports the first rule that rejects it. (One difference: the class
comes before "in use", because a device of another class never was an option.) A device that passes alone is "usable",
but the combination may still fail: no set of devices satisfies a constraint, or the first picks use up the counters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import msgspec

from dranet.scheduler.allocation.candidates import NodeCandidates, selector_expressions
from dranet.scheduler.allocation.constraints import read_constraint
from dranet.scheduler.allocation.devices import Device, DeviceId
from dranet.scheduler.allocation.nodes import NodeLabels
from dranet.scheduler.allocation.pools import Pool
from dranet.scheduler.allocation.requests import Fatal, Request, claim_name, read_requests
from dranet.scheduler.allocation.shares import left_text, shortest
from dranet.scheduler.taints import blocks

if TYPE_CHECKING:
    from dranet.scheduler.allocation.allocator import ClusterDevices

USABLE, POOL_INCOMPLETE, POOL_INVALID = "usable", "pool-incomplete", "pool-invalid"
IN_USE, BINDING, CLASS_SELECTOR, REQUEST_SELECTOR = "in-use", "binding-conditions", "class-selector", "request-selector"
SELECTOR_ERROR, OTHER_NODE, CAPACITY, COUNTERS = "selector-error", "other-node", "capacity", "counters"
TAINT, CONSTRAINT, NO_CLASS = "taint", "constraint", "no-class"


class DeviceDiagnosis(msgspec.Struct, frozen=True):
    """`rule` is "usable" or the first rule that rejects the device; `detail` explains it, `index` is the index of the
    selector, taint or constraint."""

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
    count: int
    all_devices: bool
    devices: tuple[DeviceDiagnosis, ...]

    @property
    def usable(self) -> tuple[DeviceId, ...]:
        return tuple(entry.device for entry in self.devices if entry.usable)

    @property
    def enough(self) -> bool:
        """Whether enough devices are usable for the request alone."""
        if self.all_devices:
            return bool(self.usable)
        return len(self.usable) >= self.count


def diagnose(
    cluster: ClusterDevices, node: NodeLabels | Mapping[str, Any], claims: Sequence[Mapping[str, Any]]
) -> list[RequestDiagnosis]:
    """For each request of each claim, the first rule that rejects each device of the node."""
    candidates = cluster.candidates(node)
    return [
        _Diagnosis(cluster, candidates, claim).of(request)
        for index, claim in enumerate(claims)
        for alternatives in read_requests(index, claim)
        for request in alternatives
    ]


class _Diagnosis:
    def __init__(self, cluster: ClusterDevices, node: NodeCandidates, claim: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._node = node
        self._claim = claim

    def of(self, request: Request) -> RequestDiagnosis:
        request.class_ = self._cluster.classes.get(request.class_name)
        class_selectors = ((request.class_ or {}).get("spec") or {}).get("selectors") or ()
        request.selectors_key = (selector_expressions(class_selectors), selector_expressions(request.selectors))
        diagnoses: list[DeviceDiagnosis] = []
        position = 0
        for pool in self._node.pools:
            if not pool.usable:
                diagnoses += self._unusable(pool)
                continue
            for device in pool.devices:
                diagnoses.append(self._diagnose(position, device, request))
                position += 1
        return RequestDiagnosis(
            claim_name(self._claim), request.full_name, request.count, request.all, tuple(diagnoses)
        )

    def _unusable(self, pool: Pool) -> list[DeviceDiagnosis]:
        """Devices of an incomplete or invalid pool."""
        rule = POOL_INVALID if pool.complete else POOL_INCOMPLETE
        detail = pool.problem or "not all slices of the pool's newest generation are published"
        known = [device for slice_ in self._cluster.slices if slice_.pool_id == pool.id for device in slice_.devices]
        return [DeviceDiagnosis(device.id, rule, detail) for device in known]

    def _diagnose(self, position: int, device: Device, request: Request) -> DeviceDiagnosis:
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
        return DeviceDiagnosis(device.id, USABLE)

    def _class(self, position: int, device: Device, request: Request) -> DeviceDiagnosis | None:
        if request.class_ is None:
            return DeviceDiagnosis(device.id, NO_CLASS, f"device class {request.class_name} does not exist")
        outcome = self._node.outcome(position, request)
        if outcome.matches or outcome.error or outcome.source != "class":
            return None
        return DeviceDiagnosis(
            device.id, CLASS_SELECTOR, _false(request.selectors_key[0][outcome.index]), outcome.index
        )

    def _use(self, position: int, device: Device, request: Request) -> DeviceDiagnosis | None:
        if not request.admin and device.id in self._cluster.state.exclusive:
            return DeviceDiagnosis(device.id, IN_USE, "held by another claim")
        return None

    def _selectors(self, position: int, device: Device, request: Request) -> DeviceDiagnosis | None:
        outcome = self._node.outcome(position, request)
        if outcome.error:
            message = self._node.selector_error(outcome, device, request, claim_name(self._claim))
            return DeviceDiagnosis(device.id, SELECTOR_ERROR, message, outcome.index)
        if not outcome.matches:
            if not outcome.source or outcome.index < 0:
                return DeviceDiagnosis(device.id, BINDING, "devices with binding conditions are not supported")
            text = request.selectors_key[1][outcome.index]
            return DeviceDiagnosis(device.id, REQUEST_SELECTOR, _false(text), outcome.index)
        if not self._node.on_node[position]:
            return DeviceDiagnosis(device.id, OTHER_NODE, "the device belongs to other nodes")
        return None

    def _capacity(self, position: int, device: Device, request: Request) -> DeviceDiagnosis | None:
        if not self._cluster.rules.consumable_capacity:
            return None
        wanted = self._node.consumption(device, request)
        missing = sorted(name for name in request.capacity or {} if name not in device.capacity)
        if missing:
            return DeviceDiagnosis(device.id, CAPACITY, f"has no capacity {', '.join(missing)}")
        if wanted.error or not wanted.fits_policy:
            return DeviceDiagnosis(device.id, CAPACITY, wanted.error or "the request does not fit the device's policy")
        used = self._cluster.state.capacity(device.id) or {}
        for name, amount in sorted(wanted.amounts.items()):
            offered, held = device.capacity[name].value, used.get(name, Fraction(0))
            if amount.value + held > offered.value:
                rest = f"{left_text(name, held, offered)} left" if held else f"{offered} offered"
                return DeviceDiagnosis(device.id, CAPACITY, f"{name}: {shortest(str(amount))} wanted, {rest}")
        return None

    def _counters(self, position: int, device: Device, request: Request) -> DeviceDiagnosis | None:
        if not device.counters:
            return None
        left = self._node.available_counters(self._node.pool_of[position], self._cluster.state)
        for key, amount in device.counters:
            left[key] = left.get(key, 0) - amount
        short = sorted(f"{name}/{counter}" for (name, counter), value in left.items() if value < 0)
        if short:
            return DeviceDiagnosis(device.id, COUNTERS, f"shared counters used up: {', '.join(short)}")
        used = self._node.groups_in_use(self._node.pool_of[position], self._cluster.state)
        apart = [name for name, groups in device.groups if not used.get(name, groups) & groups]
        if apart and self._cluster.rules.compatibility_groups:
            detail = f"no compatibility group in common with devices in use: {', '.join(apart)}"
            return DeviceDiagnosis(device.id, COUNTERS, detail)
        return None

    def _taints(self, position: int, device: Device, request: Request) -> DeviceDiagnosis | None:
        if not self._cluster.rules.taints or not blocks(device.taints, request.tolerations):
            return None
        shown = ", ".join(f"{taint.key}:{taint.effect}" for taint in device.taints)
        return DeviceDiagnosis(device.id, TAINT, shown)

    def _constraints(self, position: int, device: Device, request: Request) -> DeviceDiagnosis | None:
        """Only what rejects a device by itself: it lacks the attribute of the constraint."""
        for place, raw in enumerate(self._claim["spec"].get("devices", {}).get("constraints") or ()):
            constraint = read_constraint(raw, self._cluster.rules)
            if constraint is None or not constraint.applies(request.base, request.alternative):
                continue
            try:
                value = self._node.attribute(device, request, constraint.attribute)
            except Fatal as error:
                return DeviceDiagnosis(device.id, SELECTOR_ERROR, str(error), place)
            if not constraint.accepts(value):
                return DeviceDiagnosis(device.id, CONSTRAINT, f"has no attribute {constraint.attribute}", place)
        return None


def _false(expression: str) -> str:
    return f"{' '.join(expression.split())}: is false"
