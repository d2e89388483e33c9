"""The runtime's hooks: a sandbox starts, a container is created, a sandbox stops.

The runtime waits for each answer and drops a plugin that is slow, so everything here is from memory and the kernel; the
API server is only told afterwards. A pod we know nothing of costs one look into a dictionary.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from dranet.driver.claims.leases import Leases
from dranet.driver.log_fields import about
from dranet.driver.moving.cards import Cards
from dranet.driver.records.plan import ClaimPlan, PodRef
from dranet.driver.serving.attaching import Attaching, time_for_work
from dranet.driver.serving.containers import adjustment
from dranet.driver.serving.metrics import HookMetrics
from dranet.driver.serving.reconcile import Reconciler
from dranet.driver.serving.reports import Reports
from dranet.driver.serving.sandboxes import Sandbox, by_pod, network_namespace
from dranet.driver.serving.successors import Successors
from dranet.kernel import namespaces
from dranet.model.errors import DranetError
from dranet.nri.arrivals import RequestContext
from dranet.nri.errors import CallError, Code
from dranet.nri.handler import Handler
from dranet.nri.messages import Container, ContainerUpdate, CreateContainerResponse, PodSandbox

log = logging.getLogger(__name__)

T = TypeVar("T")


class Hooks(Handler):
    """Our answers to the runtime."""

    def __init__(
        self,
        *,
        cards: Cards,
        attaching: Attaching,
        reports: Reports,
        reconciler: Reconciler,
        successors: Successors,
        leases: Leases,
        metrics: HookMetrics,
        on_returned: Callable[[], None],
        lift_memlock: bool = False,
    ) -> None:
        self._cards = cards
        self._attaching = attaching
        self._store = cards.store
        self._reports = reports
        self._reconciler = reconciler
        self._successors = successors
        self._leases = leases
        self._metrics = metrics
        self._on_returned = on_returned
        self._lift_memlock = lift_memlock
        self._returning: set[asyncio.Task[None]] = set()
        self.last_activity: dict[str, float] = {}
        """When each pod's containers were last created; shutdown waits for pods that are just starting."""

    async def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[Container], context: RequestContext
    ) -> Sequence[ContainerUpdate]:
        """Compare what exists with what should be, in the background: the runtime does not wait for repairs."""
        self._reconciler.start(by_pod(pods))
        for pod in pods:
            if _may_run(pod):
                self._successors.consider(_ref(pod), network_namespace(pod))
        return ()

    async def run_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """Give the pod its cards before it starts, or refuse it."""
        if not self._store.is_complete:
            self._reconciler.missed(pod.uid, Sandbox(network_namespace(pod)))
        await self._observed("RunPodSandbox", pod, lambda plans: self._run(pod, plans, context))
        self._successors.consider(_ref(pod), network_namespace(pod))

    async def _run(self, pod: PodSandbox, plans: list[ClaimPlan], context: RequestContext) -> None:
        _refuse_expired(context)
        netns = network_namespace(pod)
        try:
            if not netns:
                raise DranetError("the pod is on the host's network: cards are there already, a claim cannot move them")
            await self._attaching.attach(pod.uid, netns, plans, context)
        except (DranetError, OSError) as error:
            self._reports.attach_failed(plans, error)
            raise _refusal(f"network devices of pod {pod.namespace}/{pod.name}: {error}") from error

    async def create_container(
        self, pod: PodSandbox, container: Container, context: RequestContext
    ) -> CreateContainerResponse:
        """Refuse a container while cards of the pod are missing; else give it its devices."""
        shared = self._successors.refuse_shared(_ref(pod), container)
        if shared is not None:
            raise _refusal(f"container {container.name} must wait: {shared}")
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
        if self._missing(claims):
            await self._attaching.arrival(pod.uid, context)
        missing = self._missing(claims)
        if missing:
            names = ", ".join(missing)
            raise _refusal(f"container {container.name} must wait: the cards of claim {names} are not in the pod yet")
        seen = self._cards.receipts.seen_by_runtime
        return adjustment(plans, container, by_receipt=seen, lift_memlock=self._lift_memlock)

    def _missing(self, claims: Mapping[str, str]) -> list[str]:
        return [name for uid, name in claims.items() if not self._cards.receipts.exists(uid)]

    async def stop_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """Bring the cards home. Never refused: see `_stop`."""
        self._successors.forget(pod.uid)
        await self._observed("StopPodSandbox", pod, lambda plans: self._stop(pod, plans, context))

    async def _stop(self, pod: PodSandbox, plans: list[ClaimPlan], context: RequestContext) -> None:
        """Answers when the cards are home, or when the runtime would not wait any longer: the namespace they are in is
        held open, so that they come home from there whatever the runtime does to it."""
        netns = network_namespace(pod)
        self._attaching.stop(pod.uid, netns)
        returning = asyncio.create_task(self._bring_home(pod, netns, plans))
        self._returning.add(returning)
        returning.add_done_callback(self._returning.discard)
        await asyncio.wait({returning}, timeout=time_for_work(context))
        if returning.done():
            returning.result()
        else:
            log.warning(
                "bringing the cards home takes longer than the runtime waits: the sandbox ends, and the work goes on"
            )

    async def _bring_home(self, pod: PodSandbox, netns: str, plans: list[ClaimPlan]) -> None:
        """Never fails: a stop that is refused is only asked again, and nothing gets better by that.

        An earlier sandbox of the pod may be stopped late, or twice, when its successor has the cards already.
        """
        for plan in plans:
            if netns and plan.netns not in (None, netns):
                log.info("sandbox %s ended, the cards are in a later one", pod.id)
                continue
            self._leases.stop(plan)
            try:
                await asyncio.to_thread(self._cards.bring_home, plan.uid, stopping=netns)
            except (DranetError, OSError) as error:
                log.error("the cards of claim %s could not be brought home: %s", plan.ref, error)
        self._on_returned()

    async def remove_pod_sandbox(self, pod: PodSandbox, context: RequestContext) -> None:
        """The sandbox is gone; what is kept of it is forgotten."""
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
        """Work for a pod that has claims, counted and timed."""
        with about(pod=pod), self._metrics.observe(method) as outcome:
            plans = self._store.for_pod(pod.uid)
            log.debug("%s: %d claims", method, len(plans))
            if not plans and not self._store.unreadable_for_pod(pod.uid):
                outcome.noop()
                return None
            return await work(plans)


def _refuse_expired(context: RequestContext) -> None:
    """A request the runtime no longer waits for must not be carried out: its pod may be running by now."""
    if context.expired():
        raise _refusal("the runtime has given up on this request; it is not carried out late")


def _may_run(pod: PodSandbox) -> bool:
    """Whether a listed sandbox may be one that runs. In CRI-O none has a process, but its namespace is there."""
    netns = network_namespace(pod)
    return pod.pid != 0 or (bool(netns) and namespaces.exists(netns))


def _ref(pod: PodSandbox) -> PodRef:
    return PodRef(uid=pod.uid, name=pod.name, namespace=pod.namespace)


def _refusal(message: str) -> CallError:
    return CallError(Code.FAILED_PRECONDITION, message)
