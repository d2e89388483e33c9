"""Claims that several pods use: at the same time, or one after the other.

A moved NIC is in one pod at a time. A child interface can be created for each pod, unless something about it exists
only once: an address, a hardware address, what a profile gave. All pods see an RDMA device where the node does not
isolate RDMA devices by network namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from dranet.core.errors import DranetError
from dranet.core.names import physical_function_name
from dranet.node.claims.allocation import ClaimError, ClusterReader, allocated_devices, reserved_pods
from dranet.node.features.child import FEATURE as CHILD
from dranet.node.records.plan import AttachMode, ClaimPlan, DevicePlan, PodRef

_LOOKUP_SECONDS = 1.0
"""The client's own timeout is ten times as long, and the pod's deletion would wait for it."""
_PER_POD_ADDRESSING = "use addressing: SLAAC, DHCP (Macvlan) or Unnumbered"


def why_exclusive(first: ClaimPlan) -> str:
    """Why only one pod at a time can use the claim, and what to do; empty where several pods can."""
    reasons = [reason for device in first.devices if (reason := _why_exclusive_device(device))]
    if not reasons:
        return ""
    what = "; ".join(dict.fromkeys(reasons))
    advice = "this pod gets it when that pod is deleted. For pods that run at the same time use a claim template"
    return f"claim {first.ref} is in use by pod {first.pod}, and {what}: {advice}"


def require_shareable(first: ClaimPlan) -> None:
    """Raise ClaimError where only one pod at a time can use the claim."""
    if reason := why_exclusive(first):
        raise ClaimError(reason)


def _why_exclusive_device(device: DevicePlan) -> str:
    if device.mode is AttachMode.MOVED:
        return "a network interface is in one pod at a time"
    if device.mode is not AttachMode.SHARED:
        return ""
    if device.profile is not None:
        return f"profile {device.profile} assigned its addresses to one pod"
    if physical_function_name(device.name):
        return f"virtual function {device.name} is created for one pod"
    child, config = CHILD.record_of(device), device.pod_config
    if child is not None and child.is_only_one:
        return "an interface with interface.hardwareAddr, or in mode Passthru, is in one pod at a time"
    if config is not None and config.addresses and not device.lease:
        return f"its interface.addresses belong to one pod at a time (or {_PER_POD_ADDRESSING})"
    return ""


async def next_pod(cluster: ClusterReader, node: str, plan: ClaimPlan, known: Collection[str]) -> PodRef | None:
    """A pod on this node that the claim is reserved for, other than those with these UIDs: its next user.

    The kubelet treats a claim as prepared until its unprepare call returns, and then forgets it, also for a pod that
    arrived during the call. That pod would have a sandbox and never a container ("unable to get claim info"). Unprepare
    is therefore refused while there is a next user. On its next try the kubelet knows both pods, removes only the first
    one, and does not call the driver.

    None as well where the API server does not answer: unprepare must work without it.
    """
    try:
        async with asyncio.timeout(_LOOKUP_SECONDS):
            claim = await cluster.claim(plan.namespace, plan.name)
            if claim["metadata"]["uid"] != plan.uid or all(item.pool != node for item in allocated_devices(claim)):
                return None
            for user in reserved_pods(claim):
                if user.uid not in known and await _will_run(cluster, node, user):
                    return user
    except (DranetError, TimeoutError):
        pass
    return None


async def _will_run(cluster: ClusterReader, node: str, user: PodRef) -> bool:
    """Whether the pod is on this node and still needs the claim: a reservation can outlive its pod."""
    pod = await cluster.pod(user.namespace, user.name)
    if pod is None or pod["metadata"]["uid"] != user.uid or pod["spec"].get("nodeName") != node:
        return False
    is_deleted = "deletionTimestamp" in pod["metadata"]
    return not is_deleted and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
