"""Claims whose cards are in a pod although no plan is left: which of the pod's namespaces has them, and their plans.

What a card was on the host is taken from what stands published about it: less than the store knew, but enough to bring
it home. A card that is not with the others, because the pod has taken it elsewhere or has destroyed it, does not keep
them from coming home.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dranet.driver.claims.allotment import Allotted, allotted, config_for
from dranet.driver.claims.planner import Planner, blank
from dranet.driver.namespaces import PodNamespace
from dranet.driver.records.plan import ClaimPlan, DevicePlan, Use
from dranet.inventory.snapshot import Netdev, NodeDevice, Place
from dranet.kernel.namespaces import NamespaceGone
from dranet.kernel.sysfs import Sysfs
from dranet.model import attributes
from dranet.model.device import Device
from dranet.model.errors import NotFound
from dranet.model.names import function_number
from dranet.model.netconfig import NetworkConfig
from dranet.model.pci import PciAddress

Object = Mapping[str, Any]
Published = Mapping[str, Device]
"""Devices of this node's slices by name."""
Recorded = Mapping[str, NetworkConfig]
"""How the reference driver had configured devices in their pods, by name."""


class Adopted(NamedTuple):
    """Where the devices of a claim are, with the plans made up for them."""

    netns: str
    devices: tuple[DevicePlan, ...]
    missing: tuple[str, ...] = ()
    """Why devices are not in there, in words; their plans hold nothing but the name."""


def search(
    planner: Planner,
    claim: Object,
    namespaces: Iterable[str],
    published: Published,
    recorded: Recorded,
    known: Iterable[ClaimPlan],
) -> Adopted | None:
    """The first of a pod's namespaces that has every card of the claim, else the one with most; None where none has.
    A link that a known plan has is no other card."""
    others = {netns: [d for plan in known if plan.netns == netns for d in plan.devices] for netns in namespaces}
    looks = (_look(planner, claim, netns, published, recorded, there) for netns, there in others.items())
    return min((one for one in looks if one is not None), key=lambda one: len(one.missing), default=None)


def _look(
    planner: Planner,
    claim: Object,
    netns: str,
    published: Published,
    recorded: Recorded,
    others: Sequence[DevicePlan],
) -> Adopted | None:
    devices: list[DevicePlan] = []
    missing = []
    try:
        with PodNamespace.open(netns) as pod:
            for item in allotted(claim):
                taken = frozenset(_moved([*others, *devices]))
                try:
                    devices.append(_device(planner, pod, claim, item, published, recorded, taken))
                except NotFound as error:
                    missing.append(str(error))
                    devices.append(blank(item, Use.PENDING, config_for(claim, item.request)))
    except NamespaceGone:
        return None
    # RDMA devices alone prove nothing: in shared mode they are on the node and in every pod.
    if missing and not any(device.use in (Use.MOVED, Use.SHARED) for device in devices):
        return None
    return Adopted(netns, tuple(devices), tuple(missing))


def _moved(devices: Iterable[DevicePlan]) -> Iterator[int]:
    """Their links in the pod, by index."""
    for device in devices:
        if device.use is Use.MOVED and device.found is not None:
            yield device.found.link.index


def _device(
    planner: Planner,
    pod: PodNamespace,
    claim: Object,
    item: Allotted,
    published: Published,
    recorded: Recorded,
    taken: frozenset[int],
) -> DevicePlan:
    if item.device not in published:
        raise NotFound(f"{item.device} is not published")
    shown = published[item.device]
    made = _as_made(planner.sysfs, shown)
    device = planner.adopt(pod, item, made, config_for(claim, item.request), recorded.get(item.device), taken)
    return msgspec.structs.replace(device, snapshot=_snapshot(shown, made, device))


def _as_made(sysfs: Sysfs, published: Device) -> Device:
    """A virtual function is published without what only shows once it is made: where it is on the bus, and a name."""
    pf, number = published.attributes.get(attributes.SRIOV_PF), function_number(published.name)
    if pf is None or number is None:
        return published
    target = Sysfs(sysfs.root).link_target(f"bus/pci/devices/{pf}/virtfn{number}")
    address = PciAddress.find((target or "").rpartition("/")[2])
    if address is None:
        raise NotFound(f"{published.name} is not there any more")
    name = "vf" + "".join(letter for letter in str(address) if letter.isalnum())
    own = {attributes.PCI_ADDRESS: str(address), attributes.IF_NAME: name}
    return msgspec.structs.replace(published, attributes={**published.attributes, **own})


def _snapshot(published: Device, made: Device, device: DevicePlan) -> dict[str, Any]:
    said = made.attributes
    netdev = Netdev(place=Place.NONE)
    if device.found is not None:
        netdev = Netdev(place=Place.ELSEWHERE, name=device.found.link.name, index=device.found.link.index)
    pci, rdma = said.get(attributes.PCI_ADDRESS), said.get(attributes.RDMA_DEVICE)
    address = PciAddress.find(str(pci)) if pci else None
    pf = PciAddress.find(str(said.get(attributes.SRIOV_PF)))
    return NodeDevice(
        device=published,
        netdev=netdev,
        pci=address,
        rdma_device=str(rdma) if rdma else None,
        is_vf=pf is not None,
        pf=pf,
        vf=function_number(published.name),
    ).to_record()
