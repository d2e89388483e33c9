"""Which claims several pods can have at the same time, each with something of its own.

A card that is moved is in one pod. A child of a card can be made for each pod, unless something about it exists only
once: an address, a hardware address, what a profile gave. An RDMA device is seen by all pods where the node does not
keep RDMA devices apart by namespace.
"""

from __future__ import annotations

from dranet.driver.claims.allotment import ClaimError
from dranet.driver.parts.child import PART as CHILD
from dranet.driver.records.plan import ClaimPlan, DevicePlan, Use
from dranet.model.names import physical_function_name

_EACH_ITS_OWN = "use addressing: SLAAC, DHCP (Macvlan) or Unnumbered"


def why_only_one_pod(first: ClaimPlan) -> str:
    """What of the claim only one pod at a time can have, and what to do; empty where each pod can have its own."""
    reasons = [reason for device in first.devices if (reason := _only_once(device))]
    if not reasons:
        return ""
    what = "; ".join(dict.fromkeys(reasons))
    then = "this pod gets it when that one has ended. For pods side by side use a claim template"
    return f"claim {first.ref} is of pod {first.pod}, and {what}: {then}"


def refuse_further_pod(first: ClaimPlan) -> None:
    """Raise ClaimError where only one pod at a time can have the claim."""
    if words := why_only_one_pod(first):
        raise ClaimError(words)


def _only_once(device: DevicePlan) -> str:
    if device.use is Use.MOVED:
        return "a network card belongs to one pod at a time"
    if device.use is not Use.SHARED:
        return ""
    if device.profile is not None:
        return f"profile {device.profile} gave its addresses for one pod"
    if physical_function_name(device.name):
        return f"virtual function {device.name} is made for one pod"
    child, wanted = CHILD.of(device), device.wanted
    if child is not None and child.is_only_one:
        return "an interface with interface.hardwareAddr, or in mode Passthru, belongs to one pod at a time"
    if wanted is not None and wanted.addresses and not device.lease:
        return f"its interface.addresses belong to one pod at a time (or {_EACH_ITS_OWN})"
    return ""
