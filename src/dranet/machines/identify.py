"""Identifies the machine shape of a node from its slices, and the fabric of a NIC.

A machine is identified by the PCI addresses, roots and products it publishes, never by the order or names of its
devices: drivers list GPUs in no fixed order. The fabrics are:

    infiniband   InfiniBand
    roce         RDMA over Ethernet
    gce-roce     RDMA over Ethernet on Google Cloud, with its own plugin (gIB)
    tcpx, tcpxo  Google Cloud's GPUDirect-TCPX and TCPXO: no RDMA device, but direct access to GPU memory
    efa          AWS Elastic Fabric Adapter
    ethernet     a NIC without RDMA
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from dranet.core import attributes as attr
from dranet.core.device import Device
from dranet.core.names import DRIVER_NAME
from dranet.machines.shape import Nic, Shape, load_shape, pcie_root, shape_names

PCI_ADDRESS_ATTRIBUTES = (attr.PCI_BUS_ID, attr.PCI_ADDRESS, "pciAddr", "gpu.amd.com/pciAddr")
"""Attributes in which drivers publish a PCI address: the standard one, ours, AMD's."""
_TCP_MACHINES = {"a3-highgpu-8g": "tcpx", "a3-megagpu-8g": "tcpxo"}
"""Google's machines whose NICs reach GPU memory over TCP, with the plugin of each."""


class _Known(msgspec.Struct, frozen=True):
    """A built-in shape and its identifying values, computed once: there may be thousands of nodes."""

    shape: Shape
    roots: Mapping[str, str | None]
    """By PCI address of every GPU and NIC."""
    products: Mapping[str, str | None]
    """By PCI address of every GPU."""
    names: Mapping[str, str]
    """The cloud's machine type, by attribute."""

    def matches(self, devices: Iterable[tuple[str, Device]]) -> bool:
        """Whether functions, roots and products are the same and the machine type does not contradict."""
        return all(self._has(device, is_gpu(driver, device)) for driver, device in devices)

    def _has(self, device: Device, gpu: bool) -> bool:
        address, values = device_address(device), device.attributes
        if address not in self.roots or values.get(attr.PCIE_ROOT, self.roots[address]) != self.roots[address]:
            return False
        if (address in self.products) != gpu:
            return False
        product = self.products.get(address)
        return values.get("productName", product) == product and all(
            values.get(key, name) == name for key, name in self.names.items()
        )


@cache
def _known_shapes() -> tuple[_Known, ...]:
    return tuple(_known(load_shape(name)) for name in shape_names())


def machine_type_attributes() -> tuple[str, ...]:
    """The attributes with a cloud's machine type."""
    return tuple(sorted({name for known in _known_shapes() for name in known.names}))


def _known(shape: Shape) -> _Known:
    return _Known(
        shape,
        {str(part.pci): pcie_root(part.path) for part in shape.parts},
        {str(gpu.pci): shape.gpu_kind(gpu).attributes.get("productName") for gpu in shape.gpus},
        {key: value for key, value in shape.cloud_attributes.items() if key.endswith(("/machineType", "/vmSize"))},
    )


def identify_shape(devices: list[tuple[str, Device]]) -> Shape | None:
    """The built-in shape with these GPUs and NICs; devices without a PCI address do not count."""
    relevant = [(driver, d) for driver, d in devices if (is_gpu(driver, d) or is_nic(driver, d)) and device_address(d)]
    return next((known.shape for known in _known_shapes() if relevant and known.matches(relevant)), None)


def is_nic(driver: str, device: Device) -> bool:
    """Our own devices, and those of other drivers that publish an RDMA attribute."""
    return driver == DRIVER_NAME or attr.RDMA in device.attributes


def device_address(device: Device) -> str:
    """A published device's PCI address, or an empty string."""
    values = device.attributes
    return next((str(values[name]) for name in PCI_ADDRESS_ATTRIBUTES if values.get(name)), "")


def device_numa(device: Device) -> int | None:
    """A published device's NUMA node; the first where it is a list."""
    numa = device.attributes.get(attr.STANDARD_NUMA_NODE, device.attributes.get(attr.NUMA_NODE))
    if isinstance(numa, tuple):
        numa = next(iter(numa), None)
    return numa if isinstance(numa, int) else None


def is_gpu(driver: str, device: Device) -> bool:
    """By the driver's name, ``gpu.<vendor>``, or the device's type, ``gpu``."""
    return driver.startswith("gpu.") or device.attributes.get("type") == "gpu"


def fabric_of_shape(shape: Shape, nic: Nic) -> str:
    """The fabric of a NIC in a shape."""
    kind = shape.nic_kind(nic)
    machine = str(shape.cloud_attributes.get("gce.dra.net/machineType", ""))
    return _fabric(kind.link_layer, kind.kernel_driver == "efa", machine, bool(nic.rdma))


def fabric_of_device(device: Device) -> str:
    """The fabric of a published NIC; empty if its link layer is unknown."""
    values = device.attributes
    layer = "infiniband" if values.get(attr.IB_ONLY) is True else str(values.get(attr.ENCAPSULATION, ""))
    is_efa = "Elastic Fabric" in str(values.get(attr.PCI_DEVICE, ""))
    if not layer and not is_efa:
        return ""
    machine = values.get("gce.dra.net/machineType") or values.get("gce.dra.net/networkName") or ""
    return _fabric(layer, is_efa, str(machine), values.get(attr.RDMA) is True)


def _fabric(layer: str, is_efa: bool, google_machine: str, rdma: bool) -> str:
    if is_efa:
        return "efa"
    if layer == "infiniband":
        return "infiniband"
    if google_machine:
        return "gce-roce" if rdma else _TCP_MACHINES.get(google_machine, "ethernet")
    return "roce" if rdma else "ethernet"
