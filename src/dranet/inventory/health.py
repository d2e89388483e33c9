"""Why a device cannot serve now. Only what is certain counts: a wrong fault takes a good card out of service.

A link that nobody switched on is down by choice, and an RDMA port over Ethernet follows its link, so neither is a
fault. Virtual links are never at fault: whether they have a carrier depends on what somebody connects to them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dranet.inventory.cards import Port
from dranet.inventory.snapshot import Fault, Place
from dranet.kernel.hardware import PciFunction, SysfsRdmaDevice
from dranet.model.faults import FaultKind

_BROKEN_STATES = frozenset({"down", "lower-layer-down", "not-present"})


def link_faults(port: Port) -> Iterable[Fault]:
    """A link that is switched on and has no carrier."""
    if not port.is_virtual and port.link.is_up and port.link.operstate in _BROKEN_STATES:
        yield Fault(FaultKind.LINK_DOWN, f"{port.link.name} is switched on, but its state is {port.link.operstate}")


def rdma_faults(device: SysfsRdmaDevice | None) -> Iterable[Fault]:
    """An InfiniBand device none of whose ports is active."""
    ports = [port for port in device.ports if port.state] if device is not None else []
    if device is None or not ports or any(port.link_layer == "Ethernet" for port in ports):
        return
    if not any(port.state.endswith(("ACTIVE", "ACTIVE_DEFER")) for port in ports):
        states = ", ".join(f"port {port.number} is {port.state.partition(': ')[2] or port.state}" for port in ports)
        yield Fault(FaultKind.RDMA_PORT_DOWN, f"{device.name}: {states}")


def function_faults(function: PciFunction | None, why_unusable: str | None) -> Iterable[Fault]:
    """A card in use that left the bus or lost its driver."""
    if function is None:
        yield Fault(FaultKind.DEVICE_GONE, "the card is not on the PCI bus any more")
    elif why_unusable is not None:
        yield Fault(FaultKind.DRIVER_UNBOUND, why_unusable)


def place_faults(place: Place) -> Iterable[Fault]:
    """A netdev that somebody else moved away."""
    if place is Place.ELSEWHERE:
        yield Fault(FaultKind.NETDEV_ELSEWHERE, "its network interface is in another namespace, put there by others")
