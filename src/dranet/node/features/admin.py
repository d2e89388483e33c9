"""A claim with adminAccess: it observes a device that other claims may hold.

It reserves nothing and moves nothing, whatever the RDMA mode is: a move would take the device from its owner's pod. The
container gets the RDMA character devices. They open in shared mode; in exclusive mode the kernel shows an RDMA device
only in the network namespace that has it.
"""

from __future__ import annotations

import msgspec

from dranet.core.netconfig import NetworkConfig
from dranet.kubernetes.api.claims import READY, Condition
from dranet.linux.links import Link
from dranet.node.features.base import Conditions, Feature, NodeContext, RecoveryContext
from dranet.node.features.rdma import char_devices
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import AttachMode, DevicePlan, RdmaRecord

_MESSAGE = "admin access: the device is not moved; its RDMA character devices can be opened"


class AdminFeature(Feature[RdmaRecord]):
    """Gives the RDMA character devices of a device and leaves the device in place."""

    tag, order, record_type = "admin", 50, RdmaRecord

    def record_of(self, device: DevicePlan) -> RdmaRecord | None:
        """On disk it is an RDMA record without a name, for which the first version gives the nodes and moves nothing.

        The first version's own admin claims have the name, which is ignored here.
        """
        if device.mode is not AttachMode.ADMIN:
            return None
        return device.rdma or RdmaRecord(device="")

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        return _with_nodes(node, seen.rdma_device, device)

    def recover(self, context: RecoveryContext, device: DevicePlan) -> DevicePlan:
        return _with_nodes(context.node, context.rdma_device, device)

    def bring_up(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link | None) -> Conditions:
        yield from ()
        return (Condition(READY, True, "AdminAccessReady", _MESSAGE),)


def _with_nodes(node: NodeContext, rdma_device: str | None, device: DevicePlan) -> DevicePlan:
    if device.mode is not AttachMode.ADMIN or rdma_device is None:
        return device
    return msgspec.structs.replace(device, rdma=RdmaRecord(device="", char_devices=char_devices(node, rdma_device)))


FEATURE = AdminFeature()
