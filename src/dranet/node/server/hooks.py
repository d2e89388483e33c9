"""The runtime's hooks: a sandbox starts, a container is created, a sandbox stops.

The runtime waits for each reply and drops a slow plugin, so hooks use only memory and the kernel; status and events are
written afterwards. A pod without claims costs one dictionary lookup.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from dranet.core.errors import DranetError
from dranet.core.logs import get_logger, log_context
from dranet.kubernetes.nri.errors import CallError, Code
from dranet.kubernetes.nri.handler import Handler
from dranet.kubernetes.nri.messages import Container, ContainerUpdate, CreateContainerResponse, PodSandbox
from dranet.kubernetes.nri.request_context import RequestContext
from dranet.node.records.plan import ClaimPlan
from dranet.node.server.attach import Attacher, time_for_work
from dranet.node.server.handover import ClaimHandover
from dranet.node.server.metrics import HookMetrics
from dranet.node.server.recovery import Reconciler
from dranet.node.server.runtime import (
    Sandbox,
    container_adjustment,
    may_run,
    network_namespace,
    pod_ref,
    sandboxes_by_pod,
)

log = get_logger(__name__)

T = TypeVar("T")


class Hooks(Handler):
    """The driver's replies to the runtime."""

    def __init__(
        self,
        *,
        attacher: Attacher,
        reconciler: Reconciler,
        handover: ClaimHandover,
        metrics: HookMetrics,
        on_detached: Callable[[], None],
        lift_memlock: bool = False,
    ) -> None:
        self._attacher = attacher
        self._lifecycle = attacher.lifecycle
        self._store = attacher.lifecycle.store
        self._reconciler = reconciler
        self._handover = handover
        self._metrics = metrics
        self._on_detached = on_detached
        self._lift_memlock = lift_memlock
        self._detaching: set[asyncio.Task[None]] = set()
        self._namespaces: dict[str, str] = {}
        """By sandbox ID. containerd 1.7 names no namespace for a sandbox whose process died."""
        self.last_activity: dict[str, float] = {}
        """When each pod's containers were last created; shutdown waits for pods that are starting."""

    async def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[Container], context: RequestContext
    ) -> Sequence[ContainerUpdate]:
        """Reconcile in the background: the runtime does not wait for repairs."""
        self._reconciler.start(sandboxes_by_pod(pods))
        self._namespaces = {pod.id: network_namespace(pod) for pod in pods if network_namespace(pod)}
        for pod in pods:
            if may_run(pod):
                self._handover.watch(pod_ref(pod), network_namespace(pod))
        return ()

    async def run_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """Attach the pod's devices before it starts, or refuse it."""
        self._namespaces[pod.id] = network_namespace(pod)
        if not self._store.is_complete:
            self._reconciler.add_sandbox(pod.uid, Sandbox(network_namespace(pod)))
        await self._observed("RunPodSandbox", pod, lambda plans: self._run(pod, plans, context))
        self._handover.watch(pod_ref(pod), network_namespace(pod))

    async def _run(self, pod: PodSandbox, plans: list[ClaimPlan], context: RequestContext) -> None:
        _refuse_expired(context)
        netns = network_namespace(pod)
        try:
            if not netns:
                raise DranetError("the pod uses hostNetwork, so its claim cannot move devices; remove one of the two")
            await self._attacher.attach_in_hook(pod.uid, netns, plans, context)
        except (DranetError, OSError) as error:
            self._attacher.reports.attach_failed(plans, error)
            raise _refusal(f"network devices of pod {pod.namespace}/{pod.name}: {error}") from error

    async def create_container(
        self, pod: PodSandbox, container: Container, context: RequestContext
    ) -> CreateContainerResponse:
        """Refuse a container while devices of the pod are missing; otherwise give it its RDMA devices."""
        reason = self._handover.why_refused(pod_ref(pod), container)
        if reason is not None:
            raise _refusal(f"container {container.name} must wait: {reason}")
        return (
            await self._observed("CreateContainer", pod, lambda plans: self._create(pod, container, plans, context))
            or CreateContainerResponse()
        )

    async def _create(
        self, pod: PodSandbox, container: Container, plans: list[ClaimPlan], context: RequestContext
    ) -> CreateContainerResponse:
        _refuse_expired(context)
        self.last_activity[pod.uid] = time.monotonic()
        claims = {plan.uid: str(plan.ref) for plan in plans}
        claims |= {uid: f"{uid} ({reason})" for uid, reason in self._store.unreadable_for_pod(pod.uid).items()}
        if self._not_attached(claims):
            await self._attacher.wait(pod.uid, context)
        if missing := self._not_attached(claims):
            names = ", ".join(missing)
            raise _refusal(f"container {container.name} must wait: devices of claim {names} are not attached yet")
        gates_visible = self._lifecycle.gates.visible_to_runtime
        return container_adjustment(plans, container, gates_visible=gates_visible, lift_memlock=self._lift_memlock)

    def _not_attached(self, claims: Mapping[str, str]) -> list[str]:
        return [name for uid, name in claims.items() if not self._lifecycle.gates.exists(uid)]

    async def stop_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """Detach the pod's devices. Never refused: see `_detach`."""
        self._handover.forget(pod.uid)
        await self._observed("StopPodSandbox", pod, lambda plans: self._stop(pod, plans, context))
        self._lifecycle.release_namespaces()

    async def _stop(self, pod: PodSandbox, plans: list[ClaimPlan], context: RequestContext) -> None:
        """Replies when the devices are detached, or when the runtime would not wait any longer. The driver holds the
        namespace open, so that the devices return whatever the runtime does to it."""
        known = self._namespaces.pop(pod.id, "")
        netns = network_namespace(pod) or known
        self._attacher.stop(pod.uid, netns)
        detaching = asyncio.create_task(self._detach(pod, netns, plans))
        self._detaching.add(detaching)
        detaching.add_done_callback(self._detaching.discard)
        await asyncio.wait({detaching}, timeout=time_for_work(context))
        if detaching.done():
            detaching.result()
        else:
            log.warning("Detach exceeds the NRI timeout; continuing in the background")

    async def _detach(self, pod: PodSandbox, netns: str, plans: list[ClaimPlan]) -> None:
        """Never fails: the runtime would only repeat a refused stop, which changes nothing.

        An earlier sandbox of the pod may be stopped late, or twice, when a later one has the devices already.
        """
        for plan in plans:
            of_another = not netns and plan.netns in self._namespaces.values()
            if of_another or (netns and plan.netns not in (None, netns)):
                log.info("Sandbox stopped; a later sandbox of the pod has the devices", sandbox=pod.id)
                continue
            self._attacher.leases.stop(plan)
            try:
                await asyncio.to_thread(self._lifecycle.detach, plan.uid, stopping=netns)
            except (DranetError, OSError) as error:
                log.error("Could not detach the devices of a claim", claim=plan.ref, error=error)
        self._on_detached()

    async def remove_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """Forget the activity of a removed sandbox."""
        self.last_activity.pop(pod.uid, None)
        await self._observed("RemovePodSandbox", pod, self._nothing)

    async def _nothing(self, plans: list[ClaimPlan]) -> None:
        return

    async def _observed(
        self,
        method: str,
        pod: PodSandbox,
        work: Callable[[list[ClaimPlan]], Awaitable[T]],
    ) -> T | None:
        """Count and time the work for a pod that has claims."""
        with log_context(pod=pod), self._metrics.observe(method) as outcome:
            plans = self._store.for_pod(pod.uid)
            log.debug("Received hook", method=method, claims=len(plans))
            if not plans and not self._store.unreadable_for_pod(pod.uid):
                outcome.noop()
                return None
            return await work(plans)


def _refuse_expired(context: RequestContext) -> None:
    """A request that the runtime no longer waits for must not be carried out: its pod may be running by now."""
    if context.expired():
        raise _refusal("the request expired before the driver could start; the runtime no longer waits for it")


def _refusal(message: str) -> CallError:
    return CallError(Code.FAILED_PRECONDITION, message)
