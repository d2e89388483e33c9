"""The GPUs and NICs of one node with their positions: the input of distances, matrix and advice.

They come from a shape, which has everything, or from ResourceSlices, which have less. If the PCI addresses and products
in slices are those of a known shape, its positions are used: a GB300 node does not publish the NUMA node of its GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.core import attributes as attr
from dranet.core.device import Device
from dranet.core.names import DRIVER_NAME, pci_device_name
from dranet.machines.distance import Distance, Position, distance
from dranet.machines.identify import (
    PCI_ADDRESS_ATTRIBUTES,
    device_address,
    device_numa,
    fabric_of_device,
    fabric_of_shape,
    identify_shape,
    is_gpu,
    is_nic,
    machine_type_attributes,
)
from dranet.machines.shape import Gpu, Nic, Shape, pcie_root

DeviceId = tuple[str, str]
"""Driver and device name: unique within one node."""

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class MachineDevice(msgspec.Struct, frozen=True):
    """A GPU or NIC of a machine."""

    driver: str
    device: str
    position: Position
    address: str = ""
    """PCI address; empty where the slice does not have it."""
    title: str = ""
    """Its RDMA or interface name: mlx5_0, gpu0rdma0."""
    interface: str = ""
    """A NIC's interface on the host; empty if it has none."""
    rdma: bool = False
    line_gbytes: float = 0.0
    """A NIC's line rate in GB/s; 0 where unknown."""
    staged_gbytes: float = 0.0
    """GB/s through host memory, where measured on this machine; 0 where not."""
    direct_over: Distance = Distance.PHB
    """A NIC accesses GPU memory directly up to this distance."""
    network: str = ""
    """A NIC's fabric (infiniband, roce, gce-roce, efa, tcpxo, ethernet); empty where unknown."""
    product: str = ""
    """A GPU's product name."""
    architecture: str = ""
    nvlinks: int = 0
    """A GPU's links to the NVSwitch."""
    nvlink_gbytes: float = 0.0
    peers: tuple[tuple[str, int], ...] = ()
    """A GPU's direct links: PCI address of the other GPU, and their number."""
    fabric: str = "nvlink"
    """The kind of a GPU's links: nvlink or xgmi."""
    rail: str = ""
    """A NIC's rail; empty where unknown or where rails do not matter."""

    @property
    def id(self) -> DeviceId:
        """Its name in an allocation result."""
        return (self.driver, self.device)


class Machine(msgspec.Struct, frozen=True):
    """The GPUs and NICs of one node, each in the order of nvidia-smi."""

    node: str
    gpus: tuple[MachineDevice, ...]
    nics: tuple[MachineDevice, ...]
    shape: str = ""
    """The name of its shape, if known."""
    cpus: tuple[tuple[int, str], ...] = ()
    """NUMA nodes and their CPU lists, where known."""

    def find(self, device: DeviceId) -> MachineDevice | None:
        """The device in an allocation result, or None if it is neither a GPU nor a NIC."""
        return next((part for part in (*self.gpus, *self.nics) if part.id == device), None)

    def display_name(self, device: DeviceId) -> str:
        """The interface or RDMA name of a device; empty if it equals the device name."""
        part = self.find(device)
        name = (part.interface or part.title) if part else ""
        return "" if name == device[1] else name

    def is_gpu(self, device: DeviceId) -> bool:
        """Whether the device is a GPU of this machine."""
        return any(part.id == device for part in self.gpus)


def matrix_cell(a: MachineDevice, b: MachineDevice) -> str:
    """The matrix cell of two devices as nvidia-smi prints it."""
    if a.id == b.id:
        return "X"
    if links := gpu_links(a, b):
        return "XGMI" if a.fabric == "xgmi" else f"NV{links}"
    return str(distance(a.position, b.position))


def reads_directly(gpu: MachineDevice, nic: MachineDevice) -> bool:
    """Whether the NIC is near enough to access the GPU's memory directly."""
    return distance(gpu.position, nic.position) <= max(nic.direct_over, Distance.PHB)


def gpu_links(a: MachineDevice, b: MachineDevice) -> int:
    """NVLinks (or xGMI links) between two GPUs, directly or through the switch; 0 where there are none."""
    direct = dict(a.peers).get(b.address, 0) or dict(b.peers).get(a.address, 0)
    return direct or min(a.nvlinks, b.nvlinks)


def machine_of_shape(shape: Shape, node: str) -> Machine:
    """A node of this shape; GPUs and NICs in the order of the file."""
    recorded = _recorded_distances(shape)
    return Machine(
        node,
        tuple(_shape_gpu(shape, gpu, recorded.get(str(gpu.pci), ())) for gpu in shape.gpus),
        tuple(_shape_nic(shape, nic, recorded.get(str(nic.pci), ())) for nic in shape.nics),
        shape.name,
        tuple((numa.node, numa.cpus) for numa in shape.numa),
    )


def _recorded_distances(shape: Shape) -> dict[str, tuple[tuple[str, Distance], ...]]:
    """By PCI address, the recorded distances to others."""
    found: dict[str, tuple[tuple[str, Distance], ...]] = {}
    for far, pairs in shape.recorded_distances.items():
        for one, other in (pair for a, b in pairs for pair in ((a, b), (b, a))):
            found[one] = (*found.get(one, ()), (other, Distance[far]))
    return found


MachineCache = dict[bytes, Machine]
"""Machines by the identifying values of their devices."""


def machines_of_slices(slices: Iterable[Mapping[str, Any]], cache: MachineCache | None = None) -> dict[str, Machine]:
    """One machine for each node in the slices, by name. Pass ``cache`` to reuse it between calls."""
    devices: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for raw in slices:
        spec = raw.get("spec") or {}
        if node := spec.get("nodeName"):
            found = devices.setdefault(node, [])
            found += [(spec.get("driver", ""), device) for device in spec.get("devices") or ()]
    made: MachineCache = {} if cache is None else cache
    return {node: _cached_machine(node, devices[node], made) for node in sorted(devices)}


def _cached_machine(node: str, devices: list[tuple[str, Mapping[str, Any]]], made: MachineCache) -> Machine:
    """Most machines of a fleet have equal identifying values: each distinct machine is built once."""
    key = msgspec.json.encode([_identity(driver, device) for driver, device in devices])
    if key not in made:
        made[key] = _machine(node, [(driver, Device.from_api(device)) for driver, device in devices])
    return replace(made[key], node=node)


@cache
def identifying_attributes() -> tuple[str, ...]:
    """The attributes that a machine is built from. Others, such as addresses and serial numbers, are unique."""
    places = (*PCI_ADDRESS_ATTRIBUTES, attr.PCIE_ROOT, attr.STANDARD_NUMA_NODE, attr.NUMA_NODE, attr.RAIL)
    nics = (attr.RDMA, attr.RDMA_DEVICE, attr.IF_NAME, attr.IB_ONLY, attr.ENCAPSULATION, attr.PCI_DEVICE)
    return (
        *places,
        *nics,
        "type",
        "productName",
        "architecture",
        "gce.dra.net/networkName",
        *machine_type_attributes(),
    )


def _identity(driver: str, device: Mapping[str, Any]) -> list[Any]:
    body = device.get("basic") or device
    attributes = body.get("attributes") or {}
    return [
        driver,
        device["name"],
        (body.get("capacity") or {}).get(attr.LINK_SPEED),
        *map(attributes.get, identifying_attributes()),
    ]


def natural_sort_key(name: str) -> list[tuple[int, str]]:
    """A sort key under which mlx5_2 comes before mlx5_10."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d+)", name)]


def _machine(node: str, devices: list[tuple[str, Device]]) -> Machine:
    gpus = [_gpu_device(driver, device) for driver, device in devices if is_gpu(driver, device)]
    nics = [_nic_device(driver, device) for driver, device in devices if is_nic(driver, device)]
    # GPU drivers list devices in no fixed order, and the number in a name is the kernel's minor. Only PCI addresses
    # give the same order on every node, which is that of nvidia-smi.
    gpus.sort(key=lambda part: (part.address, natural_sort_key(part.device)))
    nics.sort(key=lambda part: natural_sort_key(part.title))
    shape = identify_shape(devices)
    if shape is None:
        return Machine(node, tuple(gpus), tuple(nics))
    known = machine_of_shape(shape, node)
    return replace(known, gpus=_from_shape(gpus, known.gpus), nics=_from_shape(nics, known.nics))


def _from_shape(parts: Iterable[MachineDevice], known: Iterable[MachineDevice]) -> tuple[MachineDevice, ...]:
    """The devices with what the shape knows about the same PCI function; others unchanged."""
    by_address = {part.address: part for part in known}
    return tuple(
        replace(
            by_address[part.address],
            driver=part.driver,
            device=part.device,
            title=part.title,
            interface=part.interface,
            rail=part.rail,
        )
        if part.address in by_address
        else part
        for part in parts
    )


def _position(device: Device) -> Position:
    root = device.attributes.get(attr.PCIE_ROOT)
    return Position(None, root if isinstance(root, str) else None, device_numa(device))


def _gpu_device(driver: str, device: Device) -> MachineDevice:
    values = device.attributes
    return MachineDevice(
        driver,
        device.name,
        _position(device),
        device_address(device),
        device.name,
        product=str(values.get("productName", "")),
        architecture=str(values.get("architecture", "")),
    )


def _nic_device(driver: str, device: Device) -> MachineDevice:
    values = device.attributes
    title = str(values.get(attr.RDMA_DEVICE) or values.get(attr.IF_NAME) or device.name)
    return MachineDevice(
        driver,
        device.name,
        _position(device),
        device_address(device),
        title,
        interface=str(values.get(attr.IF_NAME, "")),
        rdma=values.get(attr.RDMA) is True,
        line_gbytes=_gbytes(device.capacity.get(attr.LINK_SPEED, "")),
        rail=str(values.get(attr.RAIL, "")),
        network=fabric_of_device(device),
    )


def _gbytes(bits_per_second: str) -> float:
    """``400G`` bits a second as GB/s; what is not a plain decimal quantity counts as unknown."""
    match = re.fullmatch(r"(\d+)([kMGT]?)", bits_per_second)
    return int(match[1]) * _DECIMAL[match[2]] / 8e9 if match else 0.0


def _shape_gpu(shape: Shape, gpu: Gpu, recorded: tuple[tuple[str, Distance], ...]) -> MachineDevice:
    kind = shape.gpu_kind(gpu)
    position = Position(gpu.path, pcie_root(gpu.path), gpu.numa, recorded)
    return MachineDevice(
        kind.driver,
        gpu.name,
        position,
        str(gpu.pci),
        gpu.name,
        product=str(kind.attributes.get("productName", "")),
        architecture=str(kind.attributes.get("architecture", "")),
        nvlinks=kind.nvlinks if gpu.nvlinks is None else gpu.nvlinks,
        nvlink_gbytes=kind.nvlink_gbytes if gpu.nvlinks != 0 else 0.0,
        peers=tuple((link.to, link.count) for link in gpu.links),
        fabric=kind.fabric,
    )


def _shape_nic(shape: Shape, nic: Nic, recorded: tuple[tuple[str, Distance], ...]) -> MachineDevice:
    kind = shape.nic_kind(nic)
    return MachineDevice(
        DRIVER_NAME,
        pci_device_name(nic.pci),
        Position(nic.path, pcie_root(nic.path), nic.numa, recorded),
        str(nic.pci),
        nic.rdma or nic.interface,
        interface=nic.interface,
        rdma=bool(nic.rdma),
        line_gbytes=kind.speed_gbit / 8,
        staged_gbytes=kind.staged_gbytes,
        direct_over=Distance[kind.direct_over],
        rail=nic.rail,
        network=fabric_of_shape(shape, nic),
    )
