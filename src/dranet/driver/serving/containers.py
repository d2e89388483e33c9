"""What a container gets through the hook: RDMA devices of claims that no container names, and leave to pin memory.

Where containers name a claim, the receipt (a CDI file) gives the devices to those containers and to no others. Where
none does, as in many manifests that only list the claim for the pod, all containers get them, as the reference does.
A CDI file cannot say limits of resources, so those are always the hook's.
"""

from __future__ import annotations

from collections.abc import Sequence

from dranet.driver.moving.receipt import cdi_name, variable_of
from dranet.driver.records.plan import ClaimPlan
from dranet.nri.messages import (
    Container,
    ContainerAdjustment,
    CreateContainerResponse,
    LinuxContainerAdjustment,
    LinuxDevice,
    POSIXRlimit,
)

_NO_LIMIT = (1 << 64) - 1


def names_claim(container: Container, plan: ClaimPlan) -> bool:
    """Not every runtime tells the CDI devices a container names, but what they have given it is there to see."""
    if any(device.name == cdi_name(plan.ref.uid) for device in container.CDI_devices):
        return True
    return any(item.partition("=")[0] == variable_of(plan.name) for item in container.env)


def adjustment(
    plans: Sequence[ClaimPlan], container: Container, *, by_receipt: bool = True, lift_memlock: bool = False
) -> CreateContainerResponse:
    """The answer to CreateContainer for a pod with these claims; receipts that nobody sees give nothing."""
    nodes = {node.path: node for plan in plans if not (plan.named and by_receipt) for node in plan.char_devices}
    lift = lift_memlock and (bool(nodes) or any(plan.char_devices and names_claim(container, plan) for plan in plans))
    if not nodes and not lift:
        return CreateContainerResponse()
    devices = [
        LinuxDevice(path=path, type="c", major=nodes[path].major, minor=nodes[path].minor) for path in sorted(nodes)
    ]
    limit = POSIXRlimit(type="RLIMIT_MEMLOCK", hard=_NO_LIMIT, soft=_NO_LIMIT)
    return CreateContainerResponse(
        adjust=ContainerAdjustment(
            linux=LinuxContainerAdjustment(devices=devices),
            rlimits=[limit] if lift else [],
        )
    )
