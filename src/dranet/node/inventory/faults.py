"""Faults that a scan of the host shows. Only certain ones: a wrong fault takes a good device out of service.

A link that is administratively down is down by choice, and an RDMA port over Ethernet follows its link: neither is a
fault. Virtual links never have faults: their carrier depends on what is connected to them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dranet.core.device import FaultKind
from dranet.linux.hardware import PciFunction, SysfsRdmaDevice
from dranet.node.inventory.nics import Port
from dranet.node.inventory.snapshot import Fault, NetdevLocation

_DOWN_STATES = frozenset({"down", "lower-layer-down", "lowerlayerdown", "not-present", "notpresent"})
"""Operational states without a carrier, as netlink and as sysfs spell them."""


def link_down(interface: str, operstate: str, where: str = "") -> Iterable[Fault]:
    """The fault of a link that is administratively up; the caller read the state from netlink or from sysfs."""
    if operstate in _DOWN_STATES:
        yield Fault(FaultKind.LINK_DOWN, f"{interface} is up {where}but has no carrier (state {operstate})")


def port_faults(port: Port) -> Iterable[Fault]:
    """A physical link on the host that is administratively up and has no carrier."""
    if not port.is_virtual and port.link.is_up:
        yield from link_down(port.link.name, port.link.operstate)


def rdma_faults(device: SysfsRdmaDevice | None) -> Iterable[Fault]:
    """An InfiniBand device without an active port."""
    ports = [port for port in device.ports if port.state] if device is not None else []
    if device is None or not ports or any(port.link_layer == "Ethernet" for port in ports):
        return
    if not any(port.state.endswith(("ACTIVE", "ACTIVE_DEFER")) for port in ports):
        states = ", ".join(f"port {port.number} is {port.state.partition(': ')[2] or port.state}" for port in ports)
        yield Fault(FaultKind.RDMA_PORT_DOWN, f"{device.name}: {states}")


def function_faults(function: PciFunction | None, unusable_reason: str | None) -> Iterable[Fault]:
    """A claimed device that left the PCI bus or lost its driver."""
    if function is None:
        yield Fault(FaultKind.DEVICE_GONE, "the device is no longer on the PCI bus")
    elif unusable_reason is not None:
        yield Fault(FaultKind.DRIVER_UNBOUND, unusable_reason)


def location_faults(location: NetdevLocation) -> Iterable[Fault]:
    """An unclaimed netdev in another network namespace."""
    if location is NetdevLocation.OTHER_NETNS:
        yield Fault(
            FaultKind.NETDEV_ELSEWHERE,
            "its network interface is in another network namespace; this driver did not move it",
        )
