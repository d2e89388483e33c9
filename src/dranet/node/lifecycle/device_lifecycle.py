"""Attaches and detaches the devices of claims, and keeps the store and the readiness gates in step.

Synchronous and run on worker threads. One lock for each pod keeps a hook, an unprepare and a repair of the same pod
apart. The store says where the devices will be before they move, so that a crash at any point leaves a trace of them.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import msgspec

from dranet.core.errors import DranetError, KernelError
from dranet.core.logs import get_logger, log_context
from dranet.core.names import ClaimRef
from dranet.kubernetes.api.claims import Condition
from dranet.linux.announce import announce
from dranet.linux.links import Link
from dranet.linux.namespaces import NamespaceGone
from dranet.linux.stacked_links import delete_beside
from dranet.node.claim_states import State, state_of
from dranet.node.edits.container_edits import NO_EDITS, ContainerEdits
from dranet.node.edits.edits_writer import ContainerEditsWriter
from dranet.node.edits.readiness_gate import ReadinessGates
from dranet.node.faultpoints import reach
from dranet.node.features import FEATURES, AttachError, Features
from dranet.node.lifecycle.feature_steps import DeviceLinks, DeviceMissing, FeatureSteps
from dranet.node.lifecycle.pod_locks import PodLocks
from dranet.node.lifecycle.stacked_links import StackedLinks
from dranet.node.namespaces import Host, OpenNamespaces, PodNamespace
from dranet.node.records.plan import AttachMode, ClaimPlan, DevicePlan, PodRef
from dranet.node.store import Store

log = get_logger(__name__)

_DEFAULT_TIMEOUT = 60.0
_WITH_CARRIER = ("up", "unknown")
"""Unknown: of a driver that does not report its carrier."""


class DetachError(DranetError):
    """Devices that are still in the pod or in another namespace, and must not be given up; says which and why."""


class AttachedDevice(msgspec.Struct, frozen=True):
    """One device that is in its pod now, or that a repair left in another state than planned."""

    claim: ClaimRef
    device: DevicePlan
    link: Link | None
    conditions: tuple[Condition, ...] = ()
    problem: str = ""
    """What a repair could not do."""


class _Deadline:
    """A timeout that is checked between the phases of an attach, where everything can be undone."""

    def __init__(self, seconds: float, cancelled: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._cancelled = cancelled

    def check(self) -> None:
        """Raise AttachError when time is up or the runtime no longer waits."""
        if time.monotonic() > self._end:
            raise AttachError(f"attach took longer than {self._seconds:g} s; all devices are detached again")
        if self._cancelled():
            raise AttachError("the runtime no longer waits for the attach; all devices are detached again")


class MoveCounts:
    """Counts the beginnings and ends of the driver's own moves of each device since the driver started.

    An odd count means that a move is in progress, and two equal even counts that the device stayed in place in between.
    Health compares links and error counters only then, because a link that the driver took down is not a fault.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @contextmanager
    def moving(self, devices: Sequence[DevicePlan]) -> Iterator[None]:
        """These devices move; the parent of a shared device stays in place, and up."""
        names = [device.name for device in devices if device.mode in (AttachMode.MOVED, AttachMode.RDMA_ONLY)]
        self._counts.update(names)
        try:
            yield
        finally:
            self._counts.update(names)

    def count(self, name: str) -> int:
        return self._counts[name]


class DeviceLifecycle:
    """Sets up, attaches, detaches and releases the devices of claims."""

    def __init__(
        self,
        host: Host,
        store: Store,
        gates: ReadinessGates,
        *,
        features: Features = FEATURES,
        edits: ContainerEditsWriter | None = None,
    ) -> None:
        """Without `edits` containers get no metadata files and no library settings."""
        self.host = host
        self.store = store
        self.gates = gates
        self.move_counts = MoveCounts()
        self._edits = edits
        self._steps = FeatureSteps(host, features)
        self._stacked = StackedLinks(host)
        self._locks = PodLocks(f"{store.path}.lock" if store.path else None)
        self._shared_parents = PodLocks(f"{store.path}.sharing.lock" if store.path else None)
        self._namespaces = OpenNamespaces()
        self._stopping: set[tuple[str, str]] = set()
        """Pods that stop, each with the network namespace that stops, or "" for all. A repair that was planned before
        must not attach their devices again."""
        self._restored: set[str] = set()
        """Plans whose devices were detached and completely restored, and not touched since."""
        self._missing: dict[str, dict[str, str]] = {}

    @property
    def missing(self) -> dict[str, str]:
        """Devices of running pods that the last repair found neither there nor on the host, with a message."""
        return {name: message for devices in tuple(self._missing.values()) for name, message in devices.items()}

    @property
    def occupied(self) -> dict[str, str]:
        """Devices that must not be given to another pod, because a link of an earlier one is still on them."""
        return self._stacked.occupied

    def missing_of(self, uid: str) -> dict[str, str]:
        """The missing devices of one plan."""
        return self._missing.get(uid, {})

    def lock_shared_parents(self) -> AbstractContextManager[None]:
        """Hold from reading the plans that share a parent link until the own plan is in the store.

        Take it inside a pod's lock, never around it.
        """
        return self._shared_parents.hold("")

    def set_up_may_fail(self, plan: ClaimPlan) -> bool:
        """Whether the kernel may refuse `set_up`."""
        return self._steps.set_up_may_fail(plan.devices)

    def set_up(self, plan: ClaimPlan) -> None:
        """Do what is possible before the pod exists; nothing if the stored plan has changed since.

        Attach does whatever is missing, so a crash here costs the pod some time and nothing else.
        """
        with self._locks.hold(plan.pod.uid):
            if self.store.get(plan.uid) != plan:
                return
            self._restored.discard(plan.uid)
            # The host state is in the store before the links change.
            found = self._steps.save_settings(self._steps.find_on_host(plan.devices))
            self.store.change(plan.uid, survives_reboot=False, devices=_devices_of(found))
            reach("prepare.settings_saved")
            with self.move_counts.moving(plan.devices):
                self._steps.set_up(found)
            reach("prepare.set_up")

    def set_up_late(self, claim_uid: str) -> None:
        """`set_up` for a claim that was prepared without it.

        Skips devices with saved settings: they were attached before, and may be restored by now.
        """
        plan = self.store.get(claim_uid)
        if plan is not None and state_of(plan) is State.PREPARED and not self._steps.has_saved_settings(plan.devices):
            self.set_up(plan)

    def attach(
        self,
        pod_uid: str,
        netns: str,
        *,
        seconds: float = _DEFAULT_TIMEOUT,
        cancelled: Callable[[], bool] = lambda: False,
        repair_of: ClaimPlan | None = None,
    ) -> list[AttachedDevice]:
        """Attach all devices of a claim or none: after a failure all are detached again, and the error is raised.

        Claims that were attached to this sandbox before are repaired, device by device: nothing leaves the pod, and
        what fails is a `problem` of its device. Containers may be using the other devices.

        A repair names the plan as it was read some time ago, and does nothing for a pod whose devices have moved since
        or that has begun to stop. Only a sandbox that starts ends that state. It detaches nothing that it finds in the
        pod, also of an attach that a crash interrupted.
        """
        deadline = _Deadline(seconds, cancelled)
        with self._locks.hold(pod_uid):
            stopping = self._stopping & {(pod_uid, netns), (pod_uid, "")}
            if repair_of is not None and (stopping or self._has_moved_since(repair_of)):
                return []
            self._stopping -= stopping
            found = self.store.for_pod(pod_uid)
            self._refuse_unreadable(pod_uid)
            # The store names the namespace before the first move: a driver that starts after a crash looks there.
            plans = [self._bind(plan, netns) for plan in self._detach_from_others(found, netns)]
            self._restored -= {plan.uid for plan in plans}
            reach("attach.stored")
            new = [plan for plan in plans if state_of(plan) is not State.ATTACHED]
            try:
                pod = self._namespaces.open(netns)
                if repair_of is not None:
                    new = [plan for plan in new if not self._steps.has_any(pod, plan.devices)]
                attached = self._attach(pod, new, deadline)
                deadline.check()
                attached += self._repair(pod, [plan for plan in plans if plan not in new])
                reach("attach.done")
                # Last, and for all claims of the pod: an open gate lets containers start.
                self._open_gates(pod, plans, attached)
            except (DranetError, OSError) as error:
                log.warning("Attach failed; detaching the devices of its claims", claims=len(new), error=error)
                for plan in new:
                    self._detach_after_failure(plan)
                raise
            reach("attach.gate_written")
            return attached

    def _repair(self, pod: PodNamespace, plans: Sequence[ClaimPlan]) -> list[AttachedDevice]:
        repaired = []
        for plan in plans:
            missing = {}
            for device in plan.devices:
                link, conditions, error = self._steps.repair(pod, device)
                repaired.append(AttachedDevice(plan.ref, device, link, conditions, str(error or "")))
                if isinstance(error, DeviceMissing) and not self._steps.is_elsewhere(device):
                    missing[device.name] = str(error)
            self._missing[plan.uid] = missing
        return repaired

    def _open_gates(self, pod: PodNamespace, plans: Sequence[ClaimPlan], attached: Sequence[AttachedDevice]) -> None:
        """Open the gates of claims whose devices are all attached, or were when their containers started."""
        failed = {item.claim.uid for item in attached if item.problem}
        edits = self._write_edits(pod, [plan for plan in plans if not self._is_multi_pod(plan)], attached)
        for plan in plans:
            if plan.ref.uid not in failed:
                self.gates.write(plan, edits.get(plan.uid, NO_EDITS))
                self.store.change(plan.uid, survives_reboot=False, attached=True)
            elif state_of(plan) is State.ATTACHED and not self.gates.exists(plan.uid):
                self.gates.write(plan, edits.get(plan.uid, NO_EDITS))

    def _write_edits(
        self, pod: PodNamespace, plans: Sequence[ClaimPlan], attached: Sequence[AttachedDevice]
    ) -> dict[str, ContainerEdits]:
        if self._edits is None:
            return {}
        return self._edits.write(pod, plans, [(a.claim.uid, a.device, a.link) for a in attached])

    def _is_multi_pod(self, plan: ClaimPlan) -> bool:
        """Whether several pods have the claim: their containers share one CDI spec, which cannot differ by pod."""
        return plan.is_additional or bool(self.store.additional_plans(plan.uid))

    def clear_container_edits(self, plan: ClaimPlan) -> None:
        """Another pod joins the claim: remove the first pod's edits from the CDI spec that both share."""
        with self._locks.hold(plan.pod.uid):
            if self.gates.exists(plan.uid):
                self.gates.write(plan)

    def _refuse_unreadable(self, pod_uid: str) -> None:
        """A pod gets all its devices or none."""
        for uid, reason in self.store.unreadable_for_pod(pod_uid).items():
            raise AttachError(f"this driver cannot use the stored plan of claim {uid}: {reason}")

    def announce_addresses(self, netns: str, devices: Sequence[DevicePlan]) -> list[DevicePlan]:
        """Send gratuitous ARP and neighbour advertisements for devices that have a carrier; returns the others.

        Without a carrier the kernel drops them. Not in the hook, as closing a packet socket is slow.
        """
        waiting = []
        with contextlib.suppress(KernelError), PodNamespace.open(netns) as pod:
            for device, link in self._steps.find_in_pod(pod, devices):
                if link is None or device.pod_config is None:
                    continue  # the pod is stopping
                if link.operstate in _WITH_CARRIER:
                    cidrs = [address.cidr for address in device.pod_config.addresses]
                    announce(link.name, link.mac, cidrs, namespace_fd=pod.namespace.fd)
                else:
                    waiting.append(device)
        return waiting

    def _detach_from_others(self, plans: Sequence[ClaimPlan], netns: str) -> Sequence[ClaimPlan]:
        """Devices may be in an earlier sandbox of the pod: a runtime that crashed sends no stop hook for it."""
        for plan in plans:
            if plan.netns not in (None, netns):
                self.detach(plan.uid)
        return plans

    def _bind(self, plan: ClaimPlan, netns: str) -> ClaimPlan:
        reach("attach.begun")
        is_current = plan.boot == self.host.boot
        was_attached = state_of(plan) is State.ATTACHED and is_current and plan.netns == netns
        devices = plan.devices if is_current else self._steps.refresh_after_reboot(plan.devices)
        # Not where they may be inside already: the pod may have changed the settings.
        if plan.netns is None and not self._steps.has_saved_settings(devices):
            devices = _devices_of(self._steps.save_settings(self._steps.find_on_host(devices)))
        # A namespace does not survive a reboot, so the hook does not wait for the disk; a refreshed host state does.
        changes = {"netns": netns, "boot": self.host.boot, "devices": devices, "attached": was_attached}
        return self.store.change(plan.uid, survives_reboot=not is_current, **changes) or plan

    def _attach(self, pod: PodNamespace, plans: Sequence[ClaimPlan], deadline: _Deadline) -> list[AttachedDevice]:
        deadline.check()
        owned = [(plan.ref, device) for plan in plans for device in plan.devices]
        devices = [device for _, device in owned]
        with self.move_counts.moving(devices):
            attached = self._steps.attach(pod, devices, check=deadline.check)
        return [AttachedDevice(claim, device, *found) for (claim, device), found in zip(owned, attached, strict=True)]

    def _detach_after_failure(self, plan: ClaimPlan) -> None:
        """Log a failed detach; the caller raises the error of the attach."""
        try:
            self.detach(plan.uid)
        except (DranetError, OSError) as error:
            log.error("Cannot detach devices after a failed attach", claim=plan.ref, error=error)

    def detach(
        self, claim_uid: str, *, stopping: str | None = None, unless_moved_since: ClaimPlan | None = None
    ) -> list[str]:
        """Move everything that is still in the pod to the host and restore its host state; returns the problems.

        Works from what the kernel shows, also for links that the kernel moved, that were renamed, or never left the
        host. `stopping` names the network namespace of a sandbox that stops, "" for a claim that is unprepared:
        devices that are in another sandbox of the pod stay there, and no repair that was planned before attaches them
        again. `unless_moved_since` is the plan as it was read some time ago; devices that moved since stay in place.
        """
        plan = self.store.get(claim_uid)
        if plan is None:
            return []
        with self._locks.hold(plan.pod.uid):
            if stopping is not None:
                self._stopping.add((plan.pod.uid, stopping))
            plan = self.store.get(claim_uid)  # again: the previous holder of the lock may have moved the devices
            if plan is None or (stopping and plan.netns not in (None, stopping)):
                return []
            if unless_moved_since is not None and self._has_moved_since(unless_moved_since):
                return []
            # Nothing is left to do after a stop hook. During an update another driver may have attached the devices
            # since; then the store names a namespace.
            if stopping == "" and plan.uid in self._restored and plan.netns is None:
                return []
            lock = self.lock_shared_parents() if plan.is_shared else nullcontext()
            with log_context(pod=plan.pod, claim=plan.ref), lock:
                return self._detach(plan, last_resort=stopping == "")

    def _detach(self, plan: ClaimPlan, *, last_resort: bool) -> list[str]:
        reach("detach.begun")
        # First: from here on no container of the claim can start, even if the driver crashes.
        self.gates.remove(plan.uid, [other.uid for other in self.store.additional_plans(plan.ref.uid)])
        reach("detach.gate_removed")
        # After a reboot every pod namespace is gone, and the machine has set up its links again.
        with self.move_counts.moving(plan.devices):
            problems = self._detach_and_restore(plan, last_resort) if plan.boot == self.host.boot else []
        # Only now: while the store names a namespace, a driver that restarts continues to detach.
        self.store.change(plan.uid, netns=None, attached=False, survives_reboot=False)
        self._missing.pop(plan.uid, None)
        reach("detach.stored")
        self.release_namespaces()
        _log_problems(problems)
        if not problems:
            self._restored.add(plan.uid)
        return problems

    def _detach_and_restore(self, plan: ClaimPlan, last_resort: bool) -> list[str]:
        """Restore all devices that can be restored, then raise for those that cannot be found.

        Raising leaves the plan unchanged, so that the caller tries again.
        """
        problems: list[str] = []
        failures: list[Exception] = []
        try:
            if plan.netns:
                with self._namespaces.visit(plan.netns) as pod:
                    inside = [link for _, link in self._steps.find_in_pod(pod, plan.devices) if link is not None]
                    delete_beside(pod.route, [link.index for link in inside])
                    problems += self._steps.detach(pod, plan.devices)
        except NamespaceGone as error:
            log.info("The pod's network namespace is gone; the kernel has moved its links to the host", error=error)
        except (DranetError, OSError) as error:
            failures.append(error)
        on_host, lost = self._steps.reclaim(plan.devices, last_resort=last_resort)
        stacked, is_rebound = self._stacked.free(on_host, last_resort=last_resort)
        problems += stacked
        if is_rebound:
            on_host, lost = self._steps.reclaim(plan.devices, last_resort=last_resort)
        # A shared parent is restored only as far as no other claim still has a child of it.
        problems += self._steps.restore(on_host, self.store.devices_of_others(plan.uid))
        if failures := [*failures, *lost]:
            raise DetachError("; ".join(map(str, failures)))
        return problems

    def _has_moved_since(self, seen: ClaimPlan) -> bool:
        now = self.store.get(seen.uid)
        return now is None or now.netns != seen.netns

    def hand_over(self, claim_uid: str, pod: PodRef) -> None:
        """Give the claim to another pod, after detaching its devices from the present one."""
        plan = self.store.get(claim_uid)
        if plan is None:
            return
        with self._locks.hold(plan.pod.uid):
            self.detach(claim_uid)
            self.store.change(claim_uid, pod=pod)

    def try_release(self, plan: ClaimPlan) -> bool:
        """Release a claim whose devices are restored, as they are after a stop hook.

        Waits neither for a lock nor for the disk, so it may run on the event loop. Returns False, with nothing done,
        where more is to be done.
        """
        if plan.uid not in self._restored or plan.is_shared:
            return False
        with self._locks.hold_if_free(plan.pod.uid) as is_held:
            now = self.store.get(plan.uid) if is_held else None
            if now is None or now.netns is not None or plan.uid not in self._restored:
                return False
            self._stopping.add((plan.pod.uid, ""))
            self.store.release(plan.uid)
            self._restored.discard(plan.uid)
            return True

    def release(self, plan: ClaimPlan) -> None:
        """Delete the plan of a claim whose devices are detached."""
        with self.lock_shared_parents() if plan.is_shared else nullcontext():
            if plan.boot == self.host.boot:
                self._restore_shared_parents(plan)
            self.store.delete(plan.uid)
        self._restored.discard(plan.uid)

    def _restore_shared_parents(self, plan: ClaimPlan) -> None:
        """Again: of two pods that were detached together, each found the other's plan and left the parent to it."""
        shared = [device for device in plan.devices if device.mode is AttachMode.SHARED]
        if not shared:
            return
        on_host, _ = self._steps.reclaim(shared, last_resort=False)
        _log_problems(self._steps.restore(on_host, self.store.devices_of_others(plan.uid)))

    def clean_up(self, plan: ClaimPlan) -> None:
        """Remove what is left of a released claim, after the reply to the kubelet; it may be prepared again by now."""
        self.store.flush()
        with self._locks.hold(plan.pod.uid):
            if not self.store.for_pod(plan.pod.uid):
                self._stopping -= {known for known in tuple(self._stopping) if known[0] == plan.pod.uid}
        if self._edits is not None and self.store.get(plan.uid) is None:
            self._edits.remove(plan.uid)

    def prune(self) -> None:
        """Remove gates and files of claims that are not in the store, which a crash may leave behind."""
        known = {*self.store.plans, *self.store.unreadable}
        if stale := self.gates.prune(known):
            log.info("Removed readiness gates of released claims", claim_uids=",".join(stale))
        if self._edits is not None:
            self._edits.prune(known)

    def release_namespaces(self) -> None:
        """Close the namespaces of pods that have no devices any more; during an update another driver may have detached
        them. A namespace that is in use is in the store: it is written there before the first move, under the lock."""
        if self._namespaces.is_empty:
            return
        self._namespaces.drop_all_except({plan.netns for plan in self.store.plans.values() if plan.netns})

    def close(self) -> None:
        """Close every namespace; the devices stay attached."""
        self._namespaces.close()

    def is_attached(self, plan: ClaimPlan) -> bool:
        """Whether the kernel shows every interface of the plan in the pod's network namespace."""
        if plan.netns is None:
            return False
        with self._locks.hold(plan.pod.uid):
            if self._has_moved_since(plan):
                return False
            try:
                return self._steps.is_attached(self._namespaces.open(plan.netns), plan.devices)
            except NamespaceGone:
                return False

    def displaced(self, plan: ClaimPlan) -> dict[str, bool] | None:
        """The NICs of a running pod that are not in it, each with whether it is on the host; None while the pod's
        devices move."""
        with self._locks.hold_if_free(plan.pod.uid) as is_held:
            if not is_held or plan.netns is None or self._has_moved_since(plan):
                return None
            try:
                return self._steps.displaced(self._namespaces.open(plan.netns), plan.devices)
            except NamespaceGone:
                return None

    def are_elsewhere(self, plan: ClaimPlan, names: Container[str]) -> bool:
        """Whether these devices of the plan are all in network namespaces other than their pod's and the host's."""
        return all(self._steps.is_elsewhere(device) for device in plan.devices if device.name in names)


def _devices_of(found: DeviceLinks) -> tuple[DevicePlan, ...]:
    return tuple(device for device, _ in found)


def _log_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        log.warning("Restored a device incompletely", problem=problem)


def log_attached(attached: Sequence[AttachedDevice], reason: str = "") -> None:
    """Log one line for every attached device; `reason` says why it was not attached in the hook."""
    for item in attached:
        with log_context(claim=item.claim, device=item.device.name):
            fields = {"interface": item.link.name} if item.link else {}
            if item.problem:
                log.error("Could not repair device; the other devices stay in the pod", **fields, error=item.problem)
            else:
                log.info("Attached device", **fields, **({"reason": reason} if reason else {}))
