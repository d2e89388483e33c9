"""Attach the devices of a pod, in its hook or in the background.

The runtime gives a plugin a few seconds and then starts the pod without it; eight NICs of some machines take longer.
The hook therefore waits as long as the runtime does, minus the time for the reply, and then lets the sandbox start
while the attach continues. No container runs without its devices: containers that name the claim wait for its readiness
gate, `CreateContainer` refuses the others, and the kubelet retries both. A driver that crashes in between continues
after its restart, as for any pod without its devices.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from dranet.core.backoff import Backoff
from dranet.core.errors import DranetError
from dranet.core.logs import get_logger
from dranet.kubernetes.nri.request_context import RequestContext
from dranet.node.claims.leases import Leases
from dranet.node.lifecycle.device_lifecycle import AttachedDevice, DeviceLifecycle, log_attached
from dranet.node.records.plan import ClaimPlan, DevicePlan
from dranet.node.server.reports import Reports

log = get_logger(__name__)

_ATTACH_SECONDS = 60.0
"""For one attempt, which nothing waits for once the hook has replied."""
_BACKGROUND_SECONDS = 30.0
"""For an attach outside a hook: no runtime waits for it."""
_ATTEMPTS = 5
_ANNOUNCEMENTS = 3
_ANNOUNCE_SECONDS = 0.5
"""Between two announcements, and between two reads of a link without a carrier."""
_CARRIER_SECONDS = 120.0
"""A link without a carrier for so long is a fault, which health reports."""
_REPLY_SHARE = 0.2
"""The share of the runtime's timeout that is left for the reply; at least a quarter of a second."""


@dataclass
class _Job:
    """The attach of one pod's devices to one of its sandboxes."""

    netns: str
    plans: Sequence[ClaimPlan]
    stopped: threading.Event = field(default_factory=threading.Event)
    is_late: bool = False
    task: asyncio.Task[list[AttachedDevice]] | None = None


class Attacher:
    """Attaches devices, then logs, reports, renews leases and announces addresses."""

    def __init__(
        self,
        lifecycle: DeviceLifecycle,
        reports: Reports,
        leases: Leases,
        delays: Backoff,
        *,
        announce_seconds: float = _ANNOUNCE_SECONDS,
    ) -> None:
        self.lifecycle = lifecycle
        self.reports = reports
        self.leases = leases
        self._delays = delays
        self._announce_seconds = announce_seconds
        self._jobs: dict[str, _Job] = {}
        self._background: set[asyncio.Task[None]] = set()

    async def attach_in_hook(
        self, pod_uid: str, netns: str, plans: Sequence[ClaimPlan], context: RequestContext
    ) -> None:
        """Returns when the devices are attached, or when the runtime would not wait any longer; raises on failure."""
        job = self._jobs[pod_uid] = _Job(netns, plans)
        job.task = asyncio.create_task(self._try(pod_uid, job, context))
        await asyncio.wait({job.task}, timeout=time_for_work(context))
        if job.task.done():
            del self._jobs[pod_uid]
            # The reply goes first: reporting takes as long as configuring the devices.
            asyncio.get_running_loop().call_soon(self._after_attach, plans, netns, job.task.result())
            return
        job.is_late = True
        log.warning("Attach exceeds the NRI timeout; continuing in the background")
        self.reports.attach_deferred(plans)
        self._in_background(self._finish(pod_uid, job, context))

    async def attach_now(self, pod_uid: str, netns: str, reason: str, *, repair_of: ClaimPlan | None = None) -> None:
        """Attach the devices of a pod outside its hook, for this reason."""
        attached = await asyncio.to_thread(
            self.lifecycle.attach, pod_uid, netns, seconds=_BACKGROUND_SECONDS, repair_of=repair_of
        )
        if repair_of is not None and not attached:
            return
        self._after_attach(self.lifecycle.store.for_pod(pod_uid), netns, attached, reason)

    async def wait(self, pod_uid: str, context: RequestContext) -> None:
        """Wait for an attach that continues in the background, as long as the runtime waits for the reply."""
        job = self._jobs.get(pod_uid)
        if job is not None and job.task is not None:
            await asyncio.wait({job.task}, timeout=time_for_work(context))

    def stop(self, pod_uid: str, netns: str) -> None:
        """Cancel an attach to a sandbox that stops."""
        job = self._jobs.get(pod_uid)
        if job is not None and netns in ("", job.netns):
            job.stopped.set()

    async def _try(self, pod_uid: str, job: _Job, context: RequestContext) -> list[AttachedDevice]:
        def cancelled() -> bool:
            return job.stopped.is_set() or (not job.is_late and context.hung_up())

        return await asyncio.to_thread(
            self.lifecycle.attach, pod_uid, job.netns, seconds=_ATTACH_SECONDS, cancelled=cancelled
        )

    async def _finish(self, pod_uid: str, job: _Job, context: RequestContext) -> None:
        """Finish an attach of the hook. Retries for some time, because nothing else would."""
        try:
            for _ in range(_ATTEMPTS):
                assert job.task is not None
                try:
                    self._after_attach(job.plans, job.netns, await job.task, "late")
                    return
                except (DranetError, OSError) as error:
                    if job.stopped.is_set():
                        return
                    log.error("Attach failed in the background", error=error)
                    self.reports.attach_failed(job.plans, error)
                await asyncio.sleep(self._delays.next())
                job.task = asyncio.create_task(self._try(pod_uid, job, context))
        finally:
            if self._jobs.get(pod_uid) is job:
                del self._jobs[pod_uid]

    def _after_attach(
        self, plans: Sequence[ClaimPlan], netns: str, attached: Sequence[AttachedDevice], reason: str = ""
    ) -> None:
        """Log, report, renew and announce; `reason` says why the devices were not attached in the hook."""
        log_attached(attached, reason)
        self.reports.attached(plans, attached)
        self.leases.keep(plans, netns)
        addressed = [i.device for i in attached if i.link and i.device.pod_config and i.device.pod_config.addresses]
        if addressed:
            self._in_background(self._announce(netns, addressed))

    async def _announce(self, netns: str, devices: Sequence[DevicePlan]) -> None:
        """Announce addresses as soon as their links have a carrier, which real hardware takes seconds to find, and
        repeat: switches drop packets for a moment after a carrier appears."""
        left, end = (
            dict.fromkeys((device.key for device in devices), _ANNOUNCEMENTS),
            time.monotonic() + _CARRIER_SECONDS,
        )
        while left and time.monotonic() < end:
            due = [device for device in devices if device.key in left]
            waiting = await asyncio.to_thread(self.lifecycle.announce_addresses, netns, due)
            done = {device.key for device in due} - {device.key for device in waiting}
            left = {key: count - (key in done) for key, count in left.items() if count > (key in done)}
            await asyncio.sleep(self._announce_seconds)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def time_for_work(context: RequestContext) -> float | None:
    """How long the runtime waits, minus the time for the reply; None where it waits forever."""
    left = context.remaining()
    return None if left is None else max(0.0, left - max(0.25, left * _REPLY_SHARE))
