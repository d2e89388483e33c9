"""The cards of claims, on their way: ready, into the pod, home. The only user of the kernel's moving parts.

Synchronous and run on worker threads; one lock a pod keeps a hook, an unprepare and a repair of the same pod apart.
Where the cards are is written down before they move, so a crash at any point leaves a trace that leads to them.

While cards are in a pod, its namespace is held open. A runtime may remove it without telling us (containerd forgets to
after its own restart, CRI-O tells too late); held, it lives on until the cards are out.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dranet.driver.claims.host_tables import seen_again
from dranet.driver.claims.plan import ClaimPlan, DevicePlan
from dranet.driver.claims.store import Store
from dranet.driver.moving import attach, home
from dranet.driver.moving.attach import AttachError
from dranet.driver.moving.faultpoints import reach
from dranet.driver.moving.host import Host, Pod, find_in_pod
from dranet.driver.moving.pod_locks import PodLocks
from dranet.driver.moving.receipt import Receipts
from dranet.driver.parts import rdma as rdma_links
from dranet.kernel import rdma
from dranet.kernel.announce import announce
from dranet.kernel.errors import KernelError
from dranet.kernel.links import Link
from dranet.kernel.namespaces import NamespaceError
from dranet.model.errors import DranetError

log = logging.getLogger(__name__)

BUDGET_SECONDS = 1.5
"""What attach gives itself; the runtime drops a plugin after 2 s and starts the pod without its cards."""


class RdmaAttachError(AttachError):
    """The RDMA side of a card could not be given to the pod."""


@dataclass(frozen=True, slots=True)
class Attached:
    """One device that is in its pod now."""

    claim_uid: str
    plan: DevicePlan
    link: Link | None
    rdma_moved: bool


class Deadline:
    """A budget that whoever works checks between steps; over as well when nobody waits for the result any more."""

    def __init__(self, seconds: float, given_up: Callable[[], bool]) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._given_up = given_up

    def check(self) -> None:
        if time.monotonic() > self._end:
            raise AttachError(f"attaching took longer than {self.seconds:g} s; everything is taken back")
        if self._given_up():
            raise AttachError("the runtime has given up waiting; everything is taken back")


class Cards:
    """Moves cards by their plans and keeps store and receipts true while it does."""

    def __init__(
        self, host: Host, store: Store, receipts: Receipts, *, open_rdma: rdma_links.Open = rdma.open_socket
    ) -> None:
        self.host = host
        self._open_rdma = open_rdma
        self.store = store
        self.receipts = receipts
        self._locks = PodLocks(f"{store.path}.lock" if store.path else None)
        self._held: dict[str, Pod] = {}
        """Namespaces with cards in them, by path."""
        self._ending: set[tuple[str, str]] = set()
        """Pods on their way out, each with the namespace that ends, or "" for all. A repair that was planned before
        must not give them their cards again."""

    def ready(self, plan: ClaimPlan) -> None:
        """Do before the pod exists what can be done before."""
        attach.make_ready(self.host, plan.devices)
        reach("prepare.readied")

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
            plans = [self._bound(plan, netns) for plan in self._freed(self.store.for_pod(pod_uid), netns)]
            reach("attach.stored")
            try:
                attached = self._attach(self._hold(netns), plans, deadline)
                deadline.check()
                reach("attach.done")
                for plan in plans:
                    self.receipts.write(plan)
            except (DranetError, OSError) as error:
                log.warning("attach of pod %s failed, bringing its cards home: %s", pod_uid, error)
                for plan in plans:
                    self._undo(plan)
                raise
            reach("attach.receipt")
            return attached

    def announce(self, netns: str, attached: Sequence[Attached]) -> None:
        """Tell the neighbours; not in the hook, because closing a packet socket waits for the kernel."""
        with contextlib.suppress(KernelError), Pod.open(netns) as pod:
            for item in attached:
                if item.link is not None and item.plan.pod is not None:
                    cidrs = [address.cidr for address in item.plan.pod.addresses]
                    announce(item.link.name, item.link.mac, cidrs, namespace_fd=pod.namespace.fd)

    def _freed(self, plans: Sequence[ClaimPlan], netns: str) -> Sequence[ClaimPlan]:
        """Cards may still be in an earlier sandbox of the pod: a runtime that crashed does not tell that it is gone."""
        for plan in plans:
            if plan.netns not in (None, netns):
                self.bring_home(plan.uid)
        return plans

    def _bound(self, plan: ClaimPlan, netns: str) -> ClaimPlan:
        reach("attach.begun")
        changes: dict[str, object] = {"netns": netns}
        if plan.boot != self.host.boot:
            changes |= {"boot": self.host.boot, "devices": seen_again(self.host, plan.devices)}
        return self.store.change(plan.uid, survives_reboot=len(changes) > 1, **changes) or plan

    def _attach(self, pod: Pod, plans: Sequence[ClaimPlan], deadline: Deadline) -> list[Attached]:
        deadline.check()
        devices = [(plan.uid, device) for plan in plans for device in plan.devices]
        netdevs = [device for _, device in devices if device.host]
        cards = dict(zip(map(id, netdevs), attach.bring_in(self.host, pod, netdevs, check=deadline.check), strict=True))
        attached = [Attached(uid, d, cards.get(id(d)), self._rdma_in(pod, d, deadline)) for uid, d in devices]
        reach("attach.rdma")
        return attached

    def _rdma_in(self, pod: Pod, device: DevicePlan, deadline: Deadline) -> bool:
        if device.rdma is None:
            return False
        deadline.check()
        try:
            return rdma_links.move_in(self.host, pod, device.rdma.device, open_socket=self._open_rdma)
        except KernelError as error:
            raise RdmaAttachError(f"{device.device}: {error}") from error

    def _undo(self, plan: ClaimPlan) -> None:
        try:
            self.bring_home(plan.uid)
        except (DranetError, OSError) as error:
            log.error("claim %s/%s: could not bring its cards home: %s", plan.namespace, plan.name, error)

    def end(self, claim_uid: str, netns: str = "") -> list[str]:
        """Bring the cards of a claim home for good: the sandbox with this namespace stops, or the claim is given up.

        Cards that are in another sandbox of the pod by now stay there.
        """
        plan = self.store.get(claim_uid)
        if plan is None:
            return []
        with self._locks.hold(plan.pod.uid):
            self._ending.add((plan.pod.uid, netns))
            now = self.store.get(claim_uid)
            if netns and now is not None and now.netns not in (None, netns):
                return []
            return self.bring_home(claim_uid)

    def reclaim(self, seen: ClaimPlan) -> list[str]:
        """Bring home the cards of a pod that is gone, unless it has got them anew since its plan was seen."""
        with self._locks.hold(seen.pod.uid):
            return [] if self._has_moved_on(seen) else self.bring_home(seen.uid)

    def _has_moved_on(self, seen: ClaimPlan) -> bool:
        now = self.store.get(seen.uid)
        return now is None or now.netns != seen.netns

    def forget(self, plan: ClaimPlan) -> None:
        """The claim is over; nothing more will be asked of its pod."""
        self.store.delete(plan.uid)
        if not self.store.for_pod(plan.pod.uid):
            self._ending = {(pod_uid, netns) for pod_uid, netns in self._ending if pod_uid != plan.pod.uid}

    def bring_home(self, claim_uid: str) -> list[str]:
        """Take back what is still in the pod and make every card as it was found; problems in words, which are logged.

        Works from what the kernel shows: also for cards that came home by themselves, were renamed, or never left.
        """
        plan = self.store.get(claim_uid)
        if plan is None:
            return []
        with self._locks.hold(plan.pod.uid):
            plan = self.store.get(claim_uid)  # again: whoever held the lock may have moved them
            if plan is None:
                return []
            reach("detach.begun")
            self.receipts.remove(claim_uid)
            reach("detach.receipt")
            problems: list[str] = []
            if plan.boot == self.host.boot:
                if plan.netns:
                    problems += self._leave(plan, plan.netns)
                problems += home.restore(self.host, [device for device in plan.devices if device.host])
            # After a reboot the machine has set its cards up anew, and every namespace is gone.
            self.store.change(claim_uid, netns=None, survives_reboot=False)
            reach("detach.stored")
            self._let_go(plan.netns)
            for problem in problems:
                log.warning("claim %s/%s: %s", plan.namespace, plan.name, problem)
            return problems

    @contextlib.contextmanager
    def _open(self, netns: str) -> Iterator[Pod]:
        """The pod's namespace: the one we hold, else by its path."""
        if netns in self._held:
            yield self._held[netns]
        else:
            with Pod.open(netns) as pod:
                yield pod

    def _hold(self, netns: str) -> Pod:
        if netns not in self._held:
            self._held[netns] = Pod.open(netns)
        return self._held[netns]

    def _let_go(self, netns: str | None) -> None:
        """Close a namespace that no claim has cards in any more."""
        if netns in self._held and not any(plan.netns == netns for plan in self.store.plans.values()):
            self._held.pop(netns).close()

    def _leave(self, plan: ClaimPlan, netns: str) -> list[str]:
        """RDMA devices first: their netdev's arrival makes the inventory look, and it must see them together.

        One that will not move is a problem in words: the netdevs must come home all the same.
        """
        problems: list[str] = []
        try:
            with self._open(netns) as pod:
                for device in plan.devices:
                    if device.rdma:
                        problems += self._rdma_out(pod, device.rdma.device)
                reach("detach.rdma")
                home.leave_pod(self.host, pod, [device for device in plan.devices if device.host])
        except NamespaceError as error:
            log.info(
                "claim %s/%s: the pod's namespace is gone, its cards came home by themselves (%s)",
                plan.namespace,
                plan.name,
                error,
            )
        return problems

    def _rdma_out(self, pod: Pod, name: str) -> list[str]:
        try:
            rdma_links.bring_home(self.host, pod, name, open_socket=self._open_rdma)
        except KernelError as error:
            return [f"RDMA device {name} did not come home: {error}"]
        return []

    def close(self) -> None:
        """Let go of every namespace; the cards stay where they are."""
        while self._held:
            self._held.popitem()[1].close()

    def is_attached(self, plan: ClaimPlan) -> bool:
        """Whether every netdev of the plan is in the pod's namespace, as the kernel shows it."""
        if plan.netns is None:
            return False
        netdevs = [device for device in plan.devices if device.host and device.pod]
        with self._locks.hold(plan.pod.uid):
            try:
                return all(find_in_pod(self._hold(plan.netns), netdevs))
            except NamespaceError:
                return False


def describe(devices: Sequence[Attached]) -> str:
    """The attached devices in a few words, for logs."""
    return ", ".join(f"{a.plan.device} as {a.link.name}" if a.link else a.plan.device for a in devices)
