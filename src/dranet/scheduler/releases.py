"""Kubernetes releases and their feature gates, with the defaults of each release.

Stages, defaults and dependencies are those of pkg/features/kube_features.go in v1.36.4 and v1.37.1. What is planned for
the release after the newest one comes from the milestones in kubernetes/enhancements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from dranet.core.errors import DranetError, did_you_mean

Version = tuple[int, int]
OLDEST, NEWEST, PLANNED = (1, 32), (1, 37), (1, 38)
_CHANGEABLE_SINCE = (1, 36)
"""Before, allocation is modelled with the default gates only."""


class UnknownVersion(DranetError):
    """A Kubernetes version whose rules are not known."""


class InvalidGates(DranetError):
    """Feature gates that Kubernetes would not start with."""


class Gate(StrEnum):
    """Feature gates that change scheduling or the fields of its objects."""

    ADMIN_ACCESS = "DRAAdminAccess"
    BINDING_CONDITIONS = "DRADeviceBindingConditions"
    CLAIM_DEVICE_STATUS = "DRAResourceClaimDeviceStatus"
    COMPATIBILITY_GROUPS = "DRADeviceCompatibilityGroups"
    COMPOSITE_POD_GROUP = "CompositePodGroup"
    CONSUMABLE_CAPACITY = "DRAConsumableCapacity"
    DERIVED_ATTRIBUTES = "DRADerivedAttributes"
    DEVICE_TAINT_RULES = "DRADeviceTaintRules"
    DEVICE_TAINTS = "DRADeviceTaints"
    EXTENDED_RESOURCE = "DRAExtendedResource"
    FILTER_TIMEOUT = "DRASchedulerFilterTimeout"
    FRACTIONAL_CAPACITY = "DRAFractionalCapacityRange"
    GANG_SCHEDULING = "GangScheduling"
    GENERIC_WORKLOAD = "GenericWorkload"
    LIST_ATTRIBUTES = "DRAListTypeAttributes"
    NODE_ALLOCATABLE_RESOURCES = "DRANodeAllocatableResources"
    OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
    PARTITIONABLE_DEVICES = "DRAPartitionableDevices"
    PARTITIONABLE_DEVICES_TYPE = "DRAPartitionableDevicesType"
    POD_GROUP_PREEMPTION_POLICY = "PodGroupPreemptionPolicy"
    POOL_STATUS = "DRAResourcePoolStatus"
    PRIORITIZED_LIST = "DRAPrioritizedList"
    SHARED_CONSUMABLE_CAPACITY = "DRASharedConsumableCapacity"
    STATUS_AUTHORIZATION = "DRAResourceClaimGranularStatusAuthorization"
    TOPOLOGY_AWARE_WORKLOADS = "TopologyAwareWorkloadScheduling"
    WORKLOAD_AWARE_PREEMPTION = "WorkloadAwarePreemption"
    WORKLOAD_CLAIMS = "DRAWorkloadResourceClaims"
    WORKLOAD_WITH_JOB = "WorkloadWithJob"


class GateState(msgspec.Struct, frozen=True):
    """A gate in one release."""

    stage: str
    default: bool = False
    locked: bool = False


_ALPHA, _BETA_OFF, _BETA = GateState("alpha"), GateState("beta"), GateState("beta", True)
_GA, _LOCKED = GateState("GA", True), GateState("GA", True, True)
_HISTORY: dict[Gate, dict[int, GateState | None]] = {
    Gate.ADMIN_ACCESS: {32: _ALPHA, 34: _BETA, 36: _LOCKED},
    Gate.BINDING_CONDITIONS: {34: _ALPHA, 36: _BETA},
    Gate.CLAIM_DEVICE_STATUS: {32: _ALPHA, 33: _BETA, 37: _LOCKED},
    Gate.COMPATIBILITY_GROUPS: {37: _ALPHA},
    Gate.COMPOSITE_POD_GROUP: {37: _ALPHA},
    Gate.CONSUMABLE_CAPACITY: {34: _ALPHA, 36: _BETA},
    Gate.DERIVED_ATTRIBUTES: {37: _ALPHA},
    Gate.DEVICE_TAINT_RULES: {35: _ALPHA, 36: _BETA_OFF, 37: _GA},
    Gate.DEVICE_TAINTS: {33: _ALPHA, 36: _BETA, 37: _GA},
    Gate.EXTENDED_RESOURCE: {34: _ALPHA, 36: _BETA, 37: _LOCKED},
    Gate.FILTER_TIMEOUT: {34: _BETA},
    Gate.FRACTIONAL_CAPACITY: {37: _BETA},
    Gate.GANG_SCHEDULING: {35: _ALPHA, 37: None},
    Gate.GENERIC_WORKLOAD: {35: _ALPHA, 37: _BETA_OFF},
    Gate.LIST_ATTRIBUTES: {36: _ALPHA},
    Gate.NODE_ALLOCATABLE_RESOURCES: {36: _ALPHA},
    Gate.OPTIONAL_NODE_OPERATIONS: {37: _ALPHA},
    Gate.PARTITIONABLE_DEVICES: {33: _ALPHA, 36: _BETA},
    Gate.PARTITIONABLE_DEVICES_TYPE: {37: _ALPHA},
    Gate.POD_GROUP_PREEMPTION_POLICY: {37: _ALPHA},
    Gate.POOL_STATUS: {36: _ALPHA},
    Gate.PRIORITIZED_LIST: {33: _ALPHA, 34: _BETA, 36: _GA, 37: _LOCKED},
    Gate.SHARED_CONSUMABLE_CAPACITY: {},
    Gate.STATUS_AUTHORIZATION: {36: _BETA},
    Gate.TOPOLOGY_AWARE_WORKLOADS: {36: _ALPHA},
    Gate.WORKLOAD_AWARE_PREEMPTION: {36: _ALPHA, 37: None},
    Gate.WORKLOAD_CLAIMS: {36: _ALPHA, 37: _BETA_OFF},
    Gate.WORKLOAD_WITH_JOB: {36: _ALPHA},
}
"""By minor version, the state from then on; None where the gate was removed."""
_PLANNED: dict[str, tuple[Gate, ...]] = {
    "GA": (Gate.CONSUMABLE_CAPACITY, Gate.GENERIC_WORKLOAD),
    "beta": (
        Gate.COMPATIBILITY_GROUPS, Gate.COMPOSITE_POD_GROUP, Gate.DERIVED_ATTRIBUTES, Gate.NODE_ALLOCATABLE_RESOURCES,
        Gate.OPTIONAL_NODE_OPERATIONS, Gate.POD_GROUP_PREEMPTION_POLICY, Gate.SHARED_CONSUMABLE_CAPACITY,
    ),
}  # fmt: skip
_NEEDS: dict[Gate, tuple[Gate, ...]] = {
    Gate.BINDING_CONDITIONS: (Gate.CLAIM_DEVICE_STATUS,),
    Gate.COMPATIBILITY_GROUPS: (Gate.PARTITIONABLE_DEVICES,),
    Gate.COMPOSITE_POD_GROUP: (Gate.GENERIC_WORKLOAD, Gate.TOPOLOGY_AWARE_WORKLOADS),
    Gate.DEVICE_TAINT_RULES: (Gate.DEVICE_TAINTS,),
    Gate.FRACTIONAL_CAPACITY: (Gate.CONSUMABLE_CAPACITY,),
    Gate.PARTITIONABLE_DEVICES_TYPE: (Gate.PARTITIONABLE_DEVICES, Gate.POOL_STATUS),
    Gate.POD_GROUP_PREEMPTION_POLICY: (Gate.GENERIC_WORKLOAD,),
    Gate.TOPOLOGY_AWARE_WORKLOADS: (Gate.GENERIC_WORKLOAD,),
    Gate.WORKLOAD_CLAIMS: (Gate.GENERIC_WORKLOAD,),
    Gate.WORKLOAD_WITH_JOB: (Gate.GENERIC_WORKLOAD,),
}


def gate_state(gate: Gate, version: Version) -> GateState | None:
    """The gate in a release; None if the release does not have it."""
    since = [minor for minor in _HISTORY[gate] if minor <= version[1]]
    return _HISTORY[gate][max(since)] if since else None


def gate_versions(gate: Gate) -> str:
    """The releases that have a gate, such as ``since 1.37``."""
    history = _HISTORY[gate]
    if not history:
        return "planned for 1.38"
    removed = [f", removed in 1.{minor}" for minor, state in history.items() if state is None]
    return f"since 1.{min(history)}{''.join(removed)}"


class Release(tuple[int, int]):
    """A version with its enabled gates. It compares as the tuple (major, minor)."""

    gates: frozenset[Gate]
    other_gates: tuple[str, ...]
    """Gates in the input that do not concern scheduling of devices."""

    def __new__(cls, version: Version, changed: Mapping[str, bool] | None = None) -> Release:
        """``changed`` are the gates that differ from the defaults; raises UnknownVersion and InvalidGates."""
        if not OLDEST <= version <= PLANNED:
            raise UnknownVersion(
                f"Kubernetes {_text(version)} is not supported: use a version from {_text(OLDEST)} to {_text(NEWEST)}"
                f" ({_text(PLANNED)} as far as it is known)"
            )
        made = super().__new__(cls, version)
        made.gates, made.other_gates = _enabled(min(version, NEWEST), changed or {})
        return made

    @property
    def modelled(self) -> Version:
        """The release whose rules apply: the newest known one for a planned release."""
        return min((self[0], self[1]), NEWEST)

    @property
    def text(self) -> str:
        return _text(self)

    @property
    def notes(self) -> list[str]:
        """What is not known of the release, and gates that are not modelled."""
        found = [f"feature gate {name}: not modelled" for name in self.other_gates]
        if self > NEWEST:
            planned = "; ".join(f"{stage}: {', '.join(gates)}" for stage, gates in _PLANNED.items())
            found.insert(0, f"Kubernetes {self.text}: planned as {_text(NEWEST)}; its own rules are not known")
            found.insert(1, f"Kubernetes {self.text}, by the milestones of its enhancements: {planned}")
        return found


def read_release(text: str, gates: str = "") -> Release:
    """From ``1.36`` or ``v1.36.4``, and gates as kube-scheduler takes them: ``A=true,B=false``."""
    match = re.match(r"v?(\d+)\.(\d+)", text)
    if match is None:
        raise UnknownVersion(f"{text!r} is not a Kubernetes version: write one such as {_text(NEWEST)}")
    return Release((int(match.group(1)), int(match.group(2))), _read_gates(gates))


def as_release(version: str | Version) -> Release:
    """A release as it is, or one with default gates."""
    if isinstance(version, Release):
        return version
    return read_release(version) if isinstance(version, str) else Release(version)


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _read_gates(text: str) -> dict[str, bool]:
    found = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, _, value = part.partition("=")
        if value.lower() not in ("true", "false"):
            raise InvalidGates(f"feature gate {part!r}: write NAME=true or NAME=false")
        found[name] = value.lower() == "true"
    return found


def _enabled(version: Version, changed: Mapping[str, bool]) -> tuple[frozenset[Gate], tuple[str, ...]]:
    states = {gate: state for gate in Gate if (state := gate_state(gate, version))}
    enabled = {gate for gate, state in states.items() if state.default}
    if changed and version < _CHANGEABLE_SINCE:
        raise InvalidGates(
            f"feature gates: Kubernetes {_text(version)} is modelled with its defaults; gates can be changed from"
            f" {_text(_CHANGEABLE_SINCE)} on"
        )
    for stage in ("alpha", "beta"):
        if (on := changed.get(f"All{stage.title()}")) is not None:
            group = {gate for gate, state in states.items() if state.stage == stage}
            enabled = enabled | group if on else enabled - group
    other = []
    for name, on in changed.items():
        if name in set(Gate):
            gate = Gate(name)
            _check_change(gate, on, version, states.get(gate))
            enabled = enabled | {gate} if on else enabled - {gate}
        elif name not in ("AllAlpha", "AllBeta"):
            other.append(name)
            if hint := did_you_mean(name, list(Gate)):
                raise InvalidGates(f"feature gate {name}: no such gate{hint}")
    _check_needs(enabled)
    return frozenset(enabled), tuple(other)


def _check_change(gate: Gate, on: bool, version: Version, state: GateState | None) -> None:
    if state is None:
        raise InvalidGates(f"feature gate {gate}: not in Kubernetes {_text(version)} ({gate_versions(gate)})")
    if state.locked and on != state.default:
        raise InvalidGates(
            f"feature gate {gate}: locked to {str(state.default).lower()} in Kubernetes {_text(version)}"
        )


def _check_needs(enabled: Iterable[Gate]) -> None:
    """Kubernetes does not start with a gate whose dependencies are off."""
    on = set(enabled)
    for gate in sorted(on):
        if missing := [one for one in _NEEDS.get(gate, ()) if one not in on]:
            raise InvalidGates(f"feature gate {gate}: needs {', '.join(missing)}")
