"""Why a card cannot reach the memory of the GPUs in its machine by itself, where the kernel shows it.

A port between the two may send their traffic up to the root and back: its access control (ACS) says so, in a
configuration space that ordinary users and some virtual machines see too little of. Then IOMMU groups tell the same,
for the kernel puts what ACS keeps apart into different ones. Or nobody can register GPU memory with a card: NVIDIA's
proprietary kernel driver has no dma-buf, so one of the modules made for that must be loaded; its open one has.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.kernel import pcie
from dranet.kernel.hardware import PciFunction
from dranet.kernel.sysfs import Sysfs

_NVIDIA = "10de"
_PROPRIETARY = "P"
"""What the kernel marks a module with whose licence is not free."""
_PEER_MEMORY = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem")


def obstacle(sysfs: Sysfs, card: PciFunction, gpus: Sequence[PciFunction], has_rdma: bool) -> str:
    """In words; empty where none is seen."""
    for gpu in gpus:
        if words := _kept_apart(sysfs, card, gpu):
            return words
    if has_rdma and any(gpu.vendor == _NVIDIA for gpu in gpus) and _lends_no_memory(sysfs):
        return "the NVIDIA driver is the proprietary one, which has no dma-buf, and nvidia_peermem is not loaded"
    return ""


def _kept_apart(sysfs: Sysfs, card: PciFunction, gpu: PciFunction) -> str:
    """Only where both are below one bridge, and by the ports below the last one they share: redirection is decided at
    a switch's downstream ports."""
    shared = set(card.bridges) & set(gpu.bridges)
    if not shared:
        return ""
    between = [bridge for function in (card, gpu) for bridge in function.bridges if bridge not in shared]
    told = {address: pcie.redirects_peers(sysfs, f"bus/pci/devices/{address}") for address in between}
    for address, redirects in told.items():
        if redirects:
            return f"bridge {address} sends traffic with the GPU beside it through the CPU"
    groups = [sysfs.link_name(f"{function.path}/iommu_group") for function in (card, gpu)]
    if set(told.values()) == {None} and None not in groups and groups[0] != groups[1]:
        return f"IOMMU group {groups[0]} keeps it apart from the GPU beside it, in group {groups[1]}"
    return ""


def _lends_no_memory(sysfs: Sysfs) -> bool:
    taints = sysfs.read("module/nvidia", "taint") or ""
    return _PROPRIETARY in taints and not any(sysfs.exists("module", name) for name in _PEER_MEMORY)
