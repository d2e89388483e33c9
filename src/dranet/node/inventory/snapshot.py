"""The result of one scan of the node: values only.

``NetdevLocation`` has three values on purpose. The netdev of a device in a pod is not on the host either; treating
that as "has no netdev" would turn it into an RDMA-only device, and its pod would lose the netdev.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from dranet.core.device import Device, FaultKind
from dranet.core.pci import PciAddress
from dranet.node.inventory.cloud.provider import Identity


class NetdevLocation(enum.Enum):
    """Where a device's netdev is."""

    HOST = "here"
    """In the host network namespace."""
    OTHER_NETNS = "elsewhere"
    """In another network namespace, usually a pod's."""
    NONE = "none"
    """The device has no netdev, or none that the driver moves (see ``--move-ib-interfaces``)."""


class Netdev(msgspec.Struct, frozen=True, kw_only=True):
    """A device's network interface. In another namespace, name and index are the last known ones."""

    location: NetdevLocation = msgspec.field(name="place")
    """Stored as `place`."""
    name: str = ""
    index: int = 0

    @property
    def in_host_netns(self) -> bool:
        return self.location is NetdevLocation.HOST


class Fault(msgspec.Struct, frozen=True):
    """Why a device cannot be used now."""

    kind: FaultKind
    detail: str


class NodeDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of this node: what is published about it, and what only the driver needs."""

    device: Device
    netdev: Netdev
    pci: PciAddress | None = None
    numa_node: int | None = None
    pcie_root: str = ""
    kernel_driver: str = ""
    rdma_device: str | None = None
    is_vf: bool = False
    pf: PciAddress | None = None
    """The physical function that a virtual one belongs to."""
    pf_interface: str = ""
    """The netdev of that physical function, where this namespace can see it."""
    vf: int | None = None
    """Its number among the virtual functions of `pf`, if this driver creates it; it may not exist yet."""
    gateway6: str = ""
    offered_explicitly: bool = msgspec.field(default=False, name="insisted")
    """The node's network depends on it, and the operator offers it explicitly. Stored as `insisted`."""
    faults: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def rdma_only(self) -> bool:
        """An RDMA device without a netdev: only its character devices go into a pod."""
        return self.rdma_device is not None and self.netdev.location is NetdevLocation.NONE

    @property
    def identity(self) -> Identity:
        """By what cloud providers recognise the device."""
        return Identity(
            device=self.name,
            interface=self.netdev.name if self.netdev.in_host_netns else "",
            mac=str(self.device.attributes.get("dra.net/mac", "")),
            pci=str(self.pci or ""),
            driver=self.kernel_driver,
            link_layer=str(self.device.attributes.get("dra.net/encapsulation", "")),
            rdma=self.rdma_device or "",
            gateway6=self.gateway6,
        )

    @property
    def order(self) -> tuple[object, ...]:
        """By NUMA node and PCIe root, unknown NUMA nodes last: the scheduler allocates in this order (first fit)."""
        numa = (self.numa_node is None, self.numa_node or 0)
        # A virtual function has an address only while it exists; its position in the order must not change.
        pci, number = (self.pci, 0) if self.vf is None else (self.pf, self.vf + 1)
        return (*numa, self.pcie_root or "~", pci is None, pci or PciAddress(0, 0, 0, 0), number, self.name)

    def to_record(self) -> dict[str, Any]:
        """As JSON values, stored while the device is claimed."""
        record: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, device=Device(name=self.name)))
        return {**record, "device": self.device.to_api()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> NodeDevice:
        """The inverse of :meth:`to_record`."""
        plain = msgspec.convert({**record, "device": {"name": ""}}, cls)
        return msgspec.structs.replace(plain, device=Device.from_api(record["device"]))


class Skipped(msgspec.Struct, frozen=True, order=True):
    """A link or PCI function that is not published, and why."""

    name: str
    reason: str
    device: str = ""
    """The name it would have had as a device."""


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or accelerator of the node. Its own driver publishes it; this one only knows its position."""

    pci: PciAddress
    vendor: str
    """PCI vendor ID, four hex digits."""
    product: str
    """PCI device ID, four hex digits."""
    numa_node: int | None = None
    pcie_root: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one scan. Equal snapshots publish byte-identical slices."""

    devices: tuple[NodeDevice, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    problems: tuple[str, ...] = ()
    gpus: tuple[Accelerator, ...] = ()

    @property
    def published(self) -> tuple[Device, ...]:
        """What goes into the node's ResourceSlices, in order."""
        return tuple(device.device for device in self.devices)

    def find(self, name: str) -> NodeDevice | None:
        """The device of that name."""
        return next((device for device in self.devices if device.name == name), None)

    def skip_reason(self, name: str) -> str:
        """Why no device of that name is published; empty where nothing of that name was seen."""
        return next((skipped.reason for skipped in self.skipped if skipped.device == name), "")
