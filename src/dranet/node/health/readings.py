"""The state of a device at one moment, read from sysfs or from the ResourceSlices of its node.

A value is None where the kernel does not report it: virtual functions and virtual machines hide PCIe links, and a link
that is down has no speed. A check that needs such a value reports nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from dranet.core import attributes
from dranet.core.device import Device, FaultKind
from dranet.core.names import DRIVER_NAME
from dranet.core.quantity import QuantityError, parse_quantity
from dranet.linux.pci import LinkState


class DeviceReading(msgspec.Struct, frozen=True):
    """One device at one moment."""

    device: str
    at: float
    """Monotonic seconds: counter differences need a clock that is never set back."""
    model: str = ""
    """PCI vendor and device ID. Devices of one model are peers."""
    claim: str = ""
    """UID of the claim that holds the device; empty on the host. Another claim may set another MTU."""
    moves: int = 0
    """Moves into or out of a pod that the driver began and finished: odd during a move, which takes the link down."""
    known_faults: tuple[tuple[FaultKind, str], ...] = ()
    """Faults the reader is certain of, with their messages: no carrier, no active port, no driver."""
    interface: str = ""
    is_up: bool = False
    speed_mbps: int | None = None
    mtu: int | None = None
    carrier_changes: int | None = None
    pcie: LinkState | None = None
    pcie_max: LinkState | None = None
    """The most that device and slot support together."""
    rdma_device: str = ""
    firmware: str = ""
    has_address: bool = False
    has_gid: bool | None = None
    """None where GIDs do not depend on addresses (InfiniBand), or where the table cannot be read."""
    counters: Mapping[str, int] = msgspec.field(default_factory=dict)
    traffic: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Bytes, drops and congestion of a claimed device: published as metrics, never checked."""
    gpudirect_obstacle: str = ""
    """Why the device cannot access the memory of the machine's GPUs directly."""

    def same_location(self, other: DeviceReading) -> bool:
        """Whether the device has neither moved nor changed its claim between the two readings."""
        return (self.claim, self.moves) == (other.claim, other.moves)


def unreported_values(reading: DeviceReading) -> list[str]:
    """Values that the kernel does not report, so that no check covers them."""
    reported = {
        "speed": reading.speed_mbps is not None,
        "PCIe link": reading.pcie is not None and reading.pcie_max is not None,
        "MTU": reading.mtu is not None,
        "carrier": reading.carrier_changes is not None,
        "firmware": bool(reading.firmware) or not reading.rdma_device,
        "GIDs": reading.has_gid is not None or not reading.rdma_device,
        "error counters": bool(reading.counters) or not reading.rdma_device,
    }
    return [name for name, known in reported.items() if not known]


def devices_by_node(slices: Iterable[Mapping[str, Any]]) -> dict[str, list[Device]]:
    """The devices of each node, of the newest generation of its pool."""
    newest: dict[str, int] = {}
    found: dict[str, list[Device]] = {}
    for one in slices:
        spec = one["spec"]
        node, generation = spec.get("nodeName") or spec["pool"]["name"], spec["pool"].get("generation", 0)
        if generation > newest.get(node, -1):
            newest[node], found[node] = generation, []
        if generation == newest[node]:
            found[node] += [Device.from_api(device) for device in spec.get("devices") or ()]
    return dict(sorted(found.items()))


def published_readings(devices: Iterable[Device]) -> list[DeviceReading]:
    """Readings of the PCI and RDMA devices in slices: link, speed, MTU, and the taints that the node's driver set.

    A claimed device is published as it was when its claim was prepared.
    """
    return [_published_reading(device) for device in devices if _is_nic(device)]


def published_pci_addresses(devices: Iterable[Device]) -> dict[str, str]:
    """PCI addresses by device name."""
    return {device.name: str(device.attributes.get(attributes.PCI_ADDRESS, "")) for device in devices}


def _is_nic(device: Device) -> bool:
    return attributes.PCI_ADDRESS in device.attributes or device.attributes.get(attributes.RDMA) is True


def _published_reading(device: Device) -> DeviceReading:
    values = device.attributes
    mtu = values.get(attributes.MTU)
    return DeviceReading(
        device=device.name,
        at=0.0,
        model=f"{values.get(attributes.PCI_VENDOR, '')} {values.get(attributes.PCI_DEVICE, '')}".strip(),
        known_faults=tuple(_tainted_faults(device)),
        interface=str(values.get(attributes.IF_NAME, "")),
        speed_mbps=_megabits(device.capacity.get(attributes.LINK_SPEED, "")),
        mtu=mtu if isinstance(mtu, int) else None,
    )


def _tainted_faults(device: Device) -> Iterator[tuple[FaultKind, str]]:
    for taint in device.taints:
        domain, _, name = taint.key.partition("/")
        if domain == DRIVER_NAME and name in FaultKind.__members__.values():
            yield FaultKind(name), f"the driver on the node set this taint ({taint.effect})"


def _megabits(quantity: str) -> int | None:
    try:
        return round(parse_quantity(quantity).value / 10**6) or None
    except QuantityError:
        return None
