"""Prepare and unprepare: what the kubelet asks of us, one claim at a time.

The kubelet waits 45 seconds and asks again until it likes the answer, so both are idempotent: a prepared claim is
answered from its plan, and nothing of a running pod is touched. Unprepare may come before the runtime's stop hook
(force deletion) or without any pod; it brings home whatever is still out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from dranet.driver.claims.adoption import Published, Recorded, search
from dranet.driver.claims.allotment import (
    Allotted,
    ClaimError,
    allotted,
    config_for,
    consumers,
    named_by_containers,
    of_other_drivers,
    variables_of,
)
from dranet.driver.claims.further_pods import refuse_further_pod
from dranet.driver.claims.holders import Holders
from dranet.driver.claims.leases import Leases
from dranet.driver.claims.next_user import next_user
from dranet.driver.claims.planner import Planner, Wish, blank, use_of
from dranet.driver.claims.profiles import Profiles
from dranet.driver.claims.shares import with_share
from dranet.driver.faultpoints import reach
from dranet.driver.moving.cards import Cards
from dranet.driver.moving.receipt import cdi_name
from dranet.driver.records.plan import ClaimPlan, DevicePlan, PodRef, Use, uid_beside
from dranet.driver.store import Store
from dranet.inventory.snapshot import NodeDevice, Place
from dranet.kube.errors import Forbidden
from dranet.kubelet.handler import ANSWER_FIRST_SECONDS, PreparedDevice
from dranet.model.errors import Busy, DranetError, InvalidInput, NotFound
from dranet.model.names import ClaimRef, physical_function_name
from dranet.model.netconfig import NetworkConfig

log = logging.getLogger(__name__)

Object = Mapping[str, Any]

HOLDER_SECONDS = 20.0
"""How long prepare waits for another claim to let go of a device; the kubelet itself waits 45."""
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Where the claim controller writes how the pod calls a claim that it made from a template."""


class ClusterSide(Protocol):
    """What prepare needs from the API server."""

    async def claim(self, namespace: str, name: str) -> Object: ...

    async def pod(self, namespace: str, name: str) -> Object | None: ...

    async def pci_addresses(self, node: str, devices: Collection[tuple[str, str, str]]) -> list[str]: ...


class NodeSide(Protocol):
    """What prepare needs from the inventory."""

    def find(self, name: str) -> NodeDevice | None: ...

    def why_not(self, name: str) -> str: ...

    async def look_again(self) -> None: ...


class Preparer:
    """Turns claims into plans and lets them go again."""

    def __init__(
        self,
        *,
        node: str,
        store: Store,
        cards: Cards,
        planner: Planner,
        cluster: ClusterSide,
        inventory: NodeSide,
        profiles: Profiles,
        leases: Leases,
        patience: float = HOLDER_SECONDS,
    ) -> None:
        self.node = node
        self.store = store
        self.cards = cards
        self.planner = planner
        self.cluster = cluster
        self.inventory = inventory
        self.profiles = profiles
        self.leases = leases
        self._holders = Holders(store, cluster, cards.host.boot, patience)
        self._joining = asyncio.Lock()
        """A pod may be met twice at the same time: by the kubelet's question and by its sandbox."""
        self._clearing: set[asyncio.Task[None]] = set()

    async def prepare(self, ref: ClaimRef) -> list[PreparedDevice]:
        """Read the claim and prepare it."""
        return await self.prepare_as_read(await self.read(ref))

    async def read(self, ref: ClaimRef) -> Object:
        """The claim as the API server has it now."""
        claim = await self.cluster.claim(ref.namespace, ref.name)
        if claim["metadata"]["uid"] != ref.uid:
            raise ClaimError(f"claim {ref} was made anew (its UID is {claim['metadata']['uid']}, asked for {ref.uid})")
        return claim

    async def prepare_as_read(self, claim: Object) -> list[PreparedDevice]:
        """Plan the claim's devices and write the plan down; `follow_up` does the rest of it."""
        ref, users = ref_of(claim), consumers(claim)
        if not users:
            return []
        given = self._given(claim)
        await self._holders.end_plans_of_the_past(ref, given, self._end)
        await self._holders.wait(ref, given)
        with self._holders.taken(ref, given):
            known = self._current(ref, users, given)
            if known is None:
                await self._end_all(ref)
                known = await self._prepare(claim, self._blank(claim, users[0]), given)
            for user in users:
                try:
                    await self.join(claim, user)
                except (ClaimError, InvalidInput) as error:
                    # The kubelet asks once for all of them: the first shall start, and the others are told to wait.
                    log.info("pod %s cannot have it as well: %s", user, error)
            return self._answer(known)

    def _current(self, ref: ClaimRef, users: Sequence[PodRef], given: Sequence[Allotted]) -> ClaimPlan | None:
        """The claim's plan, unless it is of a pod that is gone, or other devices were given since."""
        known = self.store.get(ref.uid)
        if known is None or not _is_current(known, given) or self._lost_functions(known):
            return None
        return known if self._pods_of(known) & {user.uid for user in users} else None

    def _pods_of(self, first: ClaimPlan) -> set[str]:
        """The pods that have a plan of the claim."""
        beside = self.store.beside(first.uid)
        return {first.pod.uid, *(plan.pod.uid for plan in beside if not plan.is_joining)}

    async def join(self, claim: Object, user: PodRef) -> None:
        """A plan for one more pod of a claim that is prepared; raises where only one pod can have it at a time."""
        ref = ref_of(claim)
        async with self._joining:
            first = self.store.get(ref.uid)
            if first is None or user.uid in self._pods_of(first):
                return
            refuse_further_pod(first)
            plan = msgspec.structs.replace(self._blank(claim, user), uid=uid_beside(ref.uid, user.uid))
            await self._prepare(claim, plan, self._given(claim))
            await asyncio.to_thread(self.cards.joined, first)

    def _answer(self, plan: ClaimPlan) -> list[PreparedDevice]:
        """With the receipt's name, without which containers that name the claim are not created, if anybody sees it."""
        receipt = (cdi_name(plan.uid),) if self.cards.receipts.seen_by_runtime else ()
        return [PreparedDevice((d.request,), d.pool, d.name, receipt, d.share_id) for d in plan.devices]

    async def unprepare(self, ref: ClaimRef) -> ClaimPlan | None:
        """Bring home what is still out, then forget. Matches by UID: a claim of the same name is another claim.

        Raises Busy where a successor of the pod is just being started: the kubelet would forget the claim for both.
        """
        reach("unprepare.begun")
        first = self.store.get(ref.uid)
        if first is not None and not first.pod_claim:  # made for a single pod, it has no successor
            await asyncio.to_thread(self._bring_home, first)
            known = {first.pod.uid, *(plan.pod.uid for plan in self.store.beside(ref.uid))}
            if (user := await next_user(self.cluster, self.node, first, known)) is not None:
                raise Busy(f"pod {user} starts with the claim and gets its devices next; nothing is unprepared")
        if await self._end_all(ref) is None:
            await asyncio.to_thread(self.cards.receipts.remove, ref.uid)
        return first

    async def _end_all(self, ref: ClaimRef) -> ClaimPlan | None:
        """End the plans of all pods of a claim: its first one last, so that who dies here is asked again."""
        first = self.store.get(ref.uid)
        for plan in (*self.store.beside(ref.uid), *([first] if first else ())):
            await self._end(plan)
        return first

    async def adopt(
        self,
        claim: Object,
        user: PodRef,
        namespaces: Iterable[str],
        published: Published,
        recorded: Recorded = MappingProxyType({}),
    ) -> bool:
        """Write down a plan for a claim with cards in one of these namespaces; False where none of them is in any."""
        known = tuple(self.store.plans.values())
        found = await asyncio.to_thread(search, self.planner, claim, namespaces, published, recorded, known)
        if found is None:
            return False
        plan = msgspec.structs.replace(self._blank(claim, user), netns=found.netns)
        if self.store.get(plan.uid) is not None:  # another pod of the claim came first
            plan = msgspec.structs.replace(plan, uid=uid_beside(plan.uid, user.uid))
        plan = await self._with_devices(claim, plan, found.devices)
        await asyncio.to_thread(self.store.put, plan)
        for reason in found.missing:
            log.error("is rebuilt without one of its devices, which stays where it is: %s", reason)
        return True

    def _blank(self, claim: Object, user: PodRef) -> ClaimPlan:
        """A plan before its devices are known."""
        ref = ref_of(claim)
        return ClaimPlan(
            uid=ref.uid,
            namespace=ref.namespace,
            name=ref.name,
            pod=user,
            boot=self.cards.host.boot,
            pod_claim=(claim["metadata"].get("annotations") or {}).get(_POD_CLAIM_NAME, ""),
        )

    async def _with_devices(self, claim: Object, plan: ClaimPlan, devices: Sequence[DevicePlan]) -> ClaimPlan:
        """The pod is read only where it matters: who names a claim with character devices, and what variables its
        containers set where others would be set for them."""
        plan = msgspec.structs.replace(plan, devices=tuple(devices), gpus=await self._gpus(claim, devices))
        pod = await self._pod(plan.pod) if plan.char_devices or plan.asks_for_settings else None
        if pod is None:
            return plan
        named = named_by_containers(pod, plan.name) if plan.char_devices else None
        own = variables_of(pod) if plan.asks_for_settings else ()
        return msgspec.structs.replace(plan, named=named, own_variables=own)

    async def _prepare(self, claim: Object, plan: ClaimPlan, given: Sequence[Allotted]) -> ClaimPlan:
        try:
            plan = await self._with_functions(plan, given)
            wishes = [await self._wish(claim, item) for item in given]
            wishes = await self._with_profiles(claim, plan, wishes)
            plan = await asyncio.to_thread(self._planned_and_written, plan, wishes)
            if _must_ask(plan):
                plan = await self._with_devices(claim, plan, await self.leases.obtain(plan.devices))
                await asyncio.to_thread(self._commit, plan)
        except BaseException:  # cancelled as well: the kubelet has gone, and what was lent must not stay lent
            await self._end(self.store.get(plan.uid) or plan)
            raise
        return plan

    def _planned_and_written(self, plan: ClaimPlan, wishes: Sequence[Wish]) -> ClaimPlan:
        """Both in one turn of a thread, unless somebody has to be asked in between: every turn costs two wake-ups,
        which on a busy node take longer than planning."""
        plan = msgspec.structs.replace(plan, devices=tuple(self._planned(plan, wishes)))
        if not _must_ask(plan):
            self._commit(plan)
        return plan

    def _planned(self, plan: ClaimPlan, wishes: Sequence[Wish]) -> list[DevicePlan]:
        """Claims that share a card are planned one after the other, each written down before the next one looks. DHCP
        raises the card on the host, so there, too, how it was found is written down first."""
        shared = any(use_of(wish) is Use.SHARED for wish in wishes)
        with self.cards.sharing() if shared else nullcontext():
            others = (*plan.devices, *self.store.devices_beside(plan.uid))
            devices = self.planner.plan(wishes, others=others)
            devices = [self.profiles.remember(device, wish) for device, wish in zip(devices, wishes, strict=True)]
            if any(device.wanted and device.wanted.dhcp for device in devices):
                self.store.put(msgspec.structs.replace(plan, devices=tuple(devices), provisional=True))
            elif shared:
                pending = tuple(msgspec.structs.replace(device, use=Use.PENDING) for device in devices)
                early = msgspec.structs.replace(plan, devices=pending, provisional=True)
                self.store.put(early, survives_reboot=False)
            return devices

    async def _with_functions(self, plan: ClaimPlan, given: Sequence[Allotted]) -> ClaimPlan:
        """Virtual functions are made when they are first claimed; the claim is written down before."""
        items = [item for item in given if not item.admin and physical_function_name(item.device)]
        found = [(item, await self._find(item.device)) for item in items]
        wanted = [(blank(item, Use.PENDING, NetworkConfig(), seen), seen) for item, seen in found]
        if not wanted:
            return plan
        plan = await asyncio.to_thread(self.cards.functions.make, plan, wanted)
        await self.inventory.look_again()
        return plan

    def _lost_functions(self, plan: ClaimPlan) -> bool:
        """No virtual function outlives the machine's restart."""
        return plan.boot != self.cards.host.boot and any(physical_function_name(d.name) for d in plan.devices)

    def _commit(self, plan: ClaimPlan) -> None:
        """Written down before the cards are touched, in case we die. The disk is not waited for: a machine that dies
        sets its cards up anew, and its kubelet prepares the claims of its pods again. What was lent for the claim is on
        disk since before it was asked for."""
        reach("prepare.planned")
        self.store.put(plan, survives_reboot=False)
        reach("prepare.stored")
        if self.cards.may_refuse(plan):
            self.cards.ready(plan)

    async def follow_up(self, ref: ClaimRef) -> None:
        """What the kubelet need not wait for when a claim is prepared; before anybody unprepares it."""
        await asyncio.to_thread(self._follow_up, ref)

    def _follow_up(self, ref: ClaimRef) -> None:
        self.cards.ready_late(ref.uid)
        self.store.settle()

    async def _end(self, plan: ClaimPlan) -> None:
        """Cards home, what was lent given back, and the plan gone."""
        self.leases.stop(plan)
        if any(device.lease or device.profile is not None for device in plan.devices):
            await asyncio.to_thread(self._bring_home, plan)
            await self.leases.release(plan)
            await self.profiles.release(plan)
            await asyncio.to_thread(self._forget, plan)
        elif self.cards.forget_at_once(plan):
            reach("unprepare.struck")
        else:
            await asyncio.to_thread(self._bring_home_and_forget, plan)
        task = asyncio.create_task(self._clear_away(plan))
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)

    async def _clear_away(self, plan: ClaimPlan) -> None:
        await asyncio.sleep(ANSWER_FIRST_SECONDS)
        reach("unprepare.answered")
        try:
            await asyncio.to_thread(self.cards.clear_away, plan)
            reach("unprepare.deleted")
        except (DranetError, OSError) as error:
            log.error("claim %s is over, but not everything of it could be cleared away: %s", plan.ref, error)

    def _bring_home_and_forget(self, plan: ClaimPlan) -> None:
        self._bring_home(plan)
        self._forget(plan)

    def _bring_home(self, plan: ClaimPlan) -> None:
        self.cards.bring_home(plan.uid, stopping="")
        reach("unprepare.home")

    def _forget(self, plan: ClaimPlan) -> None:
        self.cards.forget(plan)
        reach("unprepare.deleted")

    def _given(self, claim: Object) -> list[Allotted]:
        given = allotted(claim)
        foreign = sorted({item.pool for item in given} - {self.node})
        if foreign:
            raise ClaimError(f"allocated from pool {', '.join(foreign)}, but this node's pool is {self.node}")
        return given

    async def _wish(self, claim: Object, item: Allotted) -> Wish:
        found = await self._find(item.device)
        asked = config_for(claim, item.request)
        return Wish(item, found, with_share(item, found, await self.profiles.with_cloud(found, asked)))

    async def _find(self, device: str) -> NodeDevice:
        """The device as last seen; looks again where it is unknown or has just come home."""
        found = self.inventory.find(device)
        if found is None or found.netdev.place is Place.ELSEWHERE:
            await self.inventory.look_again()
            found = self.inventory.find(device)
        if found is None and (reason := self.inventory.why_not(device)):
            raise NotFound(f"device {device} is not offered any more: {reason}")
        if found is None:
            raise NotFound(f"device {device} is not on this node any more")
        return found

    async def _pod(self, user: PodRef) -> Object | None:
        """The pod as the API server shows it; None where it cannot be read, which treats all containers alike."""
        try:
            pod = await self.cluster.pod(user.namespace, user.name)
        except Forbidden:
            return None
        except DranetError as error:
            log.info("pod %s cannot be read (%s); all its containers are treated alike", user, error)
            return None
        return pod if pod is not None and pod["metadata"]["uid"] == user.uid else None

    async def _gpus(self, claim: Object, devices: Sequence[DevicePlan]) -> tuple[str, ...]:
        """Where the claim's devices of other drivers are on the PCI bus, for NCCL's topology file."""
        others = of_other_drivers(claim)
        if not others or not any("nccl" in device.environment for device in devices):
            return ()
        try:
            return tuple(await self.cluster.pci_addresses(self.node, others))
        except DranetError as error:
            log.warning("the claim's GPUs cannot be looked up, containers get no topology file: %s", error)
            return ()

    async def _with_profiles(self, claim: Object, plan: ClaimPlan, wishes: Sequence[Wish]) -> list[Wish]:
        wanting = [wish for wish in wishes if wish.config.profile]
        if wanting:
            devices = (*plan.devices, *(self.profiles.provisional(wish) for wish in wanting))
            early = msgspec.structs.replace(plan, devices=devices, provisional=True)
            await asyncio.to_thread(self.store.put, early)
        return [await self.profiles.resolve(claim, wish) for wish in wishes]


def ref_of(claim: Object) -> ClaimRef:
    """Who a claim is."""
    metadata = claim["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])


def _must_ask(plan: ClaimPlan) -> bool:
    """Whether a DHCP server or the API server has to be asked before the plan is whole."""
    wants_lease = any(device.wanted and device.wanted.dhcp for device in plan.devices)
    return wants_lease or plan.asks_for_settings or bool(plan.char_devices)


def _is_current(plan: ClaimPlan, given: Sequence[Allotted]) -> bool:
    ours = [(d.request, d.name, d.share_id) for d in plan.devices]
    asked = [(item.request, item.device, item.share_id) for item in given]
    return ours == asked and not plan.provisional
