"""SR-IOV physical functions that are offered whole or as their virtual functions (`--sriov-vfs`).

Both are in the slices all the time and consume one counter set: the whole consumes all slots, a virtual function one.
So the scheduler allocates either, never both. A virtual function is published before it exists, under a name made of
the physical function's name and its number, and its attributes never change: the interface, MAC and PCI address that it
gets when it is created are not published. A physical function whose virtual functions were created by others is not
split.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from dranet.core import attributes as names
from dranet.core.device import Device
from dranet.core.names import pci_device_name, vf_device_name
from dranet.core.pci import PciAddress
from dranet.linux.hardware import PciFunction
from dranet.node.inventory.kernel_records import KernelRecords
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice

_INHERITED = (
    *(names.PCI_VENDOR, names.PCIE_ROOT, names.NUMA_NODE, names.STANDARD_NUMA_NODE),
    *(names.ENCAPSULATION, names.STATE, names.MTU, names.RDMA, names.TYPE, names.VIRTUAL, names.RAIL),
)
"""Attributes that a virtual function inherits from its physical one."""


class SplitResult(msgspec.Struct, frozen=True):
    """The offered devices, and those that are offered under another name, with that name."""

    devices: list[NodeDevice]
    replaced: list[tuple[NodeDevice, str]]


def split_functions(claimed: Iterable[NodeDevice]) -> frozenset[PciAddress]:
    """The physical functions whose virtual functions this driver created: claims hold some of those."""
    return frozenset(device.pf for device in claimed if device.vf is not None and device.pf is not None)


def offer_virtual_functions(
    devices: Sequence[NodeDevice],
    records: KernelRecords,
    splits: Callable[[Device], bool] | None,
    split: Collection[PciAddress],
) -> SplitResult:
    """The devices, with the virtual functions of those that are split."""
    kept: dict[str, NodeDevice] = {}
    whole: list[tuple[NodeDevice, PciFunction]] = []
    for device in devices:
        function = _physical(device, records, split) if splits is not None and splits(device.device) else None
        if function is not None:
            whole.append((device, function))
        kept[device.name] = device
    own_pfs = {device.pci for device, _ in whole} | set(split)
    made = {d.pci: d for d in kept.values() if d.is_vf and d.vf is None and d.pf in own_pfs}
    for device, function in whole:
        kept[device.name] = _consuming(device, function.sriov_total_vfs)
        kept |= {one.name: one for one in _functions(device, function, records, made)}
    numbers = {device.pci: device.name for device in kept.values() if device.vf is not None}
    replaced = [(one, numbers.get(pci, f"a virtual function of {one.pf}")) for pci, one in made.items()]
    hidden = {one.name for one in made.values()}
    return SplitResult([device for name, device in kept.items() if name not in hidden], replaced)


def _physical(device: NodeDevice, records: KernelRecords, split: Collection[PciAddress]) -> PciFunction | None:
    """The function of a device that can be split: Ethernet, with SR-IOV, and no virtual functions of others."""
    function = records.functions.get(str(device.pci))
    if function is None or device.pci is None or device.is_vf or device.name != pci_device_name(device.pci):
        return None
    if not function.sriov_total_vfs or device.device.attributes.get(names.ENCAPSULATION) != "ether":
        return None
    return function if not function.sriov_num_vfs or device.pci in split else None


def _consuming(device: NodeDevice, slots: int) -> NodeDevice:
    published = msgspec.structs.replace(device.device, consumes={device.name: slots})
    return msgspec.structs.replace(device, device=published)


def _functions(
    whole: NodeDevice, function: PciFunction, records: KernelRecords, made: dict[PciAddress | None, NodeDevice]
) -> Iterator[NodeDevice]:
    assert whole.pci is not None
    own = {name: whole.device.attributes[name] for name in _INHERITED if name in whole.device.attributes}
    own |= {names.IS_SRIOV_VF: True, names.SRIOV: False, names.SRIOV_PF: str(whole.pci)}
    speed = {key: value for key, value in whole.device.capacity.items() if key == names.LINK_SPEED}
    for number in range(function.sriov_total_vfs):
        name = vf_device_name(whole.pci, number)
        target = records.sysfs.link_target(f"{function.path}/virtfn{number}") or ""
        there = made.get(PciAddress.find(target.rpartition("/")[2]))
        yield NodeDevice(
            device=Device(name=name, attributes=own, capacity=speed, consumes={whole.name: 1}),
            netdev=there.netdev if there else Netdev(location=NetdevLocation.NONE),
            pci=there.pci if there else None,
            numa_node=whole.numa_node,
            pcie_root=whole.pcie_root,
            kernel_driver=there.kernel_driver if there else "",
            rdma_device=there.rdma_device if there else None,
            is_vf=True,
            pf=whole.pci,
            pf_interface=whole.netdev.name if whole.netdev.in_host_netns else "",
            vf=number,
            faults=whole.faults,
        )
