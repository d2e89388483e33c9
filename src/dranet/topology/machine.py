"""One node's GPUs and network cards with their places: what distances, matrix and advice are computed from.

It comes from a shape, which knows everything, or from ResourceSlices, which know less. Slices whose PCI addresses and
products are those of a known shape borrow its places: a recorded GB300 node says nothing about the NUMA node of its
GPUs, the shape does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.model import attributes as attr
from dranet.model.device import Device
from dranet.model.names import DRIVER_NAME, pci_device_name
from dranet.topology.distance import Distance, Position, distance
from dranet.topology.fabric import fabric_of_device, fabric_of_shape
from dranet.topology.recognising import ADDRESSES, cloud_names, device_address, device_numa, is_gpu, is_nic, recognise
from dranet.topology.shape import Gpu, Nic, Shape, pcie_root

DeviceId = tuple[str, str]
"""Driver and device name: unique within one node."""

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


class Part(msgspec.Struct, frozen=True):
    """A GPU or a card of a machine."""

    driver: str
    device: str
    place: Position
    address: str = ""
    """PCI address, or an empty string where the slice does not say."""
    title: str = ""
    """The name people know it by: mlx5_0, gpu0rdma0."""
    interface: str = ""
    """A card's interface on the node, where it has one."""
    rdma: bool = False
    line_gbytes: float = 0.0
    """A card's line rate in GB/s; 0 where unknown."""
    direct_over: Distance = Distance.PHB
    """A card reads GPU memory directly up to this distance."""
    network: str = ""
    """What a card is plugged into (infiniband, roce, gce-roce, efa, tcpxo, ethernet); empty where unknown."""
    product: str = ""
    """A GPU's product name."""
    architecture: str = ""
    nvlinks: int = 0
    """A GPU's links to the switch all GPUs share."""
    nvlink_gbytes: float = 0.0
    peers: tuple[tuple[str, int], ...] = ()
    """A GPU's direct links: PCI address of the other GPU, and how many."""
    fabric: str = "nvlink"
    """What a GPU's links are: nvlink or xgmi."""
    rail: str = ""
    """The rail a card is on; empty where unknown or where rails do not matter."""

    @property
    def id(self) -> DeviceId:
        """What a claim's result names it by, on its node."""
        return (self.driver, self.device)


class Machine(msgspec.Struct, frozen=True):
    """The GPUs and cards of one node, each in the order people count them."""

    node: str
    gpus: tuple[Part, ...]
    nics: tuple[Part, ...]
    shape: str = ""
    """The known shape this machine is an example of, if any."""
    cpus: tuple[tuple[int, str], ...] = ()
    """NUMA nodes and their CPU lists, where known."""

    def find(self, device: DeviceId) -> Part | None:
        """The part a claim's result names, or None for devices that are neither GPU nor card."""
        return next((part for part in (*self.gpus, *self.nics) if part.id == device), None)

    def nickname(self, device: DeviceId) -> str:
        """The name people know a device by (interface or RDMA name), or an empty string where it has no other."""
        part = self.find(device)
        name = (part.interface or part.title) if part else ""
        return "" if name == device[1] else name

    def is_gpu(self, device: DeviceId) -> bool:
        """Whether that device is one of the GPUs."""
        return any(part.id == device for part in self.gpus)


def cell(a: Part, b: Part) -> str:
    """The matrix cell of two parts as nvidia-smi prints it."""
    if a.id == b.id:
        return "X"
    if links := gpu_links(a, b):
        return "XGMI" if a.fabric == "xgmi" else f"NV{links}"
    return str(distance(a.place, b.place))


def reads_directly(gpu: Part, nic: Part) -> bool:
    """Whether the card is near enough to read the GPU's memory itself."""
    return distance(gpu.place, nic.place) <= max(nic.direct_over, Distance.PHB)


def gpu_links(a: Part, b: Part) -> int:
    """NVLinks (or xGMI links) between two GPUs, directly or through the switch; 0 where there are none."""
    direct = dict(a.peers).get(b.address, 0) or dict(b.peers).get(a.address, 0)
    return direct or min(a.nvlinks, b.nvlinks)


def machine_of_shape(shape: Shape, node: str) -> Machine:
    """A node of this shape; GPUs and cards count as the file has them."""
    told = _told(shape)
    return Machine(
        node,
        tuple(_shape_gpu(shape, gpu, told.get(str(gpu.pci), ())) for gpu in shape.gpus),
        tuple(_shape_nic(shape, nic, told.get(str(nic.pci), ())) for nic in shape.nics),
        shape.name,
        tuple((numa.node, numa.cpus) for numa in shape.numa),
    )


def _told(shape: Shape) -> dict[str, tuple[tuple[str, Distance], ...]]:
    """By PCI address, the recorded distances to others."""
    found: dict[str, tuple[tuple[str, Distance], ...]] = {}
    for far, pairs in shape.told.items():
        for one, other in (pair for a, b in pairs for pair in ((a, b), (b, a))):
            found[one] = (*found.get(one, ()), (other, Distance[far]))
    return found


Kinds = dict[bytes, Machine]
"""Machines worked out before, by all that was looked at."""


def machines_of_slices(slices: Iterable[Mapping[str, Any]], kinds: Kinds | None = None) -> dict[str, Machine]:
    """One machine per node named in the slices, in the order of their names. ``kinds`` is for who asks again."""
    devices: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for raw in slices:
        spec = raw.get("spec") or {}
        if node := spec.get("nodeName"):
            found = devices.setdefault(node, [])
            found += [(spec.get("driver", ""), device) for device in spec.get("devices") or ()]
    made: Kinds = {} if kinds is None else kinds
    return {node: _like_others(node, devices[node], made) for node in sorted(devices)}


def _like_others(node: str, devices: list[tuple[str, Mapping[str, Any]]], made: Kinds) -> Machine:
    """Most machines of a fleet are alike in all that is looked at: each kind is worked out once."""
    key = msgspec.json.encode([_looked_at(driver, device) for driver, device in devices])
    if key not in made:
        made[key] = _machine(node, [(driver, Device.from_api(device)) for driver, device in devices])
    return replace(made[key], node=node)


@cache
def looked_at() -> tuple[str, ...]:
    """Every attribute a machine is worked out from; of others, such as addresses and serial numbers, no two devices
    have the same."""
    places = (*ADDRESSES, attr.PCIE_ROOT, attr.STANDARD_NUMA_NODE, attr.NUMA_NODE, attr.RAIL)
    cards = (attr.RDMA, attr.RDMA_DEVICE, attr.IF_NAME, attr.IB_ONLY, attr.ENCAPSULATION, attr.PCI_DEVICE)
    return (*places, *cards, "type", "productName", "architecture", "gce.dra.net/networkName", *cloud_names())


def _looked_at(driver: str, device: Mapping[str, Any]) -> list[Any]:
    body = device.get("basic") or device
    attributes = body.get("attributes") or {}
    return [
        driver,
        device["name"],
        (body.get("capacity") or {}).get(attr.LINK_SPEED),
        *map(attributes.get, looked_at()),
    ]


def natural(name: str) -> list[tuple[int, str]]:
    """A sort key under which mlx5_2 comes before mlx5_10."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d+)", name)]


def _machine(node: str, devices: list[tuple[str, Device]]) -> Machine:
    gpus = [_gpu_part(driver, device) for driver, device in devices if is_gpu(driver, device)]
    nics = [_nic_part(driver, device) for driver, device in devices if is_nic(driver, device)]
    # GPU drivers list their devices in no fixed order, and the number in a name is the kernel's minor: only addresses
    # give the same order on every node, the one nvidia-smi counts in.
    gpus.sort(key=lambda part: (part.address, natural(part.device)))
    nics.sort(key=lambda part: natural(part.title))
    shape = recognise(devices)
    if shape is None:
        return Machine(node, tuple(gpus), tuple(nics))
    known = machine_of_shape(shape, node)
    return replace(known, gpus=_borrow(gpus, known.gpus), nics=_borrow(nics, known.nics))


def _borrow(parts: Iterable[Part], known: Iterable[Part]) -> tuple[Part, ...]:
    """The parts at hand with all that the shape knows of the same PCI function; other links stay as they are."""
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


def _place(device: Device) -> Position:
    root = device.attributes.get(attr.PCIE_ROOT)
    return Position(None, root if isinstance(root, str) else None, device_numa(device))


def _gpu_part(driver: str, device: Device) -> Part:
    values = device.attributes
    return Part(
        driver,
        device.name,
        _place(device),
        device_address(device),
        device.name,
        product=str(values.get("productName", "")),
        architecture=str(values.get("architecture", "")),
    )


def _nic_part(driver: str, device: Device) -> Part:
    values = device.attributes
    title = str(values.get(attr.RDMA_DEVICE) or values.get(attr.IF_NAME) or device.name)
    return Part(
        driver,
        device.name,
        _place(device),
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


def _shape_gpu(shape: Shape, gpu: Gpu, told: tuple[tuple[str, Distance], ...]) -> Part:
    kind = shape.gpu_kind(gpu)
    place = Position(gpu.path, pcie_root(gpu.path), gpu.numa, told)
    return Part(
        kind.driver,
        gpu.name,
        place,
        str(gpu.pci),
        gpu.name,
        product=str(kind.attributes.get("productName", "")),
        architecture=str(kind.attributes.get("architecture", "")),
        nvlinks=kind.nvlinks if gpu.nvlinks is None else gpu.nvlinks,
        nvlink_gbytes=kind.nvlink_gbytes if gpu.nvlinks != 0 else 0.0,
        peers=tuple((link.to, link.count) for link in gpu.links),
        fabric=kind.fabric,
    )


def _shape_nic(shape: Shape, nic: Nic, told: tuple[tuple[str, Distance], ...]) -> Part:
    kind = shape.nic_kind(nic)
    return Part(
        DRIVER_NAME,
        pci_device_name(nic.pci),
        Position(nic.path, pcie_root(nic.path), nic.numa, told),
        str(nic.pci),
        nic.rdma or nic.interface,
        interface=nic.interface,
        rdma=bool(nic.rdma),
        line_gbytes=kind.speed_gbit / 8,
        direct_over=Distance[kind.direct_over],
        rail=nic.rail,
        network=fabric_of_shape(shape, nic),
    )
