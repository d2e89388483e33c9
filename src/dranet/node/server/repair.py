"""Repair running pods whose NICs disappear or return, without a restart.

A NIC of a running pod may be unplugged, be reset by its driver, or be moved to the host by the pod itself. The kernel
reports none of this to the host's network namespace, so the driver looks at intervals. The repair is the one that
follows a restart: it removes nothing from the pod, reports what is missing, and attaches a NIC that is on the host.

Pods with child interfaces are left alone: a pod may delete its own child, and the driver would create it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dranet.core.errors import DranetError
from dranet.core.logs import get_logger, log_context
from dranet.node.claim_states import State, state_of
from dranet.node.records.plan import ClaimPlan
from dranet.node.server.attach import Attacher

log = get_logger(__name__)

_ATTEMPTS = 5
"""For a NIC on the host that cannot be attached again."""

Displaced = Mapping[str, bool]
"""The NICs of a claim that are not in their pod, each with whether it is on the host."""


class _Seen(NamedTuple):
    displaced: Displaced
    repairs: int = 0


class PodRepairs:
    """Compares the NICs of running pods with their plans, and repairs pods where something changed."""

    def __init__(self, attacher: Attacher, interval: float) -> None:
        self._attacher = attacher
        self._lifecycle = attacher.lifecycle
        self._interval = interval
        self._seen: dict[str, _Seen] = {}

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            try:
                await self.check()
            except (DranetError, OSError) as error:
                log.warning("Could not check the devices of running pods; will retry", error=error)
            await asyncio.sleep(self._interval)

    async def check(self) -> None:
        """Check all running pods once."""
        plans = self._plans()
        found = await asyncio.to_thread(lambda: [self._lifecycle.displaced(plan) for plan in plans])
        self._seen = {plan.uid: self._seen[plan.uid] for plan in plans if plan.uid in self._seen}
        for plan, displaced in zip(plans, found, strict=True):
            before = self._seen.get(plan.uid) or _Seen(dict.fromkeys(self._lifecycle.missing_of(plan.uid), False))
            if displaced is None or not _needs_repair(before, displaced):
                continue
            repairs = before.repairs + 1 if displaced == before.displaced else 1
            self._seen[plan.uid] = _Seen(displaced, repairs)
            await self._repair(plan, displaced)

    def _plans(self) -> Sequence[ClaimPlan]:
        plans = self._lifecycle.store.plans.values()
        with_children = {plan.pod.uid for plan in plans if plan.is_shared}
        return [plan for plan in plans if state_of(plan) is State.ATTACHED and plan.pod.uid not in with_children]

    async def _repair(self, plan: ClaimPlan, displaced: Displaced) -> None:
        assert plan.netns is not None
        with log_context(pod=plan.pod, claim=plan.ref):
            # The pod may have moved a NIC into a namespace of its own, as container runtimes inside pods do.
            if displaced:
                hidden = await asyncio.to_thread(self._lifecycle.are_elsewhere, plan, displaced)
                if hidden:
                    return
            log.warning("Devices of a running pod changed; repairing", devices=",".join(displaced) or "none missing")
            try:
                await self._attacher.attach_now(plan.pod.uid, plan.netns, "repair", repair_of=plan)
            except (DranetError, OSError) as error:
                log.error("Could not repair claim", error=error)


def _needs_repair(before: _Seen, displaced: Displaced) -> bool:
    if displaced != before.displaced:
        return True
    return any(displaced.values()) and before.repairs < _ATTEMPTS
