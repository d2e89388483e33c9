"""Report on claims: their status, and events on claims and pods.

Conditions and reasons have the reference driver's names. Reporting never waits for the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from dranet.core.names import ClaimRef
from dranet.kubernetes.api import claims
from dranet.kubernetes.api.claims import Condition, DeviceStatus, NetworkData
from dranet.kubernetes.api.events import (
    CLAIM_PREPARE_FAILED,
    NETWORK_DEVICE_ATTACH_DEFERRED,
    NETWORK_DEVICE_ATTACH_FAILED,
    RDMA_DEVICE_ATTACH_FAILED,
    ObjectRef,
)
from dranet.node.features.rdma import RdmaAttachError
from dranet.node.lifecycle.device_lifecycle import AttachedDevice
from dranet.node.records.plan import AttachMode, ClaimPlan, DevicePlan, PodRef


class StatusSink(Protocol):
    """Where claim status goes; `kubernetes.api.claims.ClaimStatusWriter` in a cluster."""

    def set(self, claim: ClaimRef, devices: Sequence[DeviceStatus]) -> None: ...

    def clear(self, claim: ClaimRef) -> None: ...


class EventSink(Protocol):
    """Where events go; `kubernetes.api.events.EventRecorder` in a cluster."""

    def warning(self, about: ObjectRef, reason: str, message: str) -> None: ...


class Reports:
    """Writes status and events."""

    def __init__(self, status: StatusSink, events: EventSink) -> None:
        self._status = status
        self._events = events

    def prepare_failed(self, namespace: str, name: str, uid: str, reason: str) -> None:
        self._events.warning(ObjectRef.claim(namespace, name, uid), CLAIM_PREPARE_FAILED, reason)

    def attached(self, plans: Iterable[ClaimPlan], devices: Sequence[AttachedDevice]) -> None:
        """The devices of these claims are attached, except those that a repair could not attach."""
        for plan in _first_plans(plans):
            own = [_attached_status(item) for item in devices if item.claim.uid == plan.uid]
            self._status.set(plan.ref, own)
        problems = "; ".join(dict.fromkeys(item.problem for item in devices if item.problem))
        for pod in {plan.pod for plan in plans} if problems else ():
            self._events.warning(
                ObjectRef.pod(pod.namespace, pod.name, pod.uid), NETWORK_DEVICE_ATTACH_FAILED, problems
            )

    def attach_deferred(self, plans: Sequence[ClaimPlan]) -> None:
        """The sandbox starts while the attach continues in the background."""
        message = "Attaching the network devices exceeds the NRI timeout; containers start once they are attached"
        for plan in _first_plans(plans):
            waiting = (Condition(claims.READY, False, "Attaching", message),)
            self._status.set(plan.ref, [_status(device, waiting, None) for device in plan.devices])
        if plans:
            pod = plans[0].pod
            self._events.warning(
                ObjectRef.pod(pod.namespace, pod.name, pod.uid), NETWORK_DEVICE_ATTACH_DEFERRED, message
            )

    def attach_failed(self, plans: Sequence[ClaimPlan], error: Exception) -> None:
        """No device of these claims is attached."""
        for plan in _first_plans(plans):
            self._status.set(plan.ref, [_failed_status(device, str(error)) for device in plan.devices])
        if plans:
            pod = plans[0].pod
            reason = RDMA_DEVICE_ATTACH_FAILED if isinstance(error, RdmaAttachError) else NETWORK_DEVICE_ATTACH_FAILED
            self._events.warning(ObjectRef.pod(pod.namespace, pod.name, pod.uid), reason, str(error))

    def pod_waits(self, pod: PodRef, reason: str) -> None:
        """A pod cannot get its devices yet."""
        self._events.warning(ObjectRef.pod(pod.namespace, pod.name, pod.uid), NETWORK_DEVICE_ATTACH_FAILED, reason)

    def unprepared(self, plan: ClaimPlan) -> None:
        self._status.clear(plan.ref)


def _first_plans(plans: Iterable[ClaimPlan]) -> list[ClaimPlan]:
    """A claim's status has one entry for a device; for a shared claim it is that of the first pod."""
    return [plan for plan in plans if not plan.is_additional]


def _attached_status(item: AttachedDevice) -> DeviceStatus:
    """The conditions of its features, and its interface in the pod."""
    if item.problem:
        return _failed_status(item.device, item.problem)
    network = None
    if item.link is not None and item.device.pod_config is not None:
        ips = tuple(address.cidr for address in item.device.pod_config.addresses)
        network = NetworkData(interface_name=item.link.name, hardware_address=item.link.mac, ips=ips)
    return _status(item.device, item.conditions, network)


_FAILED = {
    AttachMode.MOVED: "NetworkDeviceAttachFailed",
    AttachMode.SHARED: "NetworkDeviceAttachFailed",
    AttachMode.ADMIN: "AdminAccessFailed",
}


def _failed_status(device: DevicePlan, message: str) -> DeviceStatus:
    reason = _FAILED.get(device.mode, "RDMADeviceAttachFailed")
    conditions = [Condition(claims.READY, False, reason, message)]
    if device.mode in (AttachMode.MOVED, AttachMode.SHARED):
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
