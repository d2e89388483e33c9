"""Helpers that the importers share: XML with limits, CPU lists and masks, and PCI IDs."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import msgspec

from dranet.core import pci
from dranet.core.errors import InvalidInput
from dranet.core.pciids import PciIds
from dranet.machines.shape import GpuKind, Nic, NicKind

_MAX_BYTES = 16 << 20
_MAX_ELEMENTS = 100_000
_MAX_DEPTH = 200


class _Limits:
    """Builds the tree and enforces the limits."""

    def __init__(self) -> None:
        self.builder = TreeBuilder()
        self._depth = self._elements = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > _MAX_DEPTH or self._elements > _MAX_ELEMENTS:
            raise InvalidInput(
                f"more than {_MAX_ELEMENTS} elements or {_MAX_DEPTH} nesting levels; this is not a topology file"
            )
        self.builder.start(tag, attributes)

    def end(self, tag: str) -> None:
        self._depth -= 1
        self.builder.end(tag)

    def entity(self, name: str, *_: object) -> None:
        raise InvalidInput(f"the file declares the entity {name!r}, which is not supported; remove the declaration")


def parse_xml(text: str) -> Element:
    """The root element of a file that may be malicious.

    The standard library's parser expands entities, and a small file can declare gigabytes: so a file with entities is
    rejected, and size, depth and number of elements are limited.
    """
    if len(text) > _MAX_BYTES:
        raise InvalidInput(f"the XML has {len(text)} characters, at most {_MAX_BYTES} are allowed")
    limits, parser = _Limits(), expat.ParserCreate()
    parser.StartElementHandler = limits.start
    parser.EndElementHandler = limits.end
    parser.EntityDeclHandler = limits.entity
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise InvalidInput(f"invalid XML: line {error.lineno}: {expat.errors.messages[error.code]}") from error
    return limits.builder.close()


_MAX_CPUS = 1 << 14


def format_cpu_list(bits: int) -> str:
    """A CPU mask as a list: ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in range(min(bits.bit_length(), _MAX_CPUS)):
        if bits >> cpu & 1:
            if runs and runs[-1][1] == cpu - 1:
                runs[-1][1] = cpu
            else:
                runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def parse_cpu_mask(text: str) -> int:
    """``0x0000ffff,,0xffffffff`` or ``0000ffff,ffffffff``: 32-bit words, the highest first; an empty one is 0."""
    if text.startswith("0xf...f"):
        return 0  # hwloc's "all": no information
    words = [word.removeprefix("0x") or "0" for word in text.strip().split(",")] if text.strip() else []
    if len(words) > _MAX_CPUS // 32 or not all(re.fullmatch(r"[0-9a-fA-F]{1,8}", word) for word in words):
        raise InvalidInput(f"{text[:60]!r} is not a valid mask of CPUs or NUMA nodes")
    value = 0
    for word in words:
        value = value << 32 | int(word, 16)
    return value


def parse_cpu_list(text: str) -> list[int]:
    """The numbers in ``0-3,8``."""
    found: list[int] = []
    for piece in filter(None, text.split(",")):
        first, _, last = piece.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()) or int(last or first) >= _MAX_CPUS:
            raise InvalidInput(f"{text[:60]!r} is not a valid CPU list, such as 0-3,8")
        found += range(int(first), int(last or first) + 1)
    return found


_KERNEL_DRIVERS = {"10de": "nvidia", "1002": "amdgpu", "8086": "xe"}
_NIC_DRIVERS = {"15b3": "mlx5_core", "1ae0": "gve", "14e4": "bnxt_en", "1af4": "virtio-pci", "8086": "ice"}
_EFA_GBIT = {"1d0f:efa0": 100, "1d0f:efa1": 100, "1d0f:efa2": 200, "1d0f:efa3": 400}
"""EFA's rate by PCI device ID. The PCIe link of a guest is not the real one."""


class PciIdentity(msgspec.Struct, frozen=True):
    """A function's class and IDs in hex without 0x; empty where a file does not have them."""

    pci_class: str
    vendor: str = ""
    device: str = ""
    subsystem_vendor: str = ""
    subsystem: str = ""

    @property
    def is_gpu(self) -> bool:
        """A GPU or accelerator of a GPU vendor; the display chip of a management controller is not one."""
        return pci.is_gpu(self.pci_class) and self.vendor in {*pci.GPU_DRIVERS, ""}

    @property
    def is_nic(self) -> bool:
        """A NIC, by its class."""
        return self.pci_class.startswith("02")

    @property
    def is_infiniband(self) -> bool:
        """By its class; the same NIC in Ethernet mode has another."""
        return self.pci_class.startswith("0207")

    @property
    def kind(self) -> str:
        """The name of its kind in a shape."""
        return f"{self.vendor or 'unknown'}-{self.device or self.pci_class}"


def gpu_kind(identity: PciIdentity, *, nvlinks: int = 0, nvlink_gbytes: float = 0, fabric: str = "nvlink") -> GpuKind:
    """The kind of a GPU with these IDs; memory and product are unknown."""
    vendor = identity.vendor or "10de"
    return GpuKind(
        vendor_id=vendor,
        device_id=identity.device or "0000",
        pci_class=(identity.pci_class or "030200").ljust(6, "0"),
        kernel_driver=_KERNEL_DRIVERS[vendor],
        driver=pci.GPU_DRIVERS[vendor],
        nvlinks=nvlinks,
        nvlink_gbytes=nvlink_gbytes,
        fabric=fabric,
        attributes={"type": "amdgpu" if vendor == "1002" else "gpu"},
    )


def nic_kind(identity: PciIdentity, *, speed_gbit: int = 0) -> NicKind:
    """The kind of a NIC with these IDs."""
    vendor = identity.vendor or ("15b3" if identity.is_infiniband else "0000")
    names = PciIds().names(vendor, identity.device or "0000")
    return NicKind(
        vendor_id=vendor,
        device_id=identity.device or "0000",
        kernel_driver=_nic_driver(vendor, identity.device),
        subsystem_vendor_id=identity.subsystem_vendor,
        subsystem_id=identity.subsystem or "0000",
        pci_class=(identity.pci_class or "020000").ljust(6, "0"),
        vendor=names.vendor,
        product=names.product,
        link_layer="infiniband" if identity.is_infiniband else "ether",
        speed_gbit=speed_gbit or _EFA_GBIT.get(f"{vendor}:{identity.device}", 0),
    )


def _nic_driver(vendor: str, device: str) -> str:
    if vendor == "1d0f":
        return "efa" if device.startswith("efa") else "ena"
    return _NIC_DRIVERS.get(vendor, "unknown")


def rdma_name(kind: NicKind, nic: Nic, number: int) -> str:
    """The kernel's name for the RDMA device: EFA by address, others by number."""
    return f"rdmap{nic.pci.bus}s{nic.pci.device}" if kind.kernel_driver == "efa" else f"mlx5_{number}"
