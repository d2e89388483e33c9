"""Physical functions that are offered whole or as their virtual ones (`--sriov-vfs`): what is published of them.

Both stand in the slices all the time and take slots of one counter set: the whole takes all, a virtual function one. So
the scheduler gives out either, never both. A virtual function is published before it exists, under a name made from the
physical one and its number, and stays published word for word the same when it does: what only shows then (interface,
MAC, PCI address) is not told. A physical function whose virtual ones somebody else made is left alone as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec

from dranet.inventory.kernel_records import KernelRecords
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.kernel.hardware import PciFunction
from dranet.model import attributes as names
from dranet.model.device import Device
from dranet.model.names import pci_device_name, vf_device_name
from dranet.model.pci import PciAddress

_ALIKE = (
    *(names.PCI_VENDOR, names.PCIE_ROOT, names.NUMA_NODE, names.STANDARD_NUMA_NODE),
    *(names.ENCAPSULATION, names.STATE, names.MTU, names.RDMA, names.TYPE, names.VIRTUAL, names.RAIL),
)
"""What a virtual function has of its physical one."""


class Partition(msgspec.Struct, frozen=True):
    """Every device that is offered, and those that are offered under another name, which is told."""

    devices: list[NodeDevice]
    replaced: list[tuple[NodeDevice, str]]


def split_by_us(in_use: Iterable[NodeDevice]) -> frozenset[PciAddress]:
    """The physical functions whose virtual ones this driver has made: claims hold some of them."""
    return frozenset(device.pf for device in in_use if device.vf is not None and device.pf is not None)


def partition(
    devices: Sequence[NodeDevice],
    world: KernelRecords,
    splits: Callable[[Device], bool] | None,
    split: Collection[PciAddress],
) -> Partition:
    """The devices with the virtual functions that can be had of them."""
    kept: dict[str, NodeDevice] = {}
    whole: list[tuple[NodeDevice, PciFunction]] = []
    for device in devices:
        function = _physical(device, world, split) if splits is not None and splits(device.device) else None
        if function is not None:
            whole.append((device, function))
        kept[device.name] = device
    ours = {device.pci for device, _ in whole} | set(split)
    made = {d.pci: d for d in kept.values() if d.is_vf and d.vf is None and d.pf in ours}
    for device, function in whole:
        kept[device.name] = _taking(device, function.sriov_total_vfs)
        kept |= {one.name: one for one in _functions(device, function, world, made)}
    numbers = {device.pci: device.name for device in kept.values() if device.vf is not None}
    replaced = [(one, numbers.get(pci, f"a virtual function of {one.pf}")) for pci, one in made.items()]
    hidden = {one.name for one in made.values()}
    return Partition([device for name, device in kept.items() if name not in hidden], replaced)


def _physical(device: NodeDevice, world: KernelRecords, split: Collection[PciAddress]) -> PciFunction | None:
    """The function of a device that can be split: an Ethernet card with virtual functions that nobody else made."""
    function = world.functions.get(str(device.pci))
    if function is None or device.pci is None or device.is_vf or device.name != pci_device_name(device.pci):
        return None
    if not function.sriov_total_vfs or device.device.attributes.get(names.ENCAPSULATION) != "ether":
        return None
    return function if not function.sriov_num_vfs or device.pci in split else None


def _taking(device: NodeDevice, slots: int) -> NodeDevice:
    published = msgspec.structs.replace(device.device, consumes={device.name: slots})
    return msgspec.structs.replace(device, device=published)


def _functions(
    whole: NodeDevice, function: PciFunction, world: KernelRecords, made: dict[PciAddress | None, NodeDevice]
) -> Iterator[NodeDevice]:
    assert whole.pci is not None
    own = {name: whole.device.attributes[name] for name in _ALIKE if name in whole.device.attributes}
    own |= {names.IS_SRIOV_VF: True, names.SRIOV: False, names.SRIOV_PF: str(whole.pci)}
    speed = {key: value for key, value in whole.device.capacity.items() if key == names.LINK_SPEED}
    for number in range(function.sriov_total_vfs):
        name = vf_device_name(whole.pci, number)
        target = world.sysfs.link_target(f"{function.path}/virtfn{number}") or ""
        there = made.get(PciAddress.find(target.rpartition("/")[2]))
        yield NodeDevice(
            device=Device(name=name, attributes=own, capacity=speed, consumes={whole.name: 1}),
            netdev=there.netdev if there else Netdev(place=Place.NONE),
            pci=there.pci if there else None,
            numa_node=whole.numa_node,
            pcie_root=whole.pcie_root,
            kernel_driver=there.kernel_driver if there else "",
            rdma_device=there.rdma_device if there else None,
            is_vf=True,
            pf=whole.pci,
            pf_interface=whole.netdev.name if whole.netdev.is_here else "",
            vf=number,
            faults=whole.faults,
        )
