"""Recover plans of claims whose devices are in a pod although the store has no plan: which namespace has the devices.

The host state of a device is taken from its published attributes: less than the store had, but enough to detach it. A
device that is not with the others, because the pod moved it elsewhere or destroyed it, does not block their recovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from dranet.core import attributes
from dranet.core.device import Device
from dranet.core.errors import NotFound
from dranet.core.names import vf_number
from dranet.core.netconfig import NetworkConfig
from dranet.core.pci import PciAddress
from dranet.linux.namespaces import NamespaceGone
from dranet.linux.sysfs import Sysfs
from dranet.node.claims.allocation import AllocatedDevice, Object, allocated_devices, device_config
from dranet.node.claims.planner import Planner, new_device_plan
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice
from dranet.node.namespaces import PodNamespace
from dranet.node.records.plan import AttachMode, ClaimPlan, DevicePlan

Published = Mapping[str, Device]
"""Devices of this node's slices by name."""
Recorded = Mapping[str, NetworkConfig]
"""How the reference driver had configured devices in their pods, by name."""


class RecoveredDevices(NamedTuple):
    """The network namespace that has the devices of a claim, with plans for them."""

    netns: str
    devices: tuple[DevicePlan, ...]
    missing: tuple[str, ...] = ()
    """Why devices are not there; their plans hold only the name."""


def find_devices(
    planner: Planner,
    claim: Object,
    namespaces: Iterable[str],
    published: Published,
    recorded: Recorded,
    known: Iterable[ClaimPlan],
) -> RecoveredDevices | None:
    """The first of a pod's namespaces that has every device of the claim, else the one with most devices; None where
    no namespace has any. Links of known plans are not considered."""
    others = {netns: [d for plan in known if plan.netns == netns for d in plan.devices] for netns in namespaces}
    found = (_find_in(planner, claim, netns, published, recorded, there) for netns, there in others.items())
    return min((one for one in found if one is not None), key=lambda one: len(one.missing), default=None)


def _find_in(
    planner: Planner,
    claim: Object,
    netns: str,
    published: Published,
    recorded: Recorded,
    others: Sequence[DevicePlan],
) -> RecoveredDevices | None:
    devices: list[DevicePlan] = []
    missing = []
    try:
        with PodNamespace.open(netns) as pod:
            for item in allocated_devices(claim):
                taken = frozenset(_link_indexes([*others, *devices]))
                try:
                    devices.append(_recover_device(planner, pod, claim, item, published, recorded, taken))
                except NotFound as error:
                    missing.append(str(error))
                    attributes = published[item.device].attributes if item.device in published else {}
                    config = device_config(claim, item, attributes, trust_author=True)
                    devices.append(new_device_plan(item, AttachMode.PENDING, config))
    except NamespaceGone:
        return None
    # RDMA devices alone prove nothing: in shared mode they are visible on the host and in every pod.
    if missing and not any(device.mode in (AttachMode.MOVED, AttachMode.SHARED) for device in devices):
        return None
    return RecoveredDevices(netns, tuple(devices), tuple(missing))


def _link_indexes(devices: Iterable[DevicePlan]) -> Iterator[int]:
    for device in devices:
        if device.mode is AttachMode.MOVED and device.host_state is not None:
            yield device.host_state.link.index


def _recover_device(
    planner: Planner,
    pod: PodNamespace,
    claim: Object,
    item: AllocatedDevice,
    published: Published,
    recorded: Recorded,
    taken: frozenset[int],
) -> DevicePlan:
    if item.device not in published:
        raise NotFound(f"{item.device} is not published")
    shown = published[item.device]
    created = _with_function(planner.sysfs, shown)
    config = device_config(claim, item, shown.attributes, trust_author=True)
    device = planner.recover(pod, item, created, config, recorded.get(item.device), taken)
    return msgspec.structs.replace(device, snapshot=_snapshot(shown, created, device))


def _with_function(sysfs: Sysfs, published: Device) -> Device:
    """A virtual function is published without its PCI address and name, which exist only once it is created."""
    pf, number = published.attributes.get(attributes.SRIOV_PF), vf_number(published.name)
    if pf is None or number is None:
        return published
    target = Sysfs(sysfs.root).link_target(f"bus/pci/devices/{pf}/virtfn{number}")
    address = PciAddress.find((target or "").rpartition("/")[2])
    if address is None:
        raise NotFound(f"{published.name} no longer exists")
    name = "vf" + "".join(letter for letter in str(address) if letter.isalnum())
    own = {attributes.PCI_ADDRESS: str(address), attributes.IF_NAME: name}
    return msgspec.structs.replace(published, attributes={**published.attributes, **own})


def _snapshot(published: Device, created: Device, device: DevicePlan) -> dict[str, Any]:
    values = created.attributes
    netdev = Netdev(location=NetdevLocation.NONE)
    if device.host_state is not None:
        link = device.host_state.link
        netdev = Netdev(location=NetdevLocation.OTHER_NETNS, name=link.name, index=link.index)
    pci, rdma = values.get(attributes.PCI_ADDRESS), values.get(attributes.RDMA_DEVICE)
    pf = PciAddress.find(str(values.get(attributes.SRIOV_PF)))
    return NodeDevice(
        device=published,
        netdev=netdev,
        pci=PciAddress.find(str(pci)) if pci else None,
        rdma_device=str(rdma) if rdma else None,
        is_vf=pf is not None,
        pf=pf,
        vf=vf_number(published.name),
    ).to_record()
