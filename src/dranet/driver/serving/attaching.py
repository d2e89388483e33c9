"""Attaching that may take longer than its hook.

The runtime gives a plugin a few seconds and then starts the pod without it; eight cards of some machines take longer.
So the hook waits for as long as the runtime does, less what an answer needs, and then lets the sandbox start while the
cards are still on their way. Nothing runs without them: containers that name the claim wait for its receipt, the others
are refused by `CreateContainer`, and both are tried again by the kubelet. A driver that dies on the way finishes after
its restart, as for any pod that lacks its cards.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from dranet.basics.backoff import Backoff
from dranet.driver.claims.leases import Leases
from dranet.driver.moving.cards import Attached, Cards, tell
from dranet.driver.records.plan import ClaimPlan
from dranet.driver.serving.reports import Reports
from dranet.model.errors import DranetError
from dranet.nri.arrivals import RequestContext

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 60.0
"""For one try, which nobody waits for after the hook has answered."""
TRIES = 5
_FOR_THE_ANSWER = 0.2
"""The part of the runtime's time that is left for the answer, and at least a quarter of a second."""


@dataclass
class _Job:
    """One pod's cards on their way into one of its sandboxes."""

    netns: str
    plans: Sequence[ClaimPlan]
    stopped: threading.Event = field(default_factory=threading.Event)
    is_late: bool = False
    task: asyncio.Task[list[Attached]] | None = None


class Attaching:
    """Gives pods their cards, in the hook or after it."""

    def __init__(self, cards: Cards, reports: Reports, leases: Leases, delays: Backoff) -> None:
        self._cards = cards
        self._reports = reports
        self._leases = leases
        self._delays = delays
        self._jobs: dict[str, _Job] = {}
        self._background: set[asyncio.Task[None]] = set()

    async def attach(self, pod_uid: str, netns: str, plans: Sequence[ClaimPlan], context: RequestContext) -> None:
        """Returns when the cards are in, or when the runtime would not wait any longer; raises what went wrong."""
        job = self._jobs[pod_uid] = _Job(netns, plans)
        job.task = asyncio.create_task(self._try(pod_uid, job, context))
        await asyncio.wait({job.task}, timeout=time_for_work(context))
        if job.task.done():
            del self._jobs[pod_uid]
            # The runtime is answered first; telling everybody else takes as long as configuring the cards.
            asyncio.get_running_loop().call_soon(self._arrived, job, job.task.result())
            return
        job.is_late = True
        log.warning("the cards take longer than the runtime waits: the sandbox starts, its containers wait for them")
        self._reports.attach_deferred(plans)
        self._aside(self._finish(pod_uid, job, context))

    async def arrival(self, pod_uid: str, context: RequestContext) -> None:
        """Wait for cards that are on their way, as long as the runtime waits for us."""
        job = self._jobs.get(pod_uid)
        if job is not None and job.task is not None:
            await asyncio.wait({job.task}, timeout=time_for_work(context))

    def stop(self, pod_uid: str, netns: str) -> None:
        """The sandbox ends: cards that are on their way into it turn round."""
        job = self._jobs.get(pod_uid)
        if job is not None and netns in ("", job.netns):
            job.stopped.set()

    async def _try(self, pod_uid: str, job: _Job, context: RequestContext) -> list[Attached]:
        def given_up() -> bool:
            return job.stopped.is_set() or (not job.is_late and context.hung_up())

        return await asyncio.to_thread(
            self._cards.attach, pod_uid, job.netns, seconds=PATIENCE_SECONDS, given_up=given_up
        )

    async def _finish(self, pod_uid: str, job: _Job, context: RequestContext) -> None:
        """What was begun in the hook; tried again for a while, for nobody else would."""
        try:
            for _ in range(TRIES):
                assert job.task is not None
                try:
                    self._arrived(job, await job.task)
                    return
                except (DranetError, OSError) as error:
                    if job.stopped.is_set():
                        return
                    log.error("attaching failed: %s", error)
                    self._reports.attach_failed(job.plans, error)
                await asyncio.sleep(self._delays.next())
                job.task = asyncio.create_task(self._try(pod_uid, job, context))
        finally:
            if self._jobs.get(pod_uid) is job:
                del self._jobs[pod_uid]

    def _arrived(self, job: _Job, attached: list[Attached]) -> None:
        tell(attached, ", late" if job.is_late else "")
        self._reports.attached(job.plans, attached)
        self._leases.keep(job.plans, job.netns)
        self._aside(asyncio.to_thread(self._cards.announce, job.netns, attached))

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def time_for_work(context: RequestContext) -> float | None:
    """How long the runtime waits, less what an answer needs; None where it waits for ever."""
    left = context.remaining()
    return None if left is None else max(0.0, left - max(0.25, left * _FOR_THE_ANSWER))
