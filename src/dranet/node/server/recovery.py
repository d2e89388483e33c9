"""After a restart: recover lost plans, then make store, runtime and kernel agree.

Reconciliation runs whenever the runtime connects. A pod without its devices gets them now (its containers wait for the
readiness gate and start by themselves). The devices of a deleted pod are detached. A plan without a pod stays: it was
prepared a moment ago and its sandbox is about to start; only the kubelet releases a plan. Hooks continue in the
meantime: what they changed since the runtime listed its sandboxes is newer than the list, and stays.

Recovery runs first where the store started empty. A claim whose pod runs gets a plan from the devices that are found in
the pod, and from their published attributes (name, MTU, addresses): less than the store had, but enough to detach them.
A claim whose pod does not run yet is prepared again. Until then nothing is published and no claim is served: the
published slices are the only record of the host state, and an early answer would be wrong. A node without published
devices has nothing to recover and does not wait.

Where the reference driver ran before, its database helps: it withdraws devices while pods have them, and its
permissions may not allow listing claims. The database names both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol, TypeVar

from dranet.core.backoff import Backoff
from dranet.core.device import Device
from dranet.core.errors import DranetError
from dranet.core.logs import get_logger, log_context
from dranet.kubernetes.api.errors import Forbidden, KubeError, ObjectNotFound
from dranet.node.claim_states import State, state_of
from dranet.node.claims.allocation import Object, claim_ref, reserved_pods
from dranet.node.claims.prepare import Preparer
from dranet.node.claims.recover import Published, Recorded
from dranet.node.records.plan import ClaimPlan
from dranet.node.records.reference import checkpoint
from dranet.node.records.reference.bolt import BoltError
from dranet.node.records.reference.checkpoint import Checkpoint
from dranet.node.server.attach import Attacher
from dranet.node.server.runtime import Sandbox, SandboxesByPod, target_namespace
from dranet.node.store import Store

log = get_logger(__name__)

_Answer = TypeVar("_Answer")


class Reconciler:
    """Compares and repairs. One run at a time; a newer list replaces an older one."""

    def __init__(
        self,
        attacher: Attacher,
        *,
        recover: Callable[[SandboxesByPod], Awaitable[None]] | None = None,
        on_detached: Callable[[], None] = lambda: None,
    ) -> None:
        self._attacher = attacher
        self._lifecycle = attacher.lifecycle
        self._recover = recover
        self._on_detached = on_detached
        self._listed: dict[str, list[Sandbox]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self, listed: SandboxesByPod) -> None:
        """Reconcile with this list in the background."""
        if self._task is not None:
            self._task.cancel()
        self._listed = {uid: list(sandboxes) for uid, sandboxes in listed.items()}
        self._task = asyncio.get_running_loop().create_task(self.run(self._listed))

    def add_sandbox(self, pod_uid: str, sandbox: Sandbox) -> None:
        """Add a sandbox that started during recovery, before the plans of its pod were known."""
        self._listed.setdefault(pod_uid, []).append(sandbox)

    async def wait(self) -> None:
        """Wait for the current run, if any."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def run(self, listed: SandboxesByPod) -> None:
        """Compare every plan with the sandboxes and the kernel, and repair differences. A failure stops no other."""
        if self._recover is not None:
            await self._recover(listed)
        known = self._lifecycle.store.plans.values()
        plans = sorted((plan for plan in known if not plan.is_unfinished_addition), key=lambda plan: plan.uid)
        for plan in plans:
            with log_context(pod=plan.pod, claim=plan.ref):
                try:
                    await self._reconcile(plan, target_namespace(plan, listed.get(plan.pod.uid, ())))
                except (DranetError, OSError) as error:
                    log.error("Could not repair claim", error=error)
                    self._attacher.reports.attach_failed([plan], error)
        await asyncio.to_thread(self._lifecycle.prune)
        log.info("Reconciled claims with the runtime's pods", claims=len(plans))

    async def _reconcile(self, plan: ClaimPlan, netns: str | None) -> None:
        if netns is None:
            if state_of(plan) in (State.ATTACHING, State.ATTACHED):
                await self._detach(plan)
            return
        if plan.netns == netns and await asyncio.to_thread(self._is_attached, plan):
            self._attacher.leases.keep([plan], netns)
            return
        log.warning("Pod runs without its devices; attaching them now")
        await self._attacher.attach_now(plan.pod.uid, netns, "repair", repair_of=plan)

    def _is_attached(self, plan: ClaimPlan) -> bool:
        return self._lifecycle.gates.exists(plan.uid) and self._lifecycle.is_attached(plan)

    async def _detach(self, plan: ClaimPlan) -> None:
        log.info("Pod was deleted; detaching its devices")
        self._attacher.leases.stop(plan)
        await asyncio.to_thread(self._lifecycle.detach, plan.uid, unless_moved_since=plan)
        self._on_detached()


class ClaimLister(Protocol):
    """What recovery needs from the API server."""

    async def claims_of_node(self, node: str) -> list[Object]: ...

    async def claims_named(self, names: Iterable[tuple[str, str]]) -> list[Object]: ...

    async def published(self, node: str) -> list[Device]: ...


class Recovery:
    """Recovers the plans of an empty store, once. Retries while the API server is unavailable."""

    def __init__(
        self,
        store: Store,
        *,
        node: str,
        cluster: ClaimLister,
        preparer: Preparer,
        delays: Backoff,
        reference: str = "",
    ) -> None:
        """`reference` is the path of the reference driver's database, which is read and never written."""
        self._store = store
        self._node = node
        self._cluster = cluster
        self._preparer = preparer
        self._delays = delays
        self._reference = reference
        self._finished = asyncio.Event()

    async def wait(self) -> None:
        """Wait until the store is complete: at once for a store that always was, and on a new node."""
        if self._store.is_complete or await self._retry(self._is_new_node):
            await self._finish()
        await self._finished.wait()

    async def __call__(self, listed: SandboxesByPod) -> None:
        """Recover the claims of the pods that the runtime listed."""
        if self._store.is_complete:
            return
        await self._retry(lambda: self._recover_all(listed))
        await self._finish()

    async def _finish(self) -> None:
        await asyncio.to_thread(self._store.mark_complete)
        self._finished.set()

    async def _retry(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        while True:
            try:
                return await ask()
            except KubeError as error:
                log.warning("Recovery waits for the API server; will retry", error=error)
                await asyncio.sleep(self._delays.next())

    async def _is_new_node(self) -> bool:
        """Whether the driver has never run here: listing all claims of a cluster is too expensive to do for nothing."""
        if self._store.set_aside is not None or (await self._checkpoint()).pods:
            return False
        return not await self._cluster.published(self._node)

    async def _checkpoint(self) -> Checkpoint:
        try:
            found = await asyncio.to_thread(checkpoint.read, self._reference) if self._reference else None
        except (BoltError, OSError) as error:
            log.warning("Could not read the reference driver's database", path=self._reference, error=error)
            found = None
        return found or Checkpoint({})

    async def _recover_all(self, listed: SandboxesByPod) -> None:
        if await self._is_new_node():
            return
        known = await self._checkpoint()
        devices = {**known.devices, **{device.name: device for device in await self._cluster.published(self._node)}}
        for claim in await self._claims(known):
            with log_context(claim=claim_ref(claim)):
                try:
                    await self._recover_claim(claim, listed, devices, known.configs)
                except ObjectNotFound:
                    continue  # the claim was deleted since
                except KubeError:
                    raise
                except (DranetError, OSError) as error:
                    log.error("Could not recover claim", error=error)
        log.info("Recovered plans from the cluster and the kernel", plans=len(self._store.plans))

    async def _claims(self, known: Checkpoint) -> list[Object]:
        try:
            return await self._cluster.claims_of_node(self._node)
        except Forbidden as error:
            log.warning(
                "Cannot list ResourceClaims, grant `list`; recovering only those in the reference driver's database. "
                "Devices of other running pods will return without their host state",
                claims=len(known.claims),
                error=error,
            )
            return await self._cluster.claims_named(known.claims)

    async def _recover_claim(
        self, claim: Object, listed: SandboxesByPod, devices: Published, recorded: Recorded
    ) -> None:
        users = reserved_pods(claim)
        if not users or self._store.get(claim["metadata"]["uid"]) is not None:
            return
        found = []
        for user in users:
            namespaces = dict.fromkeys(sandbox.netns for sandbox in listed.get(user.uid, ()) if sandbox.netns)
            found.append(await self._preparer.recover(claim, user, namespaces, devices, recorded))
        if not all(found):
            await self._preparer.prepare(claim_ref(claim))
