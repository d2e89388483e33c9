"""After a restart of anything: what the store says, what the runtime has and what the kernel shows, made to agree.

Runs whenever the runtime connects. A pod that should have its cards and has not gets them now (its containers wait for
the receipt and start by themselves). A card whose pod is gone comes home. A plan without a pod is left alone: it was
prepared a moment ago and its sandbox is about to start; only the kubelet ends a plan. Hooks go on while we compare:
what they have changed since the runtime told us what exists is newer than our picture, and stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dranet.driver.claims.leases import Leases
from dranet.driver.log_fields import about
from dranet.driver.moving.cards import Cards, tell
from dranet.driver.records.plan import ClaimPlan
from dranet.driver.serving.reports import Reports
from dranet.driver.serving.sandboxes import Listed, Sandbox, with_cards
from dranet.model.errors import DranetError

log = logging.getLogger(__name__)

REPAIR_SECONDS = 30.0
"""A repair has no runtime waiting for it."""


class Reconciler:
    """Compares and repairs; one run at a time, the newest picture wins."""

    def __init__(
        self,
        cards: Cards,
        reports: Reports,
        leases: Leases,
        *,
        rebuild: Callable[[Listed], Awaitable[None]] | None = None,
        on_returned: Callable[[], None] = lambda: None,
    ) -> None:
        self._cards = cards
        self._reports = reports
        self._leases = leases
        self._rebuild = rebuild
        self._on_returned = on_returned
        self._listed: dict[str, list[Sandbox]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self, listed: Listed) -> None:
        """Reconcile with this picture in the background."""
        if self._task is not None:
            self._task.cancel()
        self._listed = {uid: list(sandboxes) for uid, sandboxes in listed.items()}
        self._task = asyncio.get_running_loop().create_task(self.run(self._listed))

    def missed(self, pod_uid: str, sandbox: Sandbox) -> None:
        """A sandbox started while plans are being rebuilt and nobody knew of its claims: it joins the picture."""
        self._listed.setdefault(pod_uid, []).append(sandbox)

    async def settled(self) -> None:
        """Wait for the run under way, if any."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def run(self, listed: Listed) -> None:
        """Compare every plan with the sandboxes and the kernel, and repair what differs. One failure stops no other."""
        if self._rebuild is not None:
            await self._rebuild(listed)
        known = self._cards.store.plans.values()
        plans = sorted((plan for plan in known if not plan.is_joining), key=lambda plan: plan.uid)
        for plan in plans:
            with about(pod=plan.pod, claim=plan.ref):
                try:
                    await self._one(plan, with_cards(plan, listed.get(plan.pod.uid, ())))
                except (DranetError, OSError) as error:
                    log.error("cannot be repaired: %s", error)
                    self._reports.attach_failed([plan], error)
        await asyncio.to_thread(self._cards.prune)
        log.info("compared %d claims with the runtime's pods", len(plans))

    async def _one(self, plan: ClaimPlan, netns: str | None) -> None:
        if netns is None:
            if plan.netns is not None:
                await self._home(plan)
            return
        if plan.netns == netns and await asyncio.to_thread(self._is_right, plan):
            self._leases.keep([plan], netns)
            return
        log.warning("the pod runs without its cards; attaching them now")
        attached = await asyncio.to_thread(
            self._cards.attach, plan.pod.uid, netns, seconds=REPAIR_SECONDS, repair_of=plan
        )
        if not attached:
            return
        tell(attached, ", late")
        plans = self._cards.store.for_pod(plan.pod.uid)
        self._reports.attached(plans, attached)
        self._leases.keep(plans, netns)
        await asyncio.to_thread(self._cards.announce, netns, attached)

    def _is_right(self, plan: ClaimPlan) -> bool:
        return self._cards.receipts.exists(plan.uid) and self._cards.is_attached(plan)

    async def _home(self, plan: ClaimPlan) -> None:
        log.info("the pod is gone; bringing its cards home")
        self._leases.stop(plan)
        await asyncio.to_thread(self._cards.bring_home, plan.uid, unless_moved_since=plan)
        self._on_returned()
