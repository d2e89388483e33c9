"""Pods that name a claim which another pod has, or had.

The kubelet prepares a claim once for all pods that name it, so the driver never hears of the second one: not when two
pods run side by side, and not when a pod was deleted by force and its successor has a new UID. A network card, and a
child with an address of its own, belongs to one pod at a time. So a pod that starts beside plans of its namespace is
asked for the claims it names. Where each pod can have something of its own, it gets that. Else the second waits while
the first is still named in the claim, and is told why; once it is gone, the cards are handed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from dranet.driver.claims.allotment import ClaimError, claims_of
from dranet.driver.claims.further_pods import why_only_one_pod
from dranet.driver.claims.leases import Leases
from dranet.driver.moving.cards import Cards, tell
from dranet.driver.records.plan import ClaimPlan, PodRef, Use
from dranet.driver.serving.containers import names_claim
from dranet.driver.serving.reports import Reports
from dranet.kube.errors import Forbidden, Missing
from dranet.model.errors import DranetError, InvalidInput
from dranet.nri.messages import Container

log = logging.getLogger(__name__)

_SOMETHING = (Use.MOVED, Use.SHARED, Use.RDMA_ONLY)

HAND_OVER_SECONDS = 30.0
"""No runtime waits for it; the pod's containers wait for the receipt."""


class Claims(Protocol):
    """Where claims and pods are read."""

    async def claim(self, namespace: str, name: str) -> Mapping[str, Any]: ...

    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None: ...


class Joining(Protocol):
    """Who makes a plan for one more pod of a claim."""

    async def join(self, claim: Mapping[str, Any], user: PodRef) -> None: ...


class Successors:
    """Watches pods that may be waiting for the cards of others; one task a pod."""

    def __init__(
        self,
        claims: Claims,
        cards: Cards,
        reports: Reports,
        leases: Leases,
        delays: Callable[[], Iterator[float]],
        preparer: Joining,
    ) -> None:
        self._claims = claims
        self._preparer = preparer
        self._cards = cards
        self._reports = reports
        self._leases = leases
        self._delays = delays
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By the pod's UID."""
        self._named: dict[str, set[str]] = {}
        """The claims of pods that are being looked at."""

    def consider(self, pod: PodRef, netns: str) -> None:
        """A sandbox starts: its pod may name claims of others. Costs nothing where no plan could be meant."""
        self.forget(pod.uid)
        # A pod that has claims of its own is asked only where another's was not made from a template, for one pod.
        others = self._others(pod) if netns else []
        is_known = bool(others and self._cards.store.for_pod(pod.uid))
        if any(not (is_known and plan.pod_claim) for plan in others):
            task = asyncio.get_running_loop().create_task(self._wait(pod, netns))
            self._tasks[pod.uid] = task
            task.add_done_callback(lambda done: self._ended(pod.uid, done))

    def _ended(self, pod_uid: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(pod_uid) is task:
            del self._tasks[pod_uid]
            self._named.pop(pod_uid, None)

    def forget(self, pod_uid: str) -> None:
        """Its sandbox has ended."""
        if (task := self._tasks.pop(pod_uid, None)) is not None:
            task.cancel()

    def refuse_shared(self, pod: PodRef, container: Container) -> str | None:
        """Why a container of this pod must not start, in words: it names a claim whose cards another pod has."""
        for plan in self._others(pod):
            if names_claim(container, plan):
                words = why_only_one_pod(plan) or f"it has nothing of claim {plan.ref} yet"
                self._reports.must_wait(pod, words)
                return words
        return None

    def _others(self, pod: PodRef) -> list[ClaimPlan]:
        """First plans of claims that the pod may name and has nothing of."""
        plans = self._cards.store.plans.values()
        own = {plan.ref.uid for plan in plans if plan.pod.uid == pod.uid and not plan.is_joining}
        return [
            plan
            for plan in plans
            if plan.namespace == pod.namespace
            and not plan.is_beside
            and plan.uid not in own
            and any(device.use in _SOMETHING for device in plan.devices)
        ]

    async def _wait(self, pod: PodRef, netns: str) -> None:
        told: set[str] = set()
        for delay in self._delays():
            try:
                named = [plan for plan in self._others(pod) if plan.name in await self._names(pod)]
                waiting = {words for plan in named if (words := await self._must_wait(plan, pod, netns))}
            except (DranetError, OSError) as error:
                log.warning("pod %s may wait for a claim's cards; trying again: %s", pod, error)
            else:
                if not waiting:
                    return
                for words in waiting - told:
                    self._reports.must_wait(pod, words)
                told |= waiting
            await asyncio.sleep(delay)

    async def _names(self, pod: PodRef) -> set[str]:
        """The claims that the pod names; one request, and it ends here for nearly all pods.

        Where pods may not be read it could be any: each claim tells who uses it.
        """
        if pod.uid not in self._named:
            try:
                found = await self._claims.pod(pod.namespace, pod.name)
            except Forbidden:
                return {plan.name for plan in self._others(pod)}
            mine = found is not None and found["metadata"]["uid"] == pod.uid
            self._named[pod.uid] = claims_of(found) if mine and found else set()
        return self._named[pod.uid]

    async def _must_wait(self, plan: ClaimPlan, pod: PodRef, netns: str) -> str:
        """Why the pod waits for this plan's cards, in words; empty where it does not. It gets its own where that can
        be, and these where their pod is not named in the claim any more."""
        try:
            claim = await self._claims.claim(plan.namespace, plan.name)
        except Missing:
            return ""
        users = {str(user.get("uid")) for user in claim.get("status", {}).get("reservedFor") or []}
        if claim["metadata"]["uid"] != plan.uid or pod.uid not in users:
            return ""
        if plan.pod.uid not in users:
            await self._hand_over(plan, pod, netns)
            return ""
        try:
            await self._preparer.join(claim, pod)
        except (ClaimError, InvalidInput) as error:
            return str(error)
        await self._give(pod, netns, ", beside another pod")
        return ""

    async def _hand_over(self, plan: ClaimPlan, pod: PodRef, netns: str) -> None:
        log.info("claim %s: pod %s is gone, its cards go to %s", plan.ref, plan.pod, pod)
        self._leases.stop(plan)
        await asyncio.to_thread(self._cards.hand_over, plan.uid, pod)
        await self._give(pod, netns, ", after another pod")

    async def _give(self, pod: PodRef, netns: str, how: str) -> None:
        attached = await asyncio.to_thread(self._cards.attach, pod.uid, netns, seconds=HAND_OVER_SECONDS)
        tell(attached, how)
        plans = self._cards.store.for_pod(pod.uid)
        self._reports.attached(plans, attached)
        self._leases.keep(plans, netns)
        await asyncio.to_thread(self._cards.announce, netns, attached)
