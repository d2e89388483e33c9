"""Why a NIC cannot access GPU memory directly, as far as the kernel shows it.

A PCIe port between NIC and GPU may redirect their traffic to the root: its Access Control Services (ACS) say so. They
are in a part of the configuration space that unprivileged users and some virtual machines cannot read; then IOMMU
groups show the same, because the kernel puts functions that ACS separates into different groups. Or no module can
register GPU memory with the NIC: NVIDIA's proprietary driver has no dma-buf and needs a peer-memory module.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.linux import pci
from dranet.linux.hardware import PciFunction
from dranet.linux.sysfs import Sysfs

_NVIDIA = "10de"
_PROPRIETARY = "P"
"""The kernel's taint flag of a module with a proprietary licence."""
_PEER_MEMORY = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem")


def gpudirect_obstacle(sysfs: Sysfs, nic: PciFunction, gpus: Sequence[PciFunction], has_rdma: bool) -> str:
    """The obstacle; empty where none is visible."""
    for gpu in gpus:
        if obstacle := _separated(sysfs, nic, gpu):
            return obstacle
    if has_rdma and any(gpu.vendor == _NVIDIA for gpu in gpus) and _lacks_peer_memory(sysfs):
        return "the NVIDIA driver is the proprietary one, which has no dma-buf, and nvidia_peermem is not loaded"
    return ""


def _separated(sysfs: Sysfs, nic: PciFunction, gpu: PciFunction) -> str:
    """Checks the ports below the last shared bridge: redirection is decided at a switch's downstream ports."""
    shared = set(nic.bridges) & set(gpu.bridges)
    if not shared:
        return ""
    between = [bridge for function in (nic, gpu) for bridge in function.bridges if bridge not in shared]
    redirecting = {address: pci.redirects_peers(sysfs, f"bus/pci/devices/{address}") for address in between}
    for address, redirects in redirecting.items():
        if redirects:
            return f"bridge {address} redirects traffic with the GPU {gpu.address} through the CPU (ACS)"
    groups = [sysfs.link_name(f"{function.path}/iommu_group") for function in (nic, gpu)]
    if set(redirecting.values()) == {None} and None not in groups and groups[0] != groups[1]:
        return f"IOMMU group {groups[0]} separates it from the GPU {gpu.address} in IOMMU group {groups[1]}"
    return ""


def _lacks_peer_memory(sysfs: Sysfs) -> bool:
    taints = sysfs.read("module/nvidia", "taint") or ""
    return _PROPRIETARY in taints and not any(sysfs.exists("module", name) for name in _PEER_MEMORY)
