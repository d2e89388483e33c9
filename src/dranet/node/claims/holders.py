"""Which claim holds a device that is to be prepared: one with a plan, or one that is being prepared now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from dranet.core.errors import Busy
from dranet.core.logs import get_logger
from dranet.core.names import ClaimRef, exclude_each_other
from dranet.kubernetes.api.errors import ObjectNotFound
from dranet.node.claims.allocation import AllocatedDevice, ClusterReader
from dranet.node.records.plan import ClaimPlan
from dranet.node.store import Store

log = get_logger(__name__)

_POLL_SECONDS = 0.1


class DeviceHolders:
    """Gives a claim its devices when no other claim holds them."""

    def __init__(self, store: Store, cluster: ClusterReader, boot: str, patience: float) -> None:
        self._store, self._cluster, self._boot, self._patience = store, cluster, boot, patience
        self._preparing: dict[tuple[str, str | None], ClaimRef] = {}
        """Devices that are being prepared now, with their claims: the store does not have those yet."""

    @contextmanager
    def reserve(self, ref: ClaimRef, devices: Sequence[AllocatedDevice]) -> Iterator[None]:
        """While the block runs, the devices are being prepared for this claim."""
        keys = {(item.device, item.share_id) for item in devices if not item.admin}
        self._preparing |= dict.fromkeys(keys, ref)
        try:
            yield
        finally:
            for key in keys:
                del self._preparing[key]

    async def release_stale_plans(
        self, ref: ClaimRef, devices: Sequence[AllocatedDevice], release: Callable[[ClaimPlan], Awaitable[None]]
    ) -> None:
        """Release plans of deleted claims that hold any of these devices.

        Unprepare does not wait for the disk, so a crash can bring a deleted plan back. The kubelet will not unprepare
        it again. When another claim is allocated its devices, the API server tells whether its claim still exists.
        """
        for plan in [plan for plan in self._store.plans.values() if self._may_be_stale(plan)]:
            conflicts = any(d.conflicts_with(item.device, item.share_id) for d in plan.devices for item in devices)
            if plan.uid != ref.uid and conflicts and await self._is_deleted(plan):
                log.info("Removed state of a deleted claim", claim=plan.ref)
                await release(plan)

    def _may_be_stale(self, plan: ClaimPlan) -> bool:
        """From before a reboot; or written by another driver and in no pod; or of an additional pod, where an older
        driver has released the claim's first plan."""
        is_detached = plan.netns is None and self._store.is_inherited(plan.uid)
        return plan.boot != self._boot or is_detached or (plan.is_additional and plan.ref.uid not in self._store.plans)

    async def _is_deleted(self, plan: ClaimPlan) -> bool:
        try:
            claim = await self._cluster.claim(plan.namespace, plan.name)
        except ObjectNotFound:
            return True
        return claim["metadata"]["uid"] != plan.uid or not claim.get("status", {}).get("reservedFor")

    async def wait_until_free(self, ref: ClaimRef, devices: Sequence[AllocatedDevice]) -> None:
        """Raise Busy where another claim holds a device. Waits first: a recreated pod is often prepared a moment before
        its predecessor is unprepared, and the kubelet retries only after some time."""
        end = asyncio.get_running_loop().time() + self._patience
        while problems := self._held_by_others(ref, devices):
            if asyncio.get_running_loop().time() >= end:
                raise Busy("; ".join(problems))
            await asyncio.sleep(_POLL_SECONDS)

    def _held_by_others(self, ref: ClaimRef, devices: Sequence[AllocatedDevice]) -> list[str]:
        problems = []
        for item in devices:
            if item.admin:
                continue  # admin access takes nothing from other claims
            holder = self._store.holder(item.device, item.share_id, other_than=ref.uid)
            if holder is not None:
                problems.append(f"device {item.device} is held by {holder}; that claim must be released first")
            elif (other := self._prepared_for(item)) is not None:
                problems.append(f"device {item.device} is being prepared for claim {other}")
        return problems

    def _prepared_for(self, item: AllocatedDevice) -> ClaimRef | None:
        """The claim for which the device, or one that excludes it, is being prepared now."""
        for (device, share_id), ref in self._preparing.items():
            same = device == item.device
            if (same and share_id == item.share_id) or (not same and exclude_each_other(device, item.device)):
                return ref
        return None
