"""What a PCI function is, told by its numbers: GPU, card or neither, and the kind of card it makes."""

from __future__ import annotations

import msgspec

from dranet.inventory.pciids import PciIds
from dranet.model import gpus
from dranet.topology.shape import GpuKind, Nic, NicKind

_KERNEL_DRIVERS = {"10de": "nvidia", "1002": "amdgpu", "8086": "xe"}
_CARD_DRIVERS = {"15b3": "mlx5_core", "1ae0": "gve", "14e4": "bnxt_en", "1af4": "virtio-pci", "8086": "ice"}
LINE_GBIT = {"1d0f:efa0": 100, "1d0f:efa1": 100, "1d0f:efa2": 200, "1d0f:efa3": 400}
"""EFA's rate by device number. Its PCIe link tells nothing: a guest sees an invented one."""


class Numbers(msgspec.Struct, frozen=True):
    """A function's class and IDs, hex digits without 0x; empty where a file does not say."""

    pci_class: str
    vendor: str = ""
    device: str = ""
    subsystem_vendor: str = ""
    subsystem: str = ""

    @property
    def is_gpu(self) -> bool:
        """A GPU or accelerator of a vendor that has one; the picture of a board's management chip is none."""
        return gpus.is_gpu(self.pci_class) and self.vendor in {*gpus.DRIVERS, ""}

    @property
    def is_card(self) -> bool:
        """A network card, by its class."""
        return self.pci_class.startswith("02")

    @property
    def is_infiniband(self) -> bool:
        """By its class; the same card in Ethernet mode has another."""
        return self.pci_class.startswith("0207")

    @property
    def kind(self) -> str:
        """A name for the kind in a shape."""
        return f"{self.vendor or 'unknown'}-{self.device or self.pci_class}"


def gpu_kind(numbers: Numbers, *, nvlinks: int = 0, nvlink_gbytes: float = 0, fabric: str = "nvlink") -> GpuKind:
    """The kind of a GPU with these numbers; nothing is known of its memory and its product."""
    vendor = numbers.vendor or "10de"
    return GpuKind(
        vendor_id=vendor,
        device_id=numbers.device or "0000",
        pci_class=(numbers.pci_class or "030200").ljust(6, "0"),
        kernel_driver=_KERNEL_DRIVERS[vendor],
        driver=gpus.DRIVERS[vendor],
        nvlinks=nvlinks,
        nvlink_gbytes=nvlink_gbytes,
        fabric=fabric,
        attributes={"type": "amdgpu" if vendor == "1002" else "gpu"},
    )


def nic_kind(numbers: Numbers, *, speed_gbit: int = 0) -> NicKind:
    """The kind of a card with these numbers."""
    vendor = numbers.vendor or ("15b3" if numbers.is_infiniband else "0000")
    names = PciIds().names(vendor, numbers.device or "0000")
    return NicKind(
        vendor_id=vendor,
        device_id=numbers.device or "0000",
        kernel_driver=_card_driver(vendor, numbers.device),
        subsystem_vendor_id=numbers.subsystem_vendor,
        subsystem_id=numbers.subsystem or "0000",
        pci_class=(numbers.pci_class or "020000").ljust(6, "0"),
        vendor=names.vendor,
        product=names.product,
        link_layer="infiniband" if numbers.is_infiniband else "ether",
        speed_gbit=speed_gbit or LINE_GBIT.get(f"{vendor}:{numbers.device}", 0),
    )


def _card_driver(vendor: str, device: str) -> str:
    if vendor == "1d0f":
        return "efa" if device.startswith("efa") else "ena"
    return _CARD_DRIVERS.get(vendor, "unknown")


def rdma_name(kind: NicKind, nic: Nic, number: int) -> str:
    """The name the kernel would give the RDMA device: EFA's by its address, others counted."""
    return f"rdmap{nic.pci.bus}s{nic.pci.device}" if kind.kernel_driver == "efa" else f"mlx5_{number}"
