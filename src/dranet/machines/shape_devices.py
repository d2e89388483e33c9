"""What a node of a shape publishes: its links, its devices and its ResourceSlices.

Several nodes of one shape differ by an index, from which addresses, MACs and GPU UUIDs are derived: no two nodes share
them, and the same index always gives the same node.
"""

from __future__ import annotations

import hashlib
import ipaddress
from typing import Any

import msgspec

from dranet.core import attributes as attr
from dranet.core.device import Device, Version
from dranet.core.errors import InvalidInput
from dranet.core.names import pci_device_name
from dranet.core.pci import PciAddress
from dranet.core.slices import resource_slices
from dranet.machines.shape import Gpu, Nic, Shape, load_shape, pcie_root


class ShapeLink(msgspec.Struct, frozen=True):
    """A network interface to create in a namespace that stands for the machine."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[str, ...]
    pci: PciAddress
    rdma: str
    """The RDMA device it belongs to, or an empty string."""


def shape_links(shape: Shape, index: int = 0) -> list[ShapeLink]:
    """The interfaces of the ``index``-th node of this shape."""
    return [
        ShapeLink(n.interface, node_mac(n.mac, index), shape.nic_kind(n).mtu, node_addresses(n, index), n.pci, n.rdma)
        for n in shape.nics
        if n.interface
    ]


def nic_devices(shape: Shape, index: int = 0) -> list[Device]:
    """What `dra.net` publishes there, by NUMA node, PCIe root and PCI address."""
    ordered = sorted(
        shape.nics, key=lambda n: (n.numa if n.numa is not None else 1 << 30, pcie_root(n.path) or "~", n.pci)
    )
    return [_nic_device(shape, nic, index) for nic in ordered]


def gpu_devices(shape: Shape, index: int = 0) -> list[Device]:
    """What the GPU driver publishes there."""
    return [_gpu_device(shape, gpu, index) for gpu in shape.gpus]


def shape_slices(shape: Shape, node: str, index: int = 0) -> list[dict[str, Any]]:
    """All ResourceSlices of one node of this shape: first NICs, then GPUs, one pool for each driver."""
    slices = resource_slices(nic_devices(shape, index), node=node)
    drivers = sorted({shape.gpu_kind(gpu).driver for gpu in shape.gpus})
    for driver in drivers:
        names = {gpu.name for gpu in shape.gpus if shape.gpu_kind(gpu).driver == driver}
        slices += resource_slices([d for d in gpu_devices(shape, index) if d.name in names], node=node, driver=driver)
    return slices


def expand_shape_specs(specs: list[str]) -> list[tuple[str, Shape, int]]:
    """``["a4-highgpu-8g=2"]`` as node names, shapes and indexes; a bare name means one node."""
    nodes: list[tuple[str, Shape, int]] = []
    used: dict[str, int] = {}
    for spec in specs:
        name, equals, count = spec.partition("=")
        if equals and not (count.isascii() and count.isdigit() and 0 < int(count) <= 100_000):
            raise InvalidInput(f"--shape {spec}: {count!r} is not a number of nodes; write NAME=COUNT, as in {name}=2")
        shape = load_shape(name)
        first = used.get(shape.name, 0)
        used[shape.name] = first + int(count or 1)
        nodes += [(f"{shape.name}-{i}", shape, i) for i in range(first, used[shape.name])]
    return nodes


def _nic_device(shape: Shape, nic: Nic, index: int) -> Device:
    kind = shape.nic_kind(nic)
    values: dict[str, Any] = {
        attr.PCI_ADDRESS: str(nic.pci),
        attr.PCI_BUS_ID: str(nic.pci),
        attr.PCI_VENDOR: kind.vendor,
        attr.PCI_DEVICE: kind.product,
        attr.PCI_SUBSYSTEM: kind.subsystem_id,
        attr.RDMA: bool(nic.rdma),
        **_values(shape.cloud_attributes),
    }
    if nic.rdma:
        values |= {attr.RDMA_DEVICE: nic.rdma, attr.IB_ONLY: not nic.interface}
    if nic.numa is not None and nic.numa >= 0:
        values |= {attr.NUMA_NODE: nic.numa, attr.STANDARD_NUMA_NODE: nic.numa}
    if root := pcie_root(nic.path):
        values[attr.PCIE_ROOT] = root
    if nic.rail:
        values[attr.RAIL] = nic.rail
    if nic.interface:
        values |= _link_attributes(shape, nic, index)
    capacity = {attr.LINK_SPEED: f"{kind.speed_gbit}G"} if kind.speed_gbit else {}
    return Device(name=pci_device_name(nic.pci), attributes=values, capacity=capacity)


def _link_attributes(shape: Shape, nic: Nic, index: int) -> dict[str, Any]:
    kind = shape.nic_kind(nic)
    values: dict[str, Any] = {
        attr.IF_NAME: nic.interface,
        attr.MAC: node_mac(nic.mac, index),
        attr.MTU: kind.mtu,
        attr.ENCAPSULATION: kind.link_layer,
        attr.ALIAS: "",
        attr.STATE: "up",
        attr.TYPE: "device",
        attr.EBPF: False,
        attr.SRIOV: False,
        attr.VIRTUAL: False,
    }
    for name, version in ((attr.IPV4, 4), (attr.IPV6, 6)):
        own = sorted(a for a in node_addresses(nic, index) if ipaddress.ip_interface(a).version == version)
        if own:
            values[name] = ",".join(own)
    return values


def _gpu_device(shape: Shape, gpu: Gpu, index: int) -> Device:
    kind = shape.gpu_kind(gpu)
    values = _values(kind.attributes) | _values(gpu.attributes)
    if kind.driver == "gpu.amd.com":  # publishes neither the standard address attribute nor a UUID
        values["pciAddr"] = str(gpu.pci)
    else:
        values |= {"uuid": _uuid(shape, gpu, index), attr.PCI_BUS_ID: str(gpu.pci)}
    if root := pcie_root(gpu.path):
        values[attr.PCIE_ROOT] = root
    return Device(name=gpu.name, attributes=values, capacity={"memory": kind.memory} if kind.memory else {})


def _values(raw: dict[str, Any]) -> dict[str, Any]:
    """TOML has neither versions nor tuples: ``{ version = "1.2.3" }`` stands for the one, a list for the other."""
    return {key: _value(value) for key, value in raw.items()}


def _value(raw: Any) -> Any:
    if isinstance(raw, dict) and "version" in raw:
        return Version(raw["version"])
    return tuple(raw) if isinstance(raw, list) else raw


def _uuid(shape: Shape, gpu: Gpu, index: int) -> str:
    if gpu.uuid and index == 0:
        return gpu.uuid
    digits = hashlib.sha256(f"{shape.name}/{gpu.name}/{index}".encode()).hexdigest()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def node_mac(mac: str, index: int) -> str:
    """The MAC of the same NIC on another node: the lower five bytes grow by 2**16 for each node."""
    if not mac or index == 0:
        return mac
    first, *rest = mac.split(":")
    lower = (int("".join(rest), 16) + (index << 16)) % (1 << 40)
    return ":".join([first, *(f"{lower:010x}"[i : i + 2] for i in range(0, 10, 2))])


def node_addresses(nic: Nic, index: int) -> tuple[str, ...]:
    """The NIC's addresses on the ``index``-th node, with prefix length."""
    interfaces = (ipaddress.ip_interface(text) for text in nic.addresses)
    return tuple(f"{i.ip + index}/{i.network.prefixlen}" for i in interfaces)
