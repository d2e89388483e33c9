"""What becomes of a claim, told where people look: the claim's status, and events on claims and pods.

Conditions and reasons carry the reference driver's names. Saying never waits for the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from dranet.driver.moving.cards import Attached
from dranet.driver.parts.rdma import RdmaAttachError
from dranet.driver.records.plan import ClaimPlan, DevicePlan, PodRef, Use
from dranet.kube import claims
from dranet.kube.claims import Condition, DeviceStatus, NetworkData
from dranet.kube.events import (
    CLAIM_PREPARE_FAILED,
    NETWORK_DEVICE_ATTACH_DEFERRED,
    NETWORK_DEVICE_ATTACH_FAILED,
    RDMA_DEVICE_ATTACH_FAILED,
    ObjectRef,
)
from dranet.model.names import ClaimRef


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
        for plan in _speaking(plans):
            own = [_attached_status(item) for item in devices if item.claim.uid == plan.uid]
            self._status.set(plan.ref, own)

    def attach_deferred(self, plans: Sequence[ClaimPlan]) -> None:
        """The sandbox starts while these claims' devices are still on their way."""
        message = "its network devices take longer than the runtime waits; its containers start when they are there"
        for plan in _speaking(plans):
            waiting = (Condition(claims.READY, False, "Attaching", message),)
            self._status.set(plan.ref, [_status(device, waiting, None) for device in plan.devices])
        if plans:
            pod = plans[0].pod
            self._events.warning(
                ObjectRef.pod(pod.namespace, pod.name, pod.uid), NETWORK_DEVICE_ATTACH_DEFERRED, message
            )

    def attach_failed(self, plans: Sequence[ClaimPlan], error: Exception) -> None:
        """None of these claims' devices is in its pod, and why."""
        for plan in _speaking(plans):
            self._status.set(plan.ref, [_failed_status(device, str(error)) for device in plan.devices])
        if plans:
            pod = plans[0].pod
            reason = RDMA_DEVICE_ATTACH_FAILED if isinstance(error, RdmaAttachError) else NETWORK_DEVICE_ATTACH_FAILED
            self._events.warning(ObjectRef.pod(pod.namespace, pod.name, pod.uid), reason, str(error))

    def must_wait(self, pod: PodRef, reason: str) -> None:
        """A pod cannot have its cards yet."""
        self._events.warning(ObjectRef.pod(pod.namespace, pod.name, pod.uid), NETWORK_DEVICE_ATTACH_FAILED, reason)

    def unprepared(self, plan: ClaimPlan) -> None:
        self._status.clear(plan.ref)


def _speaking(plans: Iterable[ClaimPlan]) -> list[ClaimPlan]:
    """A claim's status has one place for a device; where several pods have the claim it is the first one's."""
    return [plan for plan in plans if not plan.is_beside]


def _attached_status(item: Attached) -> DeviceStatus:
    """What the parts of the device say, and its interface as the pod has it."""
    network = None
    if item.link is not None and item.device.wanted is not None:
        ips = tuple(address.cidr for address in item.device.wanted.addresses)
        network = NetworkData(interface_name=item.link.name, hardware_address=item.link.mac, ips=ips)
    return _status(item.device, item.conditions, network)


_FAILED = {
    Use.MOVED: "NetworkDeviceAttachFailed",
    Use.SHARED: "NetworkDeviceAttachFailed",
    Use.ADMIN: "AdminAccessFailed",
}


def _failed_status(device: DevicePlan, message: str) -> DeviceStatus:
    reason = _FAILED.get(device.use, "RDMADeviceAttachFailed")
    conditions = [Condition(claims.READY, False, reason, message)]
    if device.use in (Use.MOVED, Use.SHARED):
        conditions.append(Condition(claims.NETWORK_READY, False, reason, message))
    return _status(device, conditions, None)


def _status(device: DevicePlan, conditions: Sequence[Condition], network: NetworkData | None) -> DeviceStatus:
    return DeviceStatus(
        pool=device.pool,
        device=device.name,
        share_id=device.share_id,
        conditions=tuple(conditions),
        network=network,
    )
