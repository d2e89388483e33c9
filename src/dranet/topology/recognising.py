"""Which known machine a node's slices are of, and what every driver's slices say of a device.

A machine is recognised by the PCI addresses, roots and products it publishes, never by the order or the names of its
devices: drivers list GPUs in no fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from dranet.model import attributes as attr
from dranet.model.device import Device
from dranet.model.names import DRIVER_NAME
from dranet.topology.shape import Shape, load_shape, pcie_root, shape_names

ADDRESSES = (attr.PCI_BUS_ID, attr.PCI_ADDRESS, "pciAddr", "gpu.amd.com/pciAddr")
"""Where drivers write a PCI address: the standard name, ours, AMD's."""


class _Known(msgspec.Struct, frozen=True):
    """A built-in shape with what machines are recognised by, worked out once: there may be thousands of nodes."""

    shape: Shape
    roots: Mapping[str, str | None]
    """By PCI address of every GPU and card."""
    products: Mapping[str, str | None]
    """By PCI address of every GPU."""
    names: Mapping[str, str]
    """What the cloud calls the machine, by attribute."""

    def fits(self, devices: Iterable[tuple[str, Device]]) -> bool:
        """Same functions below the same roots, same products, no contradiction in what the cloud calls the machine."""
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


def cloud_names() -> tuple[str, ...]:
    """The attributes by which clouds name their machines."""
    return tuple(sorted({name for known in _known_shapes() for name in known.names}))


def _known(shape: Shape) -> _Known:
    return _Known(
        shape,
        {str(part.pci): pcie_root(part.path) for part in shape.parts},
        {str(gpu.pci): shape.gpu_kind(gpu).attributes.get("productName") for gpu in shape.gpus},
        {key: value for key, value in shape.cloud_attributes.items() if key.endswith(("/machineType", "/vmSize"))},
    )


def recognise(devices: list[tuple[str, Device]]) -> Shape | None:
    """By GPUs and cards on the PCI bus; bridges and other links without a place there are nobody's shape."""
    relevant = [(driver, d) for driver, d in devices if (is_gpu(driver, d) or is_nic(driver, d)) and device_address(d)]
    return next((known.shape for known in _known_shapes() if relevant and known.fits(relevant)), None)


def is_nic(driver: str, device: Device) -> bool:
    """Our own devices, and any other driver's that say they have RDMA."""
    return driver == DRIVER_NAME or attr.RDMA in device.attributes


def device_address(device: Device) -> str:
    """A published device's PCI address, or an empty string."""
    values = device.attributes
    return next((str(values[name]) for name in ADDRESSES if values.get(name)), "")


def device_numa(device: Device) -> int | None:
    """A published device's NUMA node; the first where it is a list."""
    numa = device.attributes.get(attr.STANDARD_NUMA_NODE, device.attributes.get(attr.NUMA_NODE))
    if isinstance(numa, tuple):
        numa = next(iter(numa), None)
    return numa if isinstance(numa, int) else None


def is_gpu(driver: str, device: Device) -> bool:
    """GPU drivers name themselves ``gpu.<vendor>`` or give their devices the type ``gpu``."""
    return driver.startswith("gpu.") or device.attributes.get("type") == "gpu"
