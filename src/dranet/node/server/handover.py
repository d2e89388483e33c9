"""Claim handover: pods that name a claim which another pod uses or used.

The kubelet prepares a claim once for all pods that name it, so the driver does not learn of the second pod: neither
when two pods run at the same time, nor when a pod was force-deleted and its successor has a new UID. A network
interface, and a child interface with an address of its own, is in one pod at a time. For a pod that starts while its
namespace has other plans, the driver therefore reads which claims it names. Where each pod can have its own child
interface, it gets one. Otherwise the second pod waits while the claim is reserved for the first one, with an event that
says why; after that the devices are handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from dranet.core.errors import DranetError, InvalidInput
from dranet.core.logs import get_logger, log_context
from dranet.kubernetes.api.errors import Forbidden, ObjectNotFound
from dranet.kubernetes.nri.messages import Container
from dranet.node.claims.allocation import ClaimError, ClusterReader, claim_names
from dranet.node.claims.prepare import Preparer
from dranet.node.claims.shared_claims import why_exclusive
from dranet.node.records.plan import AttachMode, ClaimPlan, PodRef
from dranet.node.server.attach import Attacher
from dranet.node.server.runtime import names_claim

log = get_logger(__name__)

_ATTACHING_MODES = (AttachMode.MOVED, AttachMode.SHARED, AttachMode.RDMA_ONLY)


class ClaimHandover:
    """Watches pods that may wait for the devices of others, with one task for each pod."""

    def __init__(
        self,
        cluster: ClusterReader,
        attacher: Attacher,
        preparer: Preparer,
        delays: Callable[[], Iterator[float]],
    ) -> None:
        self._cluster = cluster
        self._attacher = attacher
        self._preparer = preparer
        self._store = attacher.lifecycle.store
        self._delays = delays
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By pod UID."""
        self._claim_names: dict[str, set[str]] = {}
        """The claims of watched pods, by pod UID."""

    def watch(self, pod: PodRef, netns: str) -> None:
        """Watch a pod whose sandbox starts, if it may name claims of others. Otherwise this costs nothing."""
        self.forget(pod.uid)
        # A pod with claims of its own is watched only where another pod's claim does not come from a template.
        others = self._plans_of_others(pod) if netns else []
        has_claims = bool(others and self._store.for_pod(pod.uid))
        if any(not (has_claims and plan.pod_claim) for plan in others):
            task = asyncio.get_running_loop().create_task(self._wait(pod, netns))
            self._tasks[pod.uid] = task
            task.add_done_callback(lambda done: self._done(pod.uid, done))

    def _done(self, pod_uid: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(pod_uid) is task:
            del self._tasks[pod_uid]
            self._claim_names.pop(pod_uid, None)

    def forget(self, pod_uid: str) -> None:
        """Stop watching a pod whose sandbox stopped."""
        if (task := self._tasks.pop(pod_uid, None)) is not None:
            task.cancel()

    def why_refused(self, pod: PodRef, container: Container) -> str | None:
        """Why a container must not start: it names a claim whose devices another pod has."""
        for plan in self._plans_of_others(pod):
            if names_claim(container, plan):
                reason = why_exclusive(plan) or f"claim {plan.ref} is not attached to this pod yet"
                self._attacher.reports.pod_waits(pod, reason)
                return reason
        return None

    def _plans_of_others(self, pod: PodRef) -> list[ClaimPlan]:
        """First plans of claims that the pod may name and has no plan of."""
        plans = self._store.plans.values()
        own = {plan.ref.uid for plan in plans if plan.pod.uid == pod.uid and not plan.is_unfinished_addition}
        return [
            plan
            for plan in plans
            if plan.namespace == pod.namespace
            and not plan.is_additional
            and plan.uid not in own
            and any(device.mode in _ATTACHING_MODES for device in plan.devices)
        ]

    async def _wait(self, pod: PodRef, netns: str) -> None:
        reported: set[str] = set()
        with log_context(pod=pod):
            for delay in self._delays():
                try:
                    named = [plan for plan in self._plans_of_others(pod) if plan.name in await self._names(pod)]
                    waiting = {reason for plan in named if (reason := await self._why_waiting(plan, pod, netns))}
                except (DranetError, OSError) as error:
                    log.warning("Could not hand over a claim to the pod; will retry", error=error)
                else:
                    if not waiting:
                        return
                    for reason in waiting - reported:
                        self._attacher.reports.pod_waits(pod, reason)
                    reported |= waiting
                await asyncio.sleep(delay)

    async def _names(self, pod: PodRef) -> set[str]:
        """The claims that the pod names; for nearly all pods this one request is the only one.

        Where pods may not be read, any claim may be meant; each claim then says which pods it is reserved for.
        """
        if pod.uid not in self._claim_names:
            try:
                found = await self._cluster.pod(pod.namespace, pod.name)
            except Forbidden:
                return {plan.name for plan in self._plans_of_others(pod)}
            is_same = found is not None and found["metadata"]["uid"] == pod.uid
            self._claim_names[pod.uid] = claim_names(found) if is_same and found else set()
        return self._claim_names[pod.uid]

    async def _why_waiting(self, plan: ClaimPlan, pod: PodRef, netns: str) -> str:
        """Why the pod waits for this plan's devices; empty where it does not. It gets child interfaces of its own where
        possible, and these devices where the claim is not reserved for their pod any more."""
        try:
            claim = await self._cluster.claim(plan.namespace, plan.name)
        except ObjectNotFound:
            return ""
        users = {str(user.get("uid")) for user in claim.get("status", {}).get("reservedFor") or []}
        if claim["metadata"]["uid"] != plan.uid or pod.uid not in users:
            return ""
        if plan.pod.uid not in users:
            await self._hand_over(plan, pod, netns)
            return ""
        try:
            await self._preparer.add_pod(claim, pod)
        except (ClaimError, InvalidInput) as error:
            return str(error)
        await self._attacher.attach_now(pod.uid, netns, "additional pod")
        return ""

    async def _hand_over(self, plan: ClaimPlan, pod: PodRef, netns: str) -> None:
        log.info("Handing over claim from a deleted pod", claim=plan.ref, previous_pod=plan.pod)
        self._attacher.leases.stop(plan)
        await asyncio.to_thread(self._attacher.lifecycle.hand_over, plan.uid, pod)
        await self._attacher.attach_now(pod.uid, netns, "claim handover")
