"""What a container gets through the hook: the RDMA character devices of claims that no container names.

Where containers name a claim, the receipt (a CDI file) gives the devices to those containers and to no others. Where
none does, as in many manifests that only list the claim for the pod, all containers get them, as the reference does.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.driver.records.plan import ClaimPlan
from dranet.nri.messages import ContainerAdjustment, CreateContainerResponse, LinuxContainerAdjustment, LinuxDevice


def adjustment(plans: Sequence[ClaimPlan], *, by_receipt: bool = True) -> CreateContainerResponse:
    """The answer to CreateContainer for a pod with these claims; receipts that nobody sees give nothing."""
    nodes = {node.path: node for plan in plans if not (plan.named and by_receipt) for node in plan.char_devices}
    if not nodes:
        return CreateContainerResponse()
    devices = [
        LinuxDevice(path=path, type="c", major=nodes[path].major, minor=nodes[path].minor) for path in sorted(nodes)
    ]
    return CreateContainerResponse(adjust=ContainerAdjustment(linux=LinuxContainerAdjustment(devices=devices)))
