"""A claim with adminAccess: a look at a device that others may hold.

It holds nothing, so nobody waits for it, and it moves nothing, whatever the RDMA mode is: a device that vanished from
its owner's pod because somebody looked at it would be the opposite of looking. What it gives are the RDMA character
devices. They open in shared mode; in exclusive mode the kernel shows an RDMA device only in the namespace that has it.
"""

from __future__ import annotations

import msgspec

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import Node, Part, Said, Witness
from dranet.driver.parts.rdma import char_devices
from dranet.driver.records.plan import DevicePlan, RdmaRecord, Use
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel.links import Link
from dranet.kube.claims import READY, Condition
from dranet.model import attributes
from dranet.model.netconfig import NetworkConfig

REASON = "AdminAccessReady"
MESSAGE = "admin access: the device stays where it is; its RDMA character devices can be opened"


class AdminPart(Part[RdmaRecord]):
    """Lets a pod look."""

    tag, place, record = "admin", 50, RdmaRecord

    def of(self, device: DevicePlan) -> RdmaRecord | None:
        """On disk this is the first version's RDMA record with no name: its driver gives the nodes and moves nothing.

        Its own admin claims have the name, which means nothing here.
        """
        if device.use is not Use.ADMIN:
            return None
        return device.rdma or RdmaRecord(device="")

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        return _with_nodes(node, seen.rdma_device, device)

    def adopt(self, witness: Witness, device: DevicePlan) -> DevicePlan:
        name = witness.published.attributes.get(attributes.RDMA_DEVICE)
        return _with_nodes(witness.node, str(name) if name else None, device)

    def rise(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Said:
        yield from ()
        return (Condition(READY, True, REASON, MESSAGE),)


def _with_nodes(node: Node, rdma_device: str | None, device: DevicePlan) -> DevicePlan:
    if device.use is not Use.ADMIN or rdma_device is None:
        return device
    return msgspec.structs.replace(device, rdma=RdmaRecord(device="", char_devices=char_devices(node, rdma_device)))


PART = AdminPart()
