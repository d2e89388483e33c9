"""Which netdev and which RDMA device belong to which PCI function.

A function may have several netdevs (ports, sub-functions, switch representors), its netdev may be in another network
namespace, and InfiniBand functions may have none. A netdev in another namespace leaves a trace in sysfs: the function
keeps an empty ``net`` folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dranet.linux.hardware import NetDevice, PciFunction, SysfsRdmaDevice
from dranet.linux.links import Link
from dranet.linux.rdma import RdmaPort
from dranet.linux.sysfs import Sysfs
from dranet.node.inventory.snapshot import NetdevLocation

NETWORK_CLASS = "02"
_INFINIBAND_CLASS = "0207"
_HIDING_DRIVERS = frozenset({"vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub"})
"""Drivers that hand a function to a program or a virtual machine: it has no netdev then."""

_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")


class Port(msgspec.Struct, frozen=True, gc=False):
    """A link and its netdev in sysfs, which may be missing or gone."""

    link: Link
    netdev: NetDevice | None

    @property
    def is_virtual(self) -> bool:
        return self.link.kind != "device" if self.netdev is None else self.netdev.virtual


def unusable_reason(function: PciFunction, *, has_rdma: bool = False) -> str | None:
    """Why a network function cannot be offered; None where it can."""
    if function.driver is None and not has_rdma:  # an RDMA device proves that there is a driver
        return "no kernel driver is bound to it"
    if function.driver in _HIDING_DRIVERS:
        return f"it is bound to {function.driver}, which hides it from the kernel's network stack"
    return None


def primary_port_first(ports: Sequence[Port], sysfs: Sysfs) -> tuple[list[Port], list[Port]]:
    """The ports of one function, its own netdev before sub-functions; and its switch representors."""
    if len(ports) <= 1:
        return list(ports), []
    shown = {port: _port_name(port, sysfs) for port in ports}
    real = [port for port in ports if not _REPRESENTOR.fullmatch(shown[port])]
    return sorted(real, key=lambda port: _rank(port, sysfs)), [port for port in ports if port not in real]


def _port_name(port: Port, sysfs: Sysfs) -> str:
    return "" if port.netdev is None else sysfs.read(port.netdev.path, "phys_port_name") or ""


def _rank(port: Port, sysfs: Sysfs) -> tuple[int, int, int]:
    if port.netdev is None:
        return (99, 0, port.link.index)
    return (port.netdev.path.count("/"), sysfs.read_number(port.netdev.path, "dev_port") or 0, port.link.index)


def is_infiniband(function: PciFunction, device: SysfsRdmaDevice | None) -> bool:
    """By its ports. The PCI class counts only where they report no link layer: such a NIC may run Ethernet."""
    layers = [port.link_layer for port in device.ports if port.link_layer] if device is not None else []
    return (
        "InfiniBand" in layers if layers else device is not None and function.class_code.startswith(_INFINIBAND_CLASS)
    )


def location_without_link(function: PciFunction, sysfs: Sysfs, *, infiniband: bool, move_ib: bool) -> NetdevLocation:
    """Where the netdev is, for a function without a usable netdev on the host."""
    if infiniband and not move_ib:
        return NetdevLocation.NONE
    has_folder = bool(function.netdevs) or sysfs.exists(function.path, "net")
    return NetdevLocation.OTHER_NETNS if has_folder else NetdevLocation.NONE


def no_interface_reason(function: PciFunction, sysfs: Sysfs) -> str:
    """Why a function with neither netdev nor RDMA device is not offered.

    On a node that is a container, the virtio NIC of the machine that runs it shows up without its netdev. Unlike the
    netdev of a device in a pod, that one never returns.
    """
    virtio = [child for child in sysfs.names(function.path) if child.startswith("virtio")]
    if any(sysfs.exists(function.path, child, "net") for child in virtio):
        return "its network interface is in the network namespace of the machine that runs this node"
    return "it has neither a network interface nor an RDMA device"


class RdmaFinder:
    """Finds the RDMA device of a link or of a function.

    RDMA netlink reports the link of every port, but only for links in this namespace and on a kernel with RDMA.
    Otherwise the position in the device tree decides. Names in GID tables come last: they may be those of a link in a
    pod, so they count only for software devices, which have no position.
    """

    def __init__(self, devices: Iterable[SysfsRdmaDevice], ports: Iterable[RdmaPort], names: Mapping[str, str]) -> None:
        self._by_function: dict[str, list[SysfsRdmaDevice]] = {}
        for device in devices:
            self._by_function.setdefault(device.pci_address or "", []).append(device)
        self._by_link = {port.netdev_index: port.device for port in ports if port.netdev_index is not None}
        self._by_interface = names
        self._has_rdma = bool(self._by_function or self._by_link or names)

    def for_port(self, port: Port) -> str | None:
        """The RDMA device of a link on the host."""
        if not self._has_rdma:
            return None
        named = self._by_link.get(port.link.index)
        if named is not None:
            return named
        return self._by_position(port) or self._by_interface.get(port.link.name)

    def for_function(self, function: PciFunction) -> str | None:
        """The RDMA device of a function without a link on the host; a sub-function's only if there is no other."""
        mine = self._by_function.get(function.address, [])
        return min((d.name for d in mine if _parent(d.path) == function.path), default=mine[0].name if mine else None)

    def _by_position(self, port: Port) -> str | None:
        if port.netdev is None or port.netdev.pci_address is None:
            return None
        mine = self._by_function.get(port.netdev.pci_address, [])
        parent = _parent(port.netdev.path)
        sibling = next((device.name for device in mine if _parent(device.path) == parent), None)
        direct = parent.endswith(port.netdev.pci_address) or not port.netdev.path.startswith("devices/")
        of_function = mine[0].name if mine and direct else None
        return _by_guid(mine, port.link) or sibling or of_function


def _by_guid(devices: Iterable[SysfsRdmaDevice], link: Link) -> str | None:
    """An IPoIB address ends with the GUID of its RDMA device."""
    if link.encapsulation != "infiniband":
        return None
    guid = link.mac.replace(":", "")[-16:]
    return next((device.name for device in devices if device.node_guid.replace(":", "") == guid), None)


def _parent(path: str) -> str:
    """The parent of a netdev or RDMA device: ``devices/.../0000:8a:00.0/net/eth1`` without the last two steps."""
    return path.rsplit("/", 2)[0]
