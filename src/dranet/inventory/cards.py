"""Which netdev and which RDMA device belong to which PCI function.

What makes this hard: a function may carry several netdevs (ports, sub-functions, switch representors), a netdev may
live in another namespace where we cannot see it, and InfiniBand cards may have none at all. sysfs shows a trace of a
netdev that is elsewhere: its function keeps an empty ``net`` folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dranet.inventory.snapshot import Place
from dranet.kernel.hardware import NetDevice, PciFunction, SysfsRdmaDevice
from dranet.kernel.links import Link
from dranet.kernel.rdma import RdmaPort
from dranet.kernel.sysfs import Sysfs

NETWORK_CLASS = "02"
INFINIBAND_CLASS = "0207"
HIDING_DRIVERS = frozenset({"vfio-pci", "uio_pci_generic", "igb_uio", "pci-stub"})
"""Drivers that give a card to a program or a virtual machine: the kernel's network stack does not see it."""

_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:vf|sf)\d+")


class Port(msgspec.Struct, frozen=True, gc=False):
    """A link together with the place where it hangs; sysfs may not show it (any more)."""

    link: Link
    netdev: NetDevice | None

    @property
    def is_virtual(self) -> bool:
        return self.link.kind != "device" if self.netdev is None else self.netdev.virtual


def unusable(function: PciFunction, *, has_rdma: bool = False) -> str | None:
    """Why a network function cannot be given to a pod, in words; None where it can."""
    if function.driver is None and not has_rdma:  # an RDMA device is the proof of a driver
        return "no kernel driver is bound to it"
    if function.driver in HIDING_DRIVERS:
        return f"it is bound to {function.driver}, which hides it from the kernel's network stack"
    return None


def primary_first(ports: Sequence[Port], sysfs: Sysfs) -> tuple[list[Port], list[Port]]:
    """The ports of one function, its own netdev first and sub-functions after it; and the switch representors."""
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


def speaks_infiniband(function: PciFunction, device: SysfsRdmaDevice | None) -> bool:
    """What the ports say counts; the PCI class only where they say nothing, since cards can speak Ethernet instead."""
    layers = [port.link_layer for port in device.ports if port.link_layer] if device is not None else []
    return "InfiniBand" in layers if layers else device is not None and function.class_code.startswith(INFINIBAND_CLASS)


def place_without_link(function: PciFunction, sysfs: Sysfs, *, infiniband: bool, move_ib: bool) -> Place:
    """Where the netdev of a function is, none of whose netdevs is usable here."""
    if infiniband and not move_ib:
        return Place.NONE
    has_folder = bool(function.netdevs) or sysfs.exists(function.path, "net")
    return Place.ELSEWHERE if has_folder else Place.NONE


def nothing_to_give(function: PciFunction, sysfs: Sysfs) -> str:
    """Why a function with neither netdev nor RDMA device is not offered.

    On a node that is itself a container, the virtual card of the machine around it shows up with its netdev out of
    reach; unlike a real card in a pod it will never come here, so it is not offered either.
    """
    virtio = [child for child in sysfs.names(function.path) if child.startswith("virtio")]
    if any(sysfs.exists(function.path, child, "net") for child in virtio):
        return "its network interface is in the namespace of the machine around this node"
    return "it has neither a network interface nor an RDMA device"


class RdmaFinder:
    """Finds the RDMA device of a link or of a function.

    RDMA netlink knows the link of every port, but only of links in this namespace and only on a kernel with RDMA;
    where it says nothing, position in the device tree decides. Names in GID tables come last: they may be those of a
    link in some pod, so they count only for software devices that have no position.
    """

    def __init__(self, devices: Iterable[SysfsRdmaDevice], ports: Iterable[RdmaPort], names: Mapping[str, str]) -> None:
        self._by_function: dict[str, list[SysfsRdmaDevice]] = {}
        for device in devices:
            self._by_function.setdefault(device.pci_address or "", []).append(device)
        self._by_link = {port.netdev_index: port.device for port in ports if port.netdev_index is not None}
        self._by_interface = names
        self._are_there_any = bool(self._by_function or self._by_link or names)

    def for_port(self, port: Port) -> str | None:
        """The RDMA device of a link that is here."""
        if not self._are_there_any:
            return None
        named = self._by_link.get(port.link.index)
        if named is not None:
            return named
        return self._by_position(port) or self._by_interface.get(port.link.name)

    def for_function(self, function: PciFunction) -> str | None:
        """The RDMA device of a function whose link is not here; that of a sub-function only if it has no other."""
        mine = self._by_function.get(function.address, [])
        return min((d.name for d in mine if _parent(d.path) == function.path), default=mine[0].name if mine else None)

    def _by_position(self, port: Port) -> str | None:
        if port.netdev is None or port.netdev.pci_address is None:
            return None
        mine = self._by_function.get(port.netdev.pci_address, [])
        parent = _parent(port.netdev.path)
        beside = next((device.name for device in mine if _parent(device.path) == parent), None)
        direct = parent.endswith(port.netdev.pci_address) or not port.netdev.path.startswith("devices/")
        of_function = mine[0].name if mine and direct else None
        return _by_guid(mine, port.link) or beside or of_function


def _by_guid(devices: Iterable[SysfsRdmaDevice], link: Link) -> str | None:
    """An IPoIB address ends with the GUID of its RDMA device."""
    if link.encapsulation != "infiniband":
        return None
    guid = link.mac.replace(":", "")[-16:]
    return next((device.name for device in devices if device.node_guid.replace(":", "") == guid), None)


def _parent(path: str) -> str:
    """The device that a netdev or RDMA device hangs on: ``devices/.../0000:8a:00.0/net/eth1`` without the last two."""
    return path.rsplit("/", 2)[0]
