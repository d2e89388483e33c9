"""A machine shape: one kind of GPU machine written down in a small TOML file.

From a shape the project makes a synthetic sysfs tree, links in a network namespace, and the ResourceSlices of both
drivers, so everything can be tried without the machine. TOML because the standard library reads it: the daemon never
imports a YAML parser. The one thing everything hangs on is ``path``, a device's place below ``/sys/devices``: its PCIe
root, its PCI address and all distances follow from it.

`docs/reference/shapes.md` describes the format for people who add their own machine.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from dranet.model.errors import InvalidInput, NotFound
from dranet.model.pci import PciAddress

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
GPU_FABRICS = ("nvlink", "xgmi")
NETWORKS = ("", "one", "rails")


class Numa(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One NUMA node and the CPUs it has, as the kernel writes lists (``0-55,112-167``)."""

    node: int
    cpus: str = ""


class GpuKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What GPUs of one kind have in common."""

    vendor_id: str
    device_id: str
    pci_class: str = "030200"
    kernel_driver: str = "nvidia"
    driver: str = "gpu.nvidia.com"
    """The DRA driver that publishes these GPUs."""
    memory: str = ""
    nvlinks: int = 0
    """NVLinks from each GPU to the switch; 0 where there are none."""
    nvlink_gbytes: float = 0
    """All NVLinks of a GPU together, GB/s in one direction."""
    fabric: str = "nvlink"
    """What joins the GPUs: ``nvlink``, or AMD's ``xgmi``, where ``nvlinks`` counts its links instead."""
    attributes: dict[str, Any] = {}


class NicKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What network cards of one kind have in common."""

    vendor_id: str
    device_id: str
    kernel_driver: str
    subsystem_vendor_id: str = ""
    subsystem_id: str = "0000"
    pci_class: str = "020000"
    vendor: str = "unknown"
    product: str = "unknown"
    link_layer: str = "ether"
    speed_gbit: int = 0
    mtu: int = 1500
    direct_over: str = "PHB"
    """The farthest distance over which this card still reads GPU memory without help of the CPU."""


class GpuLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cable between two GPUs, where not all of them meet at a switch."""

    to: str
    """PCI address of the other GPU."""
    count: int = 1


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One GPU of the machine."""

    name: str
    kind: str
    path: str
    numa: int | None = None
    uuid: str = ""
    nvlinks: int | None = None
    """Where it differs from the kind: 0 for a GPU that has lost the fabric."""
    links: list[GpuLink] = []
    attributes: dict[str, Any] = {}

    @property
    def pci(self) -> PciAddress:
        """Its PCI address: the last step of the path."""
        return PciAddress.parse(self.path.rpartition("/")[2])


class Nic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One network card; without ``interface`` it is an RDMA device alone."""

    kind: str
    path: str
    numa: int | None = None
    interface: str = ""
    rdma: str = ""
    mac: str = ""
    addresses: list[str] = []
    rail: str = ""
    """The rail it is on, as `dra.net/rail` says it; empty where rails do not matter or are not known."""

    @property
    def pci(self) -> PciAddress:
        """Its PCI address: the last step of the path."""
        return PciAddress.parse(self.path.rpartition("/")[2])


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole machine."""

    name: str
    title: str = ""
    sources: list[str] = []
    """Where the facts are from."""
    unknown: list[str] = []
    """What nobody has told, and what was made up to fill the gap."""
    network: str = ""
    """``one``: any card reaches any card; ``rails``: only cards of the same rail do; empty where that is not known."""
    cloud_attributes: dict[str, Any] = {}
    numa: list[Numa] = []
    gpu_kinds: dict[str, GpuKind] = {}
    nic_kinds: dict[str, NicKind] = {}
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    told: dict[str, list[tuple[str, str]]] = {}
    """By distance, pairs of PCI addresses whose recorded distance is another than their paths and NUMA nodes give."""
    nccl: str = ""
    """The NCCL topology file the shape was read from, kept whole for giving it back."""

    @property
    def parts(self) -> list[Gpu | Nic]:
        """GPUs, then cards."""
        return [*self.gpus, *self.nics]

    def gpu_kind(self, gpu: Gpu) -> GpuKind:
        """The kind this GPU names."""
        return self.gpu_kinds[gpu.kind]

    def nic_kind(self, nic: Nic) -> NicKind:
        """The kind this card names."""
        return self.nic_kinds[nic.kind]


def pcie_root(path: str) -> str | None:
    """The PCIe root of a device: the first step below ``/sys/devices``, where that is one (not so behind Hyper-V)."""
    first = path.split("/", 1)[0]
    return first if first.startswith("pci") else None


def shape_names() -> list[str]:
    """The built-in shapes, sorted."""
    found = (item.name for item in (resources.files(__package__) / "shapes").iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def load_shape(name_or_path: str | Path) -> Shape:
    """A built-in shape by name, or any TOML file by path."""
    text = str(name_or_path)
    if text in shape_names():
        return parse_shape((resources.files(__package__) / "shapes" / f"{text}.toml").read_text("utf-8"), text)
    path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(shape_names())
        raise NotFound(f"no machine shape {text!r}: known shapes are {known}; or give the path of a TOML file")
    try:
        return parse_shape(path.read_text("utf-8"), text)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"machine shape {text}: cannot be read: {error}") from error


def parse_shape(text: str, source: str = "<shape>") -> Shape:
    """Read a shape and check that its parts fit together; every mistake names the file and the place."""
    try:
        shape = msgspec.convert(tomllib.loads(text), Shape)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(f"machine shape {source}: {error}") from error
    problems = _problems(shape)
    if problems:
        raise InvalidInput(f"machine shape {source}: " + "; ".join(problems))
    return shape


def _problems(shape: Shape) -> list[str]:
    found = [f"gpus[{i}]: no [gpu_kinds.{g.kind}]" for i, g in enumerate(shape.gpus) if g.kind not in shape.gpu_kinds]
    found += [f"nics[{i}]: no [nic_kinds.{n.kind}]" for i, n in enumerate(shape.nics) if n.kind not in shape.nic_kinds]
    found += [
        f"nic_kinds.{name}.direct_over: {kind.direct_over!r} is none of {', '.join(DISTANCES)}"
        for name, kind in shape.nic_kinds.items()
        if kind.direct_over not in DISTANCES
    ]
    found += [
        f"gpu_kinds.{name}.fabric: {kind.fabric!r} is none of {', '.join(GPU_FABRICS)}"
        for name, kind in shape.gpu_kinds.items()
        if kind.fabric not in GPU_FABRICS
    ]
    found += [f"told: {name!r} is none of {', '.join(DISTANCES)}" for name in shape.told if name not in DISTANCES]
    if shape.network not in NETWORKS:
        found.append(f"network: {shape.network!r} is neither one nor rails")
    return found + _path_problems(shape)


def _path_problems(shape: Shape) -> list[str]:
    found: list[str] = []
    parts = [("gpus", i, g.path) for i, g in enumerate(shape.gpus)]
    parts += [("nics", i, n.path) for i, n in enumerate(shape.nics)]
    seen: set[str] = set()
    for table, i, path in parts:
        last = path.rpartition("/")[2]
        if PciAddress.find(last) is None:
            found.append(f"{table}[{i}].path: {path!r} must end in a PCI address such as 0000:8f:00.0")
        elif ".." in path or path.startswith("/"):
            found.append(f"{table}[{i}].path: {path!r} must be a plain path below /sys/devices")
        elif last in seen:
            found.append(f"{table}[{i}].path: PCI address {last} is used twice")
        seen.add(last)
    return found
