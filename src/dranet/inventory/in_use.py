"""Devices that a claim holds: published as they were, whatever can be seen of them.

A held card's netdev sits in a pod, and in RDMA's exclusive mode its RDMA device does too. What is on the PCI bus tells
whether the card still lives; for the rest the last known record stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from dranet.inventory import health
from dranet.inventory.cards import unusable
from dranet.inventory.kernel_records import KernelRecords
from dranet.inventory.snapshot import Fault, Netdev, NodeDevice, Place

InUse = Callable[[], Mapping[str, NodeDevice]]
"""The names of claimed devices and what was last known of them, as of the moment of the call."""


def with_those_in_use(
    seen: Iterable[NodeDevice], in_use: Mapping[str, NodeDevice], world: KernelRecords
) -> list[NodeDevice]:
    """What is seen, with the held devices as they were last known."""
    by_name = {device.name: device for device in seen}
    held = {name: _held(by_name.get(name), last, world) for name, last in in_use.items()}
    return [*(device for name, device in by_name.items() if name not in held), *held.values()]


def _held(seen: NodeDevice | None, last: NodeDevice, world: KernelRecords) -> NodeDevice:
    if seen is not None and last.vf is not None and last.pci is None:
        return seen  # a virtual function that was claimed before it was made: what is there now is all there is to know
    netdev = _netdev(seen, last)
    if seen is not None and netdev.is_here:
        return msgspec.structs.replace(last, netdev=netdev, gateway6=seen.gateway6, faults=seen.faults)
    return msgspec.structs.replace(last, netdev=netdev, faults=tuple(_faults(last, world)))


def _netdev(seen: NodeDevice | None, last: NodeDevice) -> Netdev:
    if last.netdev.place is Place.NONE:
        return last.netdev
    if seen is not None and seen.netdev.is_here and (last.pci is not None or seen.netdev.index == last.netdev.index):
        return seen.netdev
    # Without a PCI address a link of the same name may be another one that somebody made meanwhile.
    return Netdev(place=Place.ELSEWHERE, name=last.netdev.name, index=last.netdev.index)


def _faults(last: NodeDevice, world: KernelRecords) -> Iterable[Fault]:
    if last.pci is None:
        return
    function, rdma = world.functions.get(str(last.pci)), world.rdma.get(last.rdma_device or "")
    why = unusable(function, has_rdma=rdma is not None) if function is not None else None
    yield from health.function_faults(function, why)
    yield from health.rdma_faults(rdma)
