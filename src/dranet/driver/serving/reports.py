"""What becomes of a claim, told where people look: the claim's status, and events on claims and pods.

Conditions and reasons carry the reference driver's names. Saying never waits for the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from dranet.driver.claims.plan import ClaimPlan, DevicePlan
from dranet.driver.moving.cards import Attached, RdmaAttachError
from dranet.kube import claims
from dranet.kube.claims import ClaimRef, Condition, DeviceStatus, NetworkData
from dranet.kube.events import (
    CLAIM_PREPARE_FAILED,
    NETWORK_DEVICE_ATTACH_FAILED,
    RDMA_DEVICE_ATTACH_FAILED,
    ObjectRef,
)


class StatusSink(Protocol):
    """Where claim status goes; `kube.claims.ClaimStatusWriter` in a cluster."""

    def set(self, claim: ClaimRef, devices: Sequence[DeviceStatus]) -> None: ...

    def clear(self, claim: ClaimRef) -> None: ...


class EventSink(Protocol):
    """Where events go; `kube.events.EventRecorder` in a cluster."""

    def warning(self, about: ObjectRef, reason: str, message: str) -> None: ...


class Reports:
    """The driver's voice towards the cluster."""

    def __init__(self, status: StatusSink, events: EventSink) -> None:
        self._status = status
        self._events = events

    def prepare_failed(self, namespace: str, name: str, uid: str, reason: str) -> None:
        self._events.warning(ObjectRef.claim(namespace, name, uid), CLAIM_PREPARE_FAILED, reason)

    def attached(self, plans: Iterable[ClaimPlan], devices: Sequence[Attached]) -> None:
        """Every device of these claims is in its pod."""
        for plan in plans:
            own = [_attached_status(item) for item in devices if item.claim_uid == plan.uid]
            self._status.set(_ref(plan), own)

    def attach_failed(self, plans: Sequence[ClaimPlan], error: Exception) -> None:
        """None of these claims' devices is in its pod, and why."""
        for plan in plans:
            self._status.set(_ref(plan), [_failed_status(device, str(error)) for device in plan.devices])
        if plans:
            pod = plans[0].pod
            reason = RDMA_DEVICE_ATTACH_FAILED if isinstance(error, RdmaAttachError) else NETWORK_DEVICE_ATTACH_FAILED
            self._events.warning(ObjectRef.pod(pod.namespace, pod.name, pod.uid), reason, str(error))

    def unprepared(self, plan: ClaimPlan) -> None:
        self._status.clear(_ref(plan))


def _ref(plan: ClaimPlan) -> ClaimRef:
    return ClaimRef(plan.namespace, plan.name, plan.uid)


def _attached_status(item: Attached) -> DeviceStatus:
    device, link = item.plan, item.link
    if link is None or device.pod is None:
        conditions = [Condition(claims.READY, True, "RDMAOnlyDeviceReady")]
        network = None
    else:
        conditions = [
            Condition(claims.READY, True, "NetworkDeviceReady"),
            Condition(claims.NETWORK_READY, True, "NetworkReady"),
        ]
        ips = tuple(address.cidr for address in device.pod.addresses)
        network = NetworkData(interface_name=link.name, hardware_address=link.mac, ips=ips)
    if item.rdma_moved:
        conditions.append(Condition(claims.RDMA_LINK_READY, True, "RDMALinkReady"))
    return _status(device, conditions, network)


def _failed_status(device: DevicePlan, message: str) -> DeviceStatus:
    reason = "NetworkDeviceAttachFailed" if device.host else "RDMADeviceAttachFailed"
    conditions = [Condition(claims.READY, False, reason, message)]
    if device.host:
        conditions.append(Condition(claims.NETWORK_READY, False, reason, message))
    return _status(device, conditions, None)


def _status(device: DevicePlan, conditions: Sequence[Condition], network: NetworkData | None) -> DeviceStatus:
    return DeviceStatus(
        pool=device.pool,
        device=device.device,
        share_id=device.share_id,
        conditions=tuple(conditions),
        network=network,
    )
