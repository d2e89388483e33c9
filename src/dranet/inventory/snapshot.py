"""What one look at the node found: values only.

``Place`` has three values on purpose. A card whose netdev was moved into a pod has no netdev here either, and taking
that for "has none" makes an RDMA-only device of it, which is how pods lose their cards.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from dranet.inventory.cloud.provider import Identity
from dranet.model.device import Device
from dranet.model.faults import FaultKind
from dranet.model.pci import PciAddress


class Place(enum.Enum):
    """Where a device's netdev is."""

    HERE = "here"
    """In the node's own network namespace."""
    ELSEWHERE = "elsewhere"
    """In another namespace, usually a pod's."""
    NONE = "none"
    """The device has no netdev, or none that we move (see ``--move-ib-interfaces``)."""


class Netdev(msgspec.Struct, frozen=True, kw_only=True):
    """A device's network interface. Name and index are the last known ones where it is elsewhere."""

    place: Place
    name: str = ""
    index: int = 0

    @property
    def is_here(self) -> bool:
        return self.place is Place.HERE


class Fault(msgspec.Struct, frozen=True):
    """One reason why a device cannot serve now, in words."""

    kind: FaultKind
    detail: str


class NodeDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of this node: what is published about it, and what only the node itself needs to know."""

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
    """Which virtual function of `pf` it is, for one that the driver makes itself and that may not be there yet."""
    gateway6: str = ""
    insisted: bool = False
    """The node's network is built of it, and the operator offers it all the same."""
    faults: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def rdma_only(self) -> bool:
        """An RDMA device that has no netdev at all: only its character devices go into a pod."""
        return self.rdma_device is not None and self.netdev.place is Place.NONE

    @property
    def identity(self) -> Identity:
        """How cloud providers may recognise the device."""
        return Identity(
            device=self.name,
            interface=self.netdev.name if self.netdev.is_here else "",
            mac=str(self.device.attributes.get("dra.net/mac", "")),
            pci=str(self.pci or ""),
            driver=self.kernel_driver,
            link_layer=str(self.device.attributes.get("dra.net/encapsulation", "")),
            rdma=self.rdma_device or "",
            gateway6=self.gateway6,
        )

    @property
    def order(self) -> tuple[object, ...]:
        """Neighbours stand together and unknown NUMA nodes last, since first-fit takes devices in this order."""
        numa = (self.numa_node is None, self.numa_node or 0)
        # A virtual function has its own address only while it is there, and its place in the order all the time.
        pci, number = (self.pci, 0) if self.vf is None else (self.pf, self.vf + 1)
        return (*numa, self.pcie_root or "~", pci is None, pci or PciAddress(0, 0, 0, 0), number, self.name)

    def to_record(self) -> dict[str, Any]:
        """As JSON-able values, for keeping on disk while the device is in use."""
        record: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, device=Device(name=self.name)))
        return {**record, "device": self.device.to_api()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> NodeDevice:
        """The inverse of :meth:`to_record`."""
        plain = msgspec.convert({**record, "device": {"name": ""}}, cls)
        return msgspec.structs.replace(plain, device=Device.from_api(record["device"]))


class Skipped(msgspec.Struct, frozen=True, order=True):
    """Something that was seen and is not published, with the reason in words."""

    name: str
    reason: str
    device: str = ""
    """The name it would have had as a device."""


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or accelerator of the node. Its own driver publishes it; we only know how near it is."""

    pci: PciAddress
    vendor: str
    """PCI vendor ID, four hex digits."""
    product: str
    """PCI device ID, four hex digits."""
    numa_node: int | None = None
    pcie_root: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look. Two equal snapshots describe the same node, byte for byte."""

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

    def why_not(self, name: str) -> str:
        """Why there is no device of that name; empty where nothing of the kind was seen."""
        return next((skipped.reason for skipped in self.skipped if skipped.device == name), "")
