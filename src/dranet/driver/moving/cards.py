"""The cards of claims, on their way: ready, into the pod, home. Locks, deadline, order, store and receipt are here.

Synchronous and run on worker threads; one lock a pod keeps a hook, an unprepare and a repair of the same pod apart.
Where the cards are is written down before they move, so a crash at any point leaves a trace that leads to them.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from dranet.driver.faultpoints import reach
from dranet.driver.log_fields import about
from dranet.driver.moving.functions import Functions, has_functions
from dranet.driver.moving.held_namespaces import HeldNamespaces
from dranet.driver.moving.journey import Journey, Pairs
from dranet.driver.moving.moves import Moves
from dranet.driver.moving.pod_locks import PodLocks
from dranet.driver.moving.receipt import Receipts
from dranet.driver.moving.telling import Telling
from dranet.driver.moving.told import Told
from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import AttachError
from dranet.driver.parts.registry import PARTS, Parts
from dranet.driver.records.plan import ClaimPlan, DevicePlan, PodRef, Use
from dranet.driver.store import Store
from dranet.kernel.announce import announce
from dranet.kernel.errors import KernelError
from dranet.kernel.links import Link
from dranet.kernel.namespaces import NamespaceGone
from dranet.kube.claims import Condition
from dranet.model.errors import DranetError
from dranet.model.names import ClaimRef

log = logging.getLogger(__name__)

BUDGET_SECONDS = 60.0
"""What attach gives itself where nobody says otherwise."""


class CardsAway(DranetError):
    """Cards that are in the pod still, or elsewhere, and must not be given up; says which and why."""


class Attached(msgspec.Struct, frozen=True):
    """One device that is in its pod now."""

    claim: ClaimRef
    device: DevicePlan
    link: Link | None
    conditions: tuple[Condition, ...] = ()
    """What its parts say of it."""


class Deadline:
    """A budget that whoever works checks between steps; over as well when nobody waits for the result any more."""

    def __init__(self, seconds: float, given_up: Callable[[], bool]) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._given_up = given_up

    def check(self) -> None:
        """Raises when time is up or the runtime no longer waits; asked between phases, where all can be undone."""
        if time.monotonic() > self._end:
            raise AttachError(f"attaching took longer than {self.seconds:g} s; everything is taken back")
        if self._given_up():
            raise AttachError("the runtime has given up waiting; everything is taken back")


class Cards:
    """Moves cards by their plans and keeps store and receipts true while it does."""

    def __init__(
        self,
        host: Host,
        store: Store,
        receipts: Receipts,
        *,
        parts: Parts = PARTS,
        telling: Telling | None = None,
    ) -> None:
        """Without `telling` containers are told nothing of their cards."""
        self.host = host
        self.store = store
        self.receipts = receipts
        self.functions = Functions(host, store)
        self.moves = Moves()
        self._telling = telling
        self._journey = Journey(host, parts)
        self._locks = PodLocks(f"{store.path}.lock" if store.path else None)
        self._sharing = PodLocks(f"{store.path}.sharing.lock" if store.path else None)
        self._namespaces = HeldNamespaces()
        self._ending: set[tuple[str, str]] = set()
        """Pods on their way out, each with the namespace that ends, or "" for all. A repair that was planned before
        must not give them their cards again."""
        self._home: set[str] = set()
        """Claims whose cards were brought home here and found whole, and have not been on their way again since."""

    def sharing(self) -> AbstractContextManager[None]:
        """Held while it is decided who is beside whom on a card that stays on the node: between the look at the other
        plans and the writing down. Inside a pod's lock, never around it."""
        return self._sharing.hold("")

    def may_refuse(self, plan: ClaimPlan) -> bool:
        """Whether the kernel may say no to `ready`."""
        return self._journey.may_refuse(plan.devices)

    def ready(self, plan: ClaimPlan) -> None:
        """Do before the pod exists what can be done before; nothing where anything has happened to the plan since.

        Attach does all of it that is missing, so a driver that dies on the way costs the pod some time and no more.
        """
        with self._locks.hold(plan.pod.uid):
            if self.store.get(plan.uid) != plan:
                return
            self._home.discard(plan.uid)  # where they are, but no longer as they were found
            # How the cards were found is on record before they are touched.
            there = self._journey.noted(self._journey.at_home(plan.devices))
            self.store.change(plan.uid, survives_reboot=False, devices=_devices_of(there))
            reach("prepare.noted")
            with self.moves.of(plan.devices):
                self._journey.ready(there)
            reach("prepare.readied")

    def ready_late(self, claim_uid: str) -> None:
        """`ready` for a claim that was prepared without. Cards about which all is noted have been on their way already,
        and may be home as they were found: those stay as they are."""
        plan = self.store.get(claim_uid)
        if plan is not None and plan.netns is None and not self._journey.is_noted(plan.devices):
            self.ready(plan)

    def attach(
        self,
        pod_uid: str,
        netns: str,
        *,
        seconds: float = BUDGET_SECONDS,
        given_up: Callable[[], bool] = lambda: False,
        repair_of: ClaimPlan | None = None,
    ) -> list[Attached]:
        """Give a pod all its cards, or none: what fails halfway is undone and raised.

        A repair, of a plan as it was seen some time ago, leaves pods alone that have moved on since or have begun to
        end; only a sandbox that starts takes that word back.
        """
        deadline = Deadline(seconds, given_up)
        with self._locks.hold(pod_uid):
            ending = self._ending & {(pod_uid, netns), (pod_uid, "")}
            if repair_of is not None and (ending or self._has_moved_on(repair_of)):
                return []
            self._ending -= ending
            found = self.store.for_pod(pod_uid)
            self._refuse_unreadable(pod_uid)
            # Where the cards will be is on disk before the first one moves: whoever comes after a crash looks there.
            plans = [self._bound(plan, netns) for plan in self._freed(found, netns)]
            self._home -= {plan.uid for plan in plans}
            reach("attach.stored")
            try:
                pod = self._namespaces.hold(netns)
                attached = self._attach(pod, plans, deadline)
                deadline.check()
                reach("attach.done")
                # Last of all, and for all claims of the pod: a receipt lets containers start.
                told = self._tell(pod, [plan for plan in plans if not self._has_company(plan)], attached)
                for plan in plans:
                    self.receipts.write(plan, told.get(plan.uid, Told()))
            except (DranetError, OSError) as error:
                log.warning("attach failed, bringing the cards home: %s", error)
                for plan in plans:
                    self._bring_home_again(plan)
                raise
            reach("attach.receipt")
            return attached

    def _tell(self, pod: PodNamespace, plans: Sequence[ClaimPlan], attached: Sequence[Attached]) -> dict[str, Told]:
        if self._telling is None:
            return {}
        return self._telling.tell(pod, plans, [(a.claim.uid, a.device, a.link) for a in attached])

    def _has_company(self, plan: ClaimPlan) -> bool:
        """Whether several pods have the claim: their containers share one receipt, which cannot tell each its own."""
        return plan.is_beside or bool(self.store.beside(plan.uid))

    def joined(self, plan: ClaimPlan) -> None:
        """Another pod has joined the claim: what its first pod's containers are told is not for that one's."""
        with self._locks.hold(plan.pod.uid):
            if self.receipts.exists(plan.uid):
                self.receipts.write(plan)

    def _refuse_unreadable(self, pod_uid: str) -> None:
        """A pod gets all its cards or none."""
        for uid, reason in self.store.unreadable_for_pod(pod_uid).items():
            raise AttachError(f"the plan of claim {uid} cannot be used by this driver: {reason}")

    def announce(self, netns: str, attached: Sequence[Attached]) -> None:
        """Tell the neighbours; not in the hook, because closing a packet socket waits for the kernel."""
        with contextlib.suppress(KernelError), PodNamespace.open(netns) as pod:
            for item in attached:
                if item.link is not None and item.device.wanted is not None:
                    cidrs = [address.cidr for address in item.device.wanted.addresses]
                    announce(item.link.name, item.link.mac, cidrs, namespace_fd=pod.namespace.fd)

    def _freed(self, plans: Sequence[ClaimPlan], netns: str) -> Sequence[ClaimPlan]:
        """Cards may still be in an earlier sandbox of the pod: a runtime that crashed does not tell that it is gone."""
        for plan in plans:
            if plan.netns not in (None, netns):
                self.bring_home(plan.uid)
        return plans

    def _bound(self, plan: ClaimPlan, netns: str) -> ClaimPlan:
        reach("attach.begun")
        is_seen = plan.boot == self.host.boot
        devices = plan.devices if is_seen else self._journey.seen_again(plan.devices)
        # Not where they may be inside already: a pod may have changed what is to be noted.
        if plan.netns is None and not self._journey.is_noted(devices):
            devices = _devices_of(self._journey.noted(self._journey.at_home(devices)))
        # A namespace means nothing after a reboot, so a hook need not wait for the disk; what was seen anew does.
        changes = {"netns": netns, "boot": self.host.boot, "devices": devices}
        return self.store.change(plan.uid, survives_reboot=not is_seen, **changes) or plan

    def _attach(self, pod: PodNamespace, plans: Sequence[ClaimPlan], deadline: Deadline) -> list[Attached]:
        deadline.check()
        owned = [(plan.ref, device) for plan in plans for device in plan.devices]
        devices = [device for _, device in owned]
        with self.moves.of(devices):
            inside = self._journey.go_in(pod, devices, check=deadline.check)
        return [Attached(claim, device, *found) for (claim, device), found in zip(owned, inside, strict=True)]

    def _bring_home_again(self, plan: ClaimPlan) -> None:
        """After a failed attach, whose error is the one to tell."""
        try:
            self.bring_home(plan.uid)
        except (DranetError, OSError) as error:
            log.error("the cards of claim %s could not be brought home: %s", plan.ref, error)

    def bring_home(
        self, claim_uid: str, *, stopping: str | None = None, unless_moved_since: ClaimPlan | None = None
    ) -> list[str]:
        """Take back what is still in the pod and make every card as it was found; problems in words, which are logged.

        Works from what the kernel shows: also for cards that came home by themselves, were renamed, or never left.
        `stopping` names the namespace of a sandbox that stops, "" for a claim that is given up: cards that are in
        another sandbox of the pod by now stay there, and no repair that was planned before gives them back. A picture
        of the plan, as it was seen some time ago, leaves cards alone that have gone somewhere else since.
        """
        plan = self.store.get(claim_uid)
        if plan is None:
            return []
        with self._locks.hold(plan.pod.uid):
            if stopping is not None:
                self._ending.add((plan.pod.uid, stopping))
            plan = self.store.get(claim_uid)  # again: whoever held the lock may have moved them
            if plan is None or (stopping and plan.netns not in (None, stopping)):
                return []
            if unless_moved_since is not None and self._has_moved_on(unless_moved_since):
                return []
            # After a stop hook nothing is left to do. Another driver may have had the cards since, in an update: it
            # says so in the store before it moves them.
            if stopping == "" and plan.uid in self._home and plan.netns is None:
                return []
            with about(pod=plan.pod, claim=plan.ref), self.sharing() if plan.is_shared else nullcontext():
                return self._bring_home(plan, last_resort=stopping == "")

    def _bring_home(self, plan: ClaimPlan, *, last_resort: bool) -> list[str]:
        reach("detach.begun")
        # First: from here on no container of the claim can start any more, also if we die on the way.
        self.receipts.remove(plan.uid, [other.uid for other in self.store.beside(plan.ref.uid)])
        reach("detach.receipt")
        # After a reboot the machine has set its cards up anew, and every namespace is gone.
        with self.moves.of(plan.devices):
            problems = self._leave_and_restore(plan, last_resort) if plan.boot == self.host.boot else []
        # Only now: as long as a namespace is named, the next driver goes on bringing home.
        self.store.change(plan.uid, netns=None, survives_reboot=False)
        reach("detach.stored")
        if plan.netns and not any(other.netns == plan.netns for other in self.store.plans.values()):
            self._namespaces.drop(plan.netns)
        for problem in problems:
            log.warning("%s", problem)
        if not problems:
            self._home.add(plan.uid)
        return problems

    def _leave_and_restore(self, plan: ClaimPlan, last_resort: bool) -> list[str]:
        """One card that cannot be had keeps none of the others away: it is told when they are all restored.

        Raising keeps the plan as it is, so whoever asked will ask again.
        """
        problems: list[str] = []
        failures: list[Exception] = []
        try:
            if plan.netns:
                with self._namespaces.visit(plan.netns) as pod:
                    problems += self._journey.leave(pod, plan.devices)
        except NamespaceGone as error:
            log.info("the pod's namespace is gone, its cards came home by themselves (%s)", error)
        except (DranetError, OSError) as error:
            failures.append(error)
        home, lost = self._journey.fetch(plan.devices, last_resort=last_resort)
        # A shared card is given back only as far as no other claim still has a share of it.
        problems += self._journey.restore(home, self.store.devices_beside(plan.uid))
        if failures := [*failures, *lost]:
            raise CardsAway("; ".join(map(str, failures)))
        return problems

    def _has_moved_on(self, seen: ClaimPlan) -> bool:
        now = self.store.get(seen.uid)
        return now is None or now.netns != seen.netns

    def hand_over(self, claim_uid: str, pod: PodRef) -> None:
        """The claim is another pod's from now on; what its pod still has of it comes home first."""
        plan = self.store.get(claim_uid)
        if plan is None:
            return
        with self._locks.hold(plan.pod.uid):
            self.bring_home(claim_uid)
            self.store.change(claim_uid, pod=pod)

    def forget_at_once(self, plan: ClaimPlan) -> bool:
        """For a claim whose cards are home, as they are after a stop hook: over without waiting for anybody, nor for
        the disk, so also on the event loop. False, with nothing done, where there is more to do."""
        if plan.uid not in self._home or plan.is_shared or has_functions(plan):
            return False
        with self._locks.hold_if_free(plan.pod.uid) as is_held:
            now = self.store.get(plan.uid) if is_held else None
            if now is None or now.netns is not None or plan.uid not in self._home:
                return False
            self._ending.add((plan.pod.uid, ""))
            self.store.strike(plan.uid)
            self._home.discard(plan.uid)
            return True

    def forget(self, plan: ClaimPlan) -> None:
        """The claim is over; nothing more will be asked of its pod."""
        with self.functions.ending(plan), self.sharing() if plan.is_shared else nullcontext():
            if plan.boot == self.host.boot:
                self._give_back_shared(plan)
            self.store.delete(plan.uid)
        self._home.discard(plan.uid)

    def _give_back_shared(self, plan: ClaimPlan) -> None:
        """Again: of pods that left at the same time each found the other's plan, and left the card below to it."""
        shared = [device for device in plan.devices if device.use is Use.SHARED]
        if not shared:
            return
        home, _ = self._journey.fetch(shared, last_resort=False)
        for problem in self._journey.restore(home, self.store.devices_beside(plan.uid)):
            log.warning("%s", problem)

    def clear_away(self, plan: ClaimPlan) -> None:
        """What is left of a claim that is forgotten; nobody waits for it, and it may be prepared again meanwhile."""
        self.store.settle()
        with self._locks.hold(plan.pod.uid):
            if not self.store.for_pod(plan.pod.uid):
                self._ending -= {known for known in tuple(self._ending) if known[0] == plan.pod.uid}
        if self._telling is not None and self.store.get(plan.uid) is None:
            self._telling.remove(plan.uid)

    def prune(self) -> None:
        """Remove receipts and files of claims that nobody knows: a driver that died did not come to it."""
        known = {*self.store.plans, *self.store.unreadable}
        if stale := self.receipts.prune(known):
            log.info("removed receipts of claims that are gone: %s", ", ".join(stale))
        if self._telling is not None:
            self._telling.prune(known)

    def close(self) -> None:
        """Let go of every namespace; the cards stay where they are."""
        self._namespaces.close()

    def is_attached(self, plan: ClaimPlan) -> bool:
        """Whether every interface of the plan is in the pod's namespace, as the kernel shows it."""
        if plan.netns is None:
            return False
        with self._locks.hold(plan.pod.uid):
            try:
                return self._journey.is_inside(self._namespaces.hold(plan.netns), plan.devices)
            except NamespaceGone:
                return False


def _devices_of(there: Pairs) -> tuple[DevicePlan, ...]:
    return tuple(device for device, _ in there)


def tell(attached: Sequence[Attached], how: str = "") -> None:
    """One line in the log for every device that is in its pod now."""
    for item in attached:
        with about(claim=item.claim, device=item.device.name):
            log.info("is in the pod%s%s", f" as {item.link.name}" if item.link else "", how)
