"""Faults found in the readings of a node's devices.

A check compares a device with its earlier readings and with its peers, the devices of the same model on the machine.
Where no machine shape gives the expected value, the value of the majority of peers is expected. Two devices that
differ prove nothing about either.

When a link loses its carrier, these delays decide when its device gets the taint ``dra.net/link-down``:

    0.1 s, at most 1 s   until the kernel's events settle and the inventory scans  inventory.watcher.WatchIntervals
    1.5 s or more        between two readings of the node                          server.health_watch.SPACING
    2 readings           in a row that show no carrier                             policy.toml: link-down.seen
    15 s                 without carrier after the driver moved the device         policy.toml: link-down.window_seconds

The first reading with a carrier removes the taint. On the host the inventory reads the link state through netlink; in
a pod the device reader reads it from sysfs. `dranet.node.inventory.faults.link_down` judges both. The `state` attribute
in the slice follows later: `WatchIntervals.link_up_grace` holds it back for 3 s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from dranet.core.device import FaultKind
from dranet.node.health.policy import DEGRADED, OFF, Policy, default_policy
from dranet.node.health.readings import DeviceReading

T = TypeVar("T")
_MINUTE, _HOUR = 60.0, 3600.0
_HISTORY_SECONDS = 3700.0
"""A little more than the longest window of any counter, one hour."""
_HISTORY_READINGS = 32


class Finding(msgspec.Struct, frozen=True):
    """One fault of one device; of the whole node where `device` is empty."""

    device: str
    fault: FaultKind
    message: str
    severity: str = DEGRADED


class Expected(msgspec.Struct, frozen=True):
    """What the machine's shape says about its NICs; None where it does not."""

    speed_mbps: Mapping[str, int] = msgspec.field(default_factory=dict)
    """By device."""
    nics: int | None = None


class Observation(msgspec.Struct, frozen=True):
    """All devices of a node at one moment, their earlier readings, and the expected values."""

    devices: Sequence[DeviceReading]
    earlier: Mapping[str, Sequence[DeviceReading]] = msgspec.field(default_factory=dict)
    """By device, oldest first; all of one device were taken at the same location."""
    expected: Expected = Expected()

    def peers(self, same: Callable[[DeviceReading], str] = lambda device: "") -> Iterable[list[DeviceReading]]:
        """Devices of one model, group by group; `same` returns what else must be equal."""
        found: dict[tuple[str, str], list[DeviceReading]] = {}
        for device in self.devices:
            found.setdefault((device.model or device.device, same(device)), []).append(device)
        return found.values()

    def comparable(self, device: DeviceReading) -> Sequence[DeviceReading]:
        """Earlier readings since the device last moved or changed its claim: a move takes the link down and up."""
        earlier = self.earlier.get(device.device, ())
        return earlier if earlier and not device.moves % 2 and device.same_location(earlier[-1]) else ()


class FaultHistory:
    """Readings over time. A fault counts after `seen` readings in a row and ends with the first that lacks it."""

    def __init__(self, policy: Policy | None = None, expected: Expected | None = None) -> None:
        self._policy = policy or default_policy()
        self.expected = expected or Expected()
        self._readings: dict[str, list[DeviceReading]] = {}
        self._seen: dict[tuple[str, FaultKind], int] = {}

    def add(self, devices: Sequence[DeviceReading]) -> list[Finding]:
        """Add the readings of one moment; return the findings that count now."""
        found = find_faults(Observation(devices, self._readings, self.expected), self._policy)
        self._keep(devices)
        self._seen = {(f.device, f.fault): self._seen.get((f.device, f.fault), 0) + 1 for f in found}
        return [f for f in found if self._seen[f.device, f.fault] >= self._policy[f.fault].seen]

    @property
    def has_unconfirmed(self) -> bool:
        """Whether a fault was seen that does not count yet: read again soon."""
        return any(count < self._policy[fault].seen for (_, fault), count in self._seen.items())

    def _keep(self, devices: Sequence[DeviceReading]) -> None:
        slim = [msgspec.structs.replace(device, traffic={}) if device.traffic else device for device in devices]
        self._readings = {device.device: _kept(self._readings.get(device.device, ()), device) for device in slim}


def _kept(earlier: Sequence[DeviceReading], device: DeviceReading) -> list[DeviceReading]:
    recent = [*earlier, device] if earlier and device.same_location(earlier[-1]) else [device]
    if device.at - recent[0].at > _HISTORY_SECONDS:
        recent = [old for old in recent if device.at - old.at <= _HISTORY_SECONDS]
    # Drop every second reading, never the oldest: growth is measured from there.
    return recent if len(recent) <= _HISTORY_READINGS else recent[::2]


def find_faults(observed: Observation, policy: Policy) -> list[Finding]:
    """Every finding, by device and fault. A fault whose severity is `off` is not checked."""
    found = []
    for fault, check in _CHECKS.items():
        if policy[fault].severity == OFF:
            continue
        for device, message in check(observed, policy):
            found.append(Finding(device, fault, message, policy[fault].severity))
    found += [
        Finding(device.device, fault, message, policy[fault].severity)
        for device in observed.devices
        for fault, message in device.known_faults
        if policy[fault].severity != OFF
        and not (fault is FaultKind.LINK_DOWN and _is_coming_up(observed, device, policy))
    ]
    return sorted(found, key=lambda finding: (finding.device, finding.fault))


def _is_coming_up(observed: Observation, device: DeviceReading, policy: Policy) -> bool:
    """Whether a link that the driver moved may still find its carrier: real links train for seconds."""
    here = observed.comparable(device)
    if device.moves == 0 or any(not _has_no_carrier(old) for old in here):
        return False
    return not here or device.at - here[0].at < policy[FaultKind.LINK_DOWN].window_seconds


def _has_no_carrier(device: DeviceReading) -> bool:
    return any(fault is FaultKind.LINK_DOWN for fault, _ in device.known_faults)


_Check = Callable[[Observation, Policy], Iterator[tuple[str, str]]]
"""Yields the device and the message of each fault."""


def _flapping(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    limit = policy[FaultKind.LINK_FLAPPING]
    for device in observed.devices:
        recent = [old for old in observed.comparable(device) if device.at - old.at <= limit.window_seconds]
        if device.carrier_changes is None or not recent or recent[0].carrier_changes is None:
            continue
        changes = device.carrier_changes - recent[0].carrier_changes
        if changes >= limit.changes:
            yield device.device, f"the carrier changed {changes} times in {_duration(device.at - recent[0].at)}"


def _slow(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    for peers in observed.peers():
        usual = _majority(peers, lambda d: d.speed_mbps)
        for device in peers:
            from_shape = observed.expected.speed_mbps.get(device.device)
            expected = from_shape or usual
            if expected is not None and device.speed_mbps is not None and 0 < device.speed_mbps < expected:
                source = "the machine shape has" if from_shape else "its peers run at"
                yield device.device, f"runs at {device.speed_mbps} Mb/s, {source} {expected} Mb/s"


def _pcie(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    for device in observed.devices:
        if device.pcie and device.pcie_max and device.pcie.is_below(device.pcie_max):
            yield device.device, f"PCIe link at {device.pcie}, device and slot support {device.pcie_max}"


def _errors(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    limits = policy[FaultKind.PORT_ERRORS]
    for device in observed.devices:
        if _has_no_carrier(device):
            continue  # link-down is a fault of its own and increments link_downed
        earlier = observed.comparable(device)
        for name, most, window in (
            *((name, most, _HOUR) for name, most in limits.fatal.items()),
            *((name, most, _MINUTE) for name, most in limits.per_minute.items()),
        ):
            grown = _growth(device, earlier, name, window)
            if grown is not None and grown >= most:
                yield device.device, f"{name} grew by {grown} within {_duration(window)} (limit {most})"
                break


def _growth(device: DeviceReading, earlier: Sequence[DeviceReading], counter: str, window: float) -> int | None:
    """Growth of a counter within the window; None for a counter that was reset."""
    base = next((old for old in earlier if device.at - old.at <= window and counter in old.counters), None)
    if base is None or counter not in device.counters:
        return None
    grown = device.counters[counter] - base.counters[counter]
    return grown if grown >= 0 else None


def _mtu(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    # A claim may set any MTU, so only devices of the same claim are compared.
    for peers in observed.peers(same=lambda device: device.claim):
        usual = _majority(peers, lambda d: d.mtu)
        for device in peers:
            if device.mtu is not None and usual is not None and device.mtu != usual:
                yield device.device, f"MTU {device.mtu}, its peers have {usual}"


def _gid(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    for device in observed.devices:
        # Without a carrier IPv6 addresses stay tentative and have no GID.
        if device.has_gid is False and device.has_address and device.is_up and not _has_no_carrier(device):
            yield device.device, f"{device.rdma_device} has no RoCE v2 GID for any address of {device.interface}"


def _firmware(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    for peers in observed.peers():
        usual = _majority(peers, lambda d: d.firmware or None)
        for device in peers:
            if device.firmware and usual is not None and device.firmware != usual:
                yield device.device, f"firmware {device.firmware}, its peers have {usual}"


def _missing(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    expected = observed.expected.nics
    if expected is not None and len(observed.devices) < expected:
        yield "", f"{len(observed.devices)} NICs, the machine shape has {expected}"


def _gpudirect(observed: Observation, policy: Policy) -> Iterator[tuple[str, str]]:
    for device in observed.devices:
        if device.gpudirect_obstacle:
            yield device.device, device.gpudirect_obstacle


def _majority(devices: Sequence[DeviceReading], value_of: Callable[[DeviceReading], T | None]) -> T | None:
    """The value that more than half of the devices have."""
    values = Counter(value for device in devices if (value := value_of(device)) is not None)
    if not values:
        return None
    value, count = values.most_common(1)[0]
    return value if count * 2 > values.total() else None


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


_CHECKS: Mapping[FaultKind, _Check] = {
    FaultKind.LINK_FLAPPING: _flapping,
    FaultKind.SLOW_LINK: _slow,
    FaultKind.PCIE_DEGRADED: _pcie,
    FaultKind.PORT_ERRORS: _errors,
    FaultKind.CARD_MISSING: _missing,
    FaultKind.MTU_MISMATCH: _mtu,
    FaultKind.GID_MISSING: _gid,
    FaultKind.FIRMWARE_MISMATCH: _firmware,
    FaultKind.NO_GPUDIRECT: _gpudirect,
}
