"""Who holds a device that is to be prepared: a claim with a plan, one being prepared now, or nobody any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from dranet.driver.claims.allotment import Allotted
from dranet.driver.records.plan import ClaimPlan
from dranet.driver.store import Store
from dranet.kube.errors import Missing
from dranet.model.errors import Busy
from dranet.model.names import ClaimRef, exclude_each_other

log = logging.getLogger(__name__)

HOLDER_POLL_SECONDS = 0.1


class ClusterSide(Protocol):
    """What is asked of the API server."""

    async def claim(self, namespace: str, name: str) -> Mapping[str, Any]: ...


class Holders:
    """Lets a claim have its devices when nobody else has them."""

    def __init__(self, store: Store, cluster: ClusterSide, boot: str, patience: float) -> None:
        self._store, self._cluster, self._boot, self._patience = store, cluster, boot, patience
        self._under_way: dict[tuple[str, str | None], ClaimRef] = {}
        """Devices that are being prepared now, and for which claim: no store knows of those yet."""

    @contextmanager
    def taken(self, ref: ClaimRef, given: Sequence[Allotted]) -> Iterator[None]:
        """They are being prepared for this claim meanwhile."""
        devices = {(item.device, item.share_id) for item in given if not item.admin}
        self._under_way |= dict.fromkeys(devices, ref)
        try:
            yield
        finally:
            for device in devices:
                del self._under_way[device]

    async def end_plans_of_the_past(
        self, ref: ClaimRef, given: Sequence[Allotted], end: Callable[[ClaimPlan], Awaitable[None]]
    ) -> None:
        """The end of a claim does not wait for the disk, so a machine or a driver that dies may bring its plan back.
        Nobody will unprepare that again; that its devices are given to another claim brings it to light, and the
        cluster decides."""
        for plan in [plan for plan in self._store.plans.values() if self._may_be_nobodys(plan)]:
            wanted = any(d.conflicts(item.device, item.share_id) for d in plan.devices for item in given)
            if plan.uid != ref.uid and wanted and await self._has_ended(plan):
                log.info("claim %s has ended, and nobody told this driver; its plan is deleted", plan.ref)
                await end(plan)

    def _may_be_nobodys(self, plan: ClaimPlan) -> bool:
        """From before a restart of the machine; or another driver's, in no pod; or of a further pod, of a claim that an
        older driver has ended."""
        at_home = plan.netns is None and self._store.is_inherited(plan.uid)
        return plan.boot != self._boot or at_home or (plan.is_beside and plan.ref.uid not in self._store.plans)

    async def _has_ended(self, plan: ClaimPlan) -> bool:
        try:
            claim = await self._cluster.claim(plan.namespace, plan.name)
        except Missing:
            return True
        return claim["metadata"]["uid"] != plan.uid or not claim.get("status", {}).get("reservedFor")

    async def wait(self, ref: ClaimRef, given: Sequence[Allotted]) -> None:
        """Refuse devices that another claim holds, but not at once: a pod made anew is often prepared a moment before
        its predecessor is unprepared, and the kubelet takes its time to ask again."""
        end = asyncio.get_running_loop().time() + self._patience
        while problems := self._held_by_others(ref, given):
            if asyncio.get_running_loop().time() >= end:
                raise Busy("; ".join(problems))
            await asyncio.sleep(HOLDER_POLL_SECONDS)

    def _held_by_others(self, ref: ClaimRef, given: Sequence[Allotted]) -> list[str]:
        problems = []
        for item in given:
            if item.admin:
                continue  # looking takes nothing from anybody
            holder = self._store.holder(item.device, item.share_id, other_than=ref.uid)
            if holder is not None:
                problems.append(f"device {item.device} is held by {holder}; it must end first")
            elif (other := self._preparing(item)) is not None:
                problems.append(f"device {item.device} is just being prepared for claim {other}")
        return problems

    def _preparing(self, item: Allotted) -> ClaimRef | None:
        """For which claim the device, or one that excludes it, is being prepared now."""
        for (device, share_id), ref in self._under_way.items():
            same = device == item.device
            if (same and share_id == item.share_id) or (not same and exclude_each_other(device, item.device)):
                return ref
        return None
