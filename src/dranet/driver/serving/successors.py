"""Pods that name a claim which another pod has, or had.

The kubelet prepares a claim once for all pods that name it, so the driver never hears of the second one: not when two
pods run side by side, and not when a pod was deleted by force and its successor has a new UID. A network card, and a
claim's share of one, belongs to one pod at a time. So a pod that starts beside plans of its namespace is asked for the
claims it names: while the first pod is still named in such a claim, the second waits and is told why; once it is gone,
the cards are handed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from dranet.driver.claims.allotment import claims_of
from dranet.driver.claims.leases import Leases
from dranet.driver.moving.cards import Cards, tell
from dranet.driver.records.plan import ClaimPlan, PodRef, Use
from dranet.driver.serving.containers import names_claim
from dranet.driver.serving.reports import Reports
from dranet.kube.errors import Forbidden, Missing
from dranet.model.errors import DranetError
from dranet.nri.messages import Container

log = logging.getLogger(__name__)

HAND_OVER_SECONDS = 30.0
"""No runtime waits for it; the pod's containers wait for the receipt."""


class Claims(Protocol):
    """Where claims and pods are read."""

    async def claim(self, namespace: str, name: str) -> Mapping[str, Any]: ...

    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None: ...


class Successors:
    """Watches pods that may be waiting for the cards of others; one task a pod."""

    def __init__(
        self, claims: Claims, cards: Cards, reports: Reports, leases: Leases, delays: Callable[[], Iterator[float]]
    ) -> None:
        self._claims = claims
        self._cards = cards
        self._reports = reports
        self._leases = leases
        self._delays = delays
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By the pod's UID."""
        self._named: dict[str, set[str]] = {}
        """The claims of pods that are being looked at."""

    def consider(self, pod: PodRef, netns: str) -> None:
        """A sandbox starts whose pod no plan knows. Costs nothing where no plan could be meant."""
        self.forget(pod.uid)
        if netns and self._others(pod):
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
                words = _in_words(plan)
                self._reports.must_wait(pod, words)
                return words
        return None

    def _others(self, pod: PodRef) -> list[ClaimPlan]:
        """Plans that the pod may name although they are another's: with something that only one pod can have."""
        return [
            plan
            for plan in self._cards.store.plans.values()
            if plan.namespace == pod.namespace
            and plan.pod.uid != pod.uid
            and any(device.use in (Use.MOVED, Use.SHARED) for device in plan.devices)
        ]

    async def _wait(self, pod: PodRef, netns: str) -> None:
        told: set[str] = set()
        for delay in self._delays():
            try:
                named = [plan for plan in self._others(pod) if plan.name in await self._names(pod)]
                waiting = [plan for plan in named if await self._is_meant(plan, pod, netns)]
            except (DranetError, OSError) as error:
                log.warning("pod %s may wait for a claim's cards; trying again: %s", pod, error)
            else:
                if not waiting:
                    return
                for plan in waiting:
                    if plan.uid not in told:
                        told.add(plan.uid)
                        self._reports.must_wait(pod, _in_words(plan))
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

    async def _is_meant(self, plan: ClaimPlan, pod: PodRef, netns: str) -> bool:
        """Whether the pod waits for this plan's cards. Hands them over where it is the only one that is left."""
        try:
            claim = await self._claims.claim(plan.namespace, plan.name)
        except Missing:
            return False
        users = {str(user.get("uid")) for user in claim.get("status", {}).get("reservedFor") or []}
        if claim["metadata"]["uid"] != plan.uid or pod.uid not in users:
            return False
        if plan.pod.uid in users:
            return True
        await self._hand_over(plan, pod, netns)
        return False

    async def _hand_over(self, plan: ClaimPlan, pod: PodRef, netns: str) -> None:
        log.info("claim %s: pod %s is gone, its cards go to %s", plan.ref, plan.pod, pod)
        self._leases.stop(plan)
        await asyncio.to_thread(self._cards.hand_over, plan.uid, pod)
        attached = await asyncio.to_thread(self._cards.attach, pod.uid, netns, seconds=HAND_OVER_SECONDS)
        tell(attached, ", after another pod")
        plans = self._cards.store.for_pod(pod.uid)
        self._reports.attached(plans, attached)
        self._leases.keep(plans, netns)
        await asyncio.to_thread(self._cards.announce, netns, attached)


def _in_words(plan: ClaimPlan) -> str:
    return (
        f"the cards of claim {plan.ref} are in pod {plan.pod}, and a network card belongs to one pod at a time; "
        "this pod gets them when that one has ended. For pods side by side use a claim template"
    )
