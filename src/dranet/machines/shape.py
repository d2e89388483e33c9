"""A machine shape: the description of one type of GPU machine in a small TOML file.

A shape is turned into a synthetic sysfs tree, links in a network namespace, and the ResourceSlices of both drivers, so
that everything can be tried without the machine. It is TOML because the standard library reads it: the daemon never
imports a YAML parser. The ``path`` of a device below ``/sys/devices`` determines its PCIe root, its PCI address and all
distances.

`docs/reference/shapes.md` describes the format.
"""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from dranet.core.errors import InvalidInput, NotFound, did_you_mean
from dranet.core.pci import PciAddress

_DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
_GPU_FABRICS = ("nvlink", "xgmi")
_NETWORKS = ("", "one", "rails")


class Numa(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One NUMA node and its CPUs, in the kernel's list format (``0-55,112-167``)."""

    node: int
    cpus: str = ""


class GpuKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all GPUs of one kind have in common."""

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
    """The links between GPUs: ``nvlink``, or AMD's ``xgmi``, whose number is then in ``nvlinks``."""
    attributes: dict[str, Any] = {}


class NicKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all NICs of one kind have in common."""

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
    """The farthest distance over which this NIC accesses GPU memory without the CPU."""
    staged_gbytes: float = 0
    """GB/s of one NIC that copies through host memory, where measured on this machine."""


class GpuLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A direct link between two GPUs, on machines without a switch."""

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
    """If it differs from the kind: 0 for a GPU that lost its links."""
    links: list[GpuLink] = []
    attributes: dict[str, Any] = {}

    @property
    def pci(self) -> PciAddress:
        """Its PCI address: the last step of the path."""
        return PciAddress.parse(self.path.rpartition("/")[2])


class Nic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One NIC; without ``interface`` it is an RDMA-only device."""

    kind: str
    path: str
    numa: int | None = None
    interface: str = ""
    rdma: str = ""
    mac: str = ""
    addresses: list[str] = []
    rail: str = ""
    """The value of `dra.net/rail`; empty where rails do not matter or are unknown."""

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
    """Facts that are unknown, and the values used instead."""
    network: str = ""
    """``one``: every NIC reaches every NIC; ``rails``: only NICs of one rail do; empty where unknown."""
    cloud_attributes: dict[str, Any] = {}
    numa: list[Numa] = []
    gpu_kinds: dict[str, GpuKind] = {}
    nic_kinds: dict[str, NicKind] = {}
    gpus: list[Gpu] = []
    nics: list[Nic] = []
    recorded_distances: dict[str, list[tuple[str, str]]] = msgspec.field(name="told", default_factory=dict)
    """By distance, pairs of PCI addresses whose recorded distance differs from that of their paths and NUMA nodes.
    The key in a file is `told`."""
    nccl: str = ""
    """The NCCL topology file that the shape was imported from, for exporting it unchanged."""

    @property
    def parts(self) -> list[Gpu | Nic]:
        """GPUs, then NICs."""
        return [*self.gpus, *self.nics]

    def gpu_kind(self, gpu: Gpu) -> GpuKind:
        """The kind of this GPU."""
        return self.gpu_kinds[gpu.kind]

    def nic_kind(self, nic: Nic) -> NicKind:
        """The kind of this NIC."""
        return self.nic_kinds[nic.kind]


def pcie_root(path: str) -> str | None:
    """The PCIe root of a device: the first step below ``/sys/devices``; None if that is not one, as on Hyper-V."""
    first = path.split("/", 1)[0]
    return first if first.startswith("pci") else None


def shape_names() -> list[str]:
    """The built-in shapes, sorted."""
    found = (item.name for item in (resources.files(__package__) / "shapes").iterdir())
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def _built_in(name: str) -> str:
    return (resources.files(__package__) / "shapes" / f"{name}.toml").read_text("utf-8")


def load_shape(name_or_path: str | Path) -> Shape:
    """A built-in shape by name, or any TOML file by path."""
    text = str(name_or_path)
    if text in shape_names():
        return parse_shape(_built_in(text), text)
    path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(shape_names())
        hint = did_you_mean(text, shape_names()) or f": known shapes are {known}"
        raise NotFound(f"no machine shape {text!r}{hint}; or use the path of a TOML file")
    try:
        return parse_shape(path.read_text("utf-8"), text)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"machine shape {text}: cannot read it: {error}") from error


def parse_shape(text: str, source: str = "<shape>") -> Shape:
    """Parse and check a shape; the error lists every mistake with its file and key."""
    try:
        shape = msgspec.convert(_with_base(tomllib.loads(text)), Shape)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidInput(f"machine shape {source}: {error}") from error
    problems = _problems(shape)
    if problems:
        raise InvalidInput(f"machine shape {source}: " + "; ".join(problems))
    return shape


def _with_base(raw: dict[str, Any]) -> dict[str, Any]:
    """A file with ``like`` has the content of that built-in shape, except for the values it sets itself."""
    base = raw.pop("like", None)
    if base is None:
        return raw
    if base not in shape_names():
        raise InvalidInput(f"like: no built-in machine shape {base!r}; known shapes are {', '.join(shape_names())}")
    return _merged(_with_base(tomllib.loads(_built_in(base))), raw)


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; any other value, also a list, replaces that of the base."""
    both = {key for key in own if isinstance(own[key], dict) and isinstance(base.get(key), dict)}
    return base | own | {key: _merged(base[key], own[key]) for key in both}


def _problems(shape: Shape) -> list[str]:
    found = [f"gpus[{i}]: no [gpu_kinds.{g.kind}]" for i, g in enumerate(shape.gpus) if g.kind not in shape.gpu_kinds]
    found += [f"nics[{i}]: no [nic_kinds.{n.kind}]" for i, n in enumerate(shape.nics) if n.kind not in shape.nic_kinds]
    found += [
        f"nic_kinds.{name}.direct_over: {kind.direct_over!r} is not one of {', '.join(_DISTANCES)}"
        for name, kind in shape.nic_kinds.items()
        if kind.direct_over not in _DISTANCES
    ]
    found += [
        f"gpu_kinds.{name}.fabric: {kind.fabric!r} is not one of {', '.join(_GPU_FABRICS)}"
        for name, kind in shape.gpu_kinds.items()
        if kind.fabric not in _GPU_FABRICS
    ]
    found += [
        f"told: {name!r} is not one of {', '.join(_DISTANCES)}"
        for name in shape.recorded_distances
        if name not in _DISTANCES
    ]
    if shape.network not in _NETWORKS:
        found.append(f"network: {shape.network!r} must be one or rails")
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


def to_toml(shape: Shape) -> str:
    """A shape as TOML without defaults; `parse_shape` returns an equal shape."""
    lines = [f"name = {_toml_value(shape.name)}"]
    lines += [f"{key} = {_toml_value(value)}" for key in ("title", "network") if (value := getattr(shape, key))]
    for key in ("sources", "unknown"):
        lines += _toml_list(key, getattr(shape, key))
    if shape.nccl:
        lines.append(f"nccl = {_toml_text(shape.nccl)}")
    lines += _toml_table("cloud_attributes", shape.cloud_attributes)
    lines += _toml_table("told", shape.recorded_distances)
    for numa in shape.numa:
        lines += _toml_entry("[[numa]]", numa)
    for table, kinds in (("gpu_kinds", shape.gpu_kinds), ("nic_kinds", shape.nic_kinds)):
        for name, kind in sorted(kinds.items()):
            lines += _toml_entry(f"[{table}.{_toml_key(name)}]", kind, nested=f"{table}.{_toml_key(name)}")
    for gpu in shape.gpus:
        lines += _toml_entry("[[gpus]]", gpu)
    for nic in shape.nics:
        lines += _toml_entry("[[nics]]", nic)
    return "\n".join(lines) + "\n"


def _toml_entry(head: str, part: msgspec.Struct, nested: str = "") -> list[str]:
    lines = ["", head]
    after: list[str] = []
    for field in msgspec.structs.fields(part):
        value = getattr(part, field.name)
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        if value == default or value is None:
            continue
        if nested and isinstance(value, dict):
            after = _toml_table(f"{nested}.{field.name}", value)
        else:
            lines.append(f"{field.name} = {_toml_value(value)}")
    return lines + after


def _toml_table(name: str, values: dict[str, Any]) -> list[str]:
    return ["", f"[{name}]", *(f"{_toml_key(key)} = {_toml_value(values[key])}" for key in values)] if values else []


def _toml_list(name: str, values: list[str]) -> list[str]:
    return [f"{name} = [", *(f"    {_toml_value(value)}," for value in values), "]"] if values else []


def _toml_text(text: str) -> str:
    """A multi-line text, literally where TOML allows it."""
    plain = "'''" not in text and all(char.isprintable() or char in "\n\t" for char in text)
    return f"'''\n{text}'''" if plain else _toml_value(text)


def _toml_key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _toml_value(name)


def _toml_value(value: Any) -> str:
    """Strings, numbers, booleans and lists are the same in JSON and TOML; objects become inline tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml_key(key)} = {_toml_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, msgspec.Struct):
        return _toml_value(msgspec.to_builtins(value))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
