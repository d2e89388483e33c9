"""Claimed devices stay published as they were, whatever the host still sees of them.

The netdev of a claimed device is in a pod; in RDMA's exclusive mode its RDMA device is too. The PCI bus shows whether
the device still exists; for the rest the last known record counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from dranet.node.inventory import faults
from dranet.node.inventory.kernel_records import KernelRecords
from dranet.node.inventory.nics import unusable_reason
from dranet.node.inventory.snapshot import Fault, Netdev, NetdevLocation, NodeDevice

ClaimedDevices = Callable[[], Mapping[str, NodeDevice]]
"""Returns the claimed devices by name, each as it was last known."""


def with_claimed_devices(
    seen: Iterable[NodeDevice], claimed: Mapping[str, NodeDevice], records: KernelRecords
) -> list[NodeDevice]:
    """The devices of a scan, with each claimed one as it was last known."""
    by_name = {device.name: device for device in seen}
    held = {name: _claimed(by_name.get(name), last, records) for name, last in claimed.items()}
    return [*(device for name, device in by_name.items() if name not in held), *held.values()]


def _claimed(seen: NodeDevice | None, last: NodeDevice, records: KernelRecords) -> NodeDevice:
    if seen is not None and last.vf is not None and last.pci is None:
        return seen  # a virtual function that was claimed before it was created: nothing older is known
    netdev = _netdev(seen, last)
    if seen is not None and netdev.in_host_netns:
        return msgspec.structs.replace(last, netdev=netdev, gateway6=seen.gateway6, faults=seen.faults)
    return msgspec.structs.replace(last, netdev=netdev, faults=tuple(_faults(last, records)))


def _netdev(seen: NodeDevice | None, last: NodeDevice) -> Netdev:
    if last.netdev.location is NetdevLocation.NONE:
        return last.netdev
    # Without a PCI address, a link of the same name may be another one that was created since.
    is_same = seen is not None and (last.pci is not None or seen.netdev.index == last.netdev.index)
    if seen is not None and is_same and seen.netdev.in_host_netns:
        return seen.netdev
    return Netdev(location=NetdevLocation.OTHER_NETNS, name=last.netdev.name, index=last.netdev.index)


def _faults(last: NodeDevice, records: KernelRecords) -> Iterable[Fault]:
    if last.pci is None:
        return
    function, rdma = records.functions.get(str(last.pci)), records.rdma.get(last.rdma_device or "")
    reason = unusable_reason(function, has_rdma=rdma is not None) if function is not None else None
    yield from faults.function_faults(function, reason)
    yield from faults.rdma_faults(rdma)
