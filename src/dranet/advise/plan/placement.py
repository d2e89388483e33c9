"""Place pods one after the other, as kube-scheduler would, on nodes that fill up.

`dranet.scheduler` decides. The simulator turns its results into placements with devices, and adds what happens outside
the scheduler: pods with spec.nodeName, DaemonSets, and claims that several pods use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests import is_gpu_resource
from dranet.advise.plan.pending_pods import PendingPod, PodClaim
from dranet.advise.plan.quotas import Quotas
from dranet.core.names import DRIVER_NAME
from dranet.core.netconfig_merge import supports_multiple_pods
from dranet.machines.machine import DeviceId
from dranet.scheduler import NodeInfo, PodInfo, PodInfoReader, ScheduleResult
from dranet.scheduler import Pod as ScheduledPod
from dranet.scheduler import Scheduler as KubeScheduler
from dranet.scheduler.allocation.outcome import Allocation, NoFit
from dranet.scheduler.allocation.shares import share_text
from dranet.scheduler.claims import EXTENDED_RESOURCE_CLAIM, ClaimKey, claim_key, device_results
from dranet.scheduler.plugins.node_affinity import matches_node_affinity
from dranet.scheduler.taints import blocks

_GATED = "Scheduling is blocked due to non-empty scheduling gates"
_DAEMON_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": effect}
    for what, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
]
"""What every pod of a DaemonSet tolerates."""


class DeviceResult(msgspec.Struct, frozen=True):
    """One device of an allocation: the API's DeviceRequestAllocationResult."""

    request: str
    driver: str
    pool: str
    device: str
    raw: Mapping[str, Any]
    """The result as the allocator or a server wrote it."""

    @property
    def id(self) -> DeviceId:
        """Driver and device name: unique on a node."""
        return self.driver, self.device

    @property
    def admin_access(self) -> bool:
        """Whether the claim only observes the device, which other claims may hold."""
        return bool(self.raw.get("adminAccess"))

    @property
    def share(self) -> str:
        """The share of the device that the claim has, such as ``10G bandwidth``; empty for a whole device."""
        return share_text(self.raw)

    def to_json(self) -> dict[str, str]:
        """The fields that name the device."""
        return {"request": self.request, "driver": self.driver, "pool": self.pool, "device": self.device}


def device_result(raw: Mapping[str, Any]) -> DeviceResult:
    """Parse one result of an allocation."""
    return DeviceResult(str(raw.get("request", "")), str(raw["driver"]), str(raw["pool"]), str(raw["device"]), raw)


class Placement(msgspec.Struct, frozen=True):
    """A pod on a node, with the devices of each of its claims."""

    pod: PendingPod
    node: str
    devices: tuple[tuple[DeviceResult, ...], ...]
    steps: int
    held: frozenset[DeviceId] = frozenset()
    """All devices of claims on the node, this pod's included: a device plugin cannot allocate them."""
    others: int = 0
    """How many other nodes have the same score: the scheduler may pick any of them."""


class Refusal(msgspec.Struct, frozen=True):
    """A pod that fits on no node, with the scheduler's message."""

    pod: PendingPod
    reason: str
    steps: int = 0

    @property
    def refused(self) -> bool:
        """Whether the API server refuses the pod: it never exists, and no scheduler sees it."""
        return bool(self.pod.refused) and self.reason == self.pod.refused


class NodeView(msgspec.Struct, frozen=True):
    """A node as it is now."""

    state: NodeInfo
    scheduler: KubeScheduler

    @property
    def name(self) -> str:
        """Its name."""
        return self.state.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.state.node.labels

    @property
    def cordoned(self) -> bool:
        """Nothing new is scheduled there; what runs there stays."""
        return self.state.node.unschedulable

    @property
    def taken(self) -> frozenset[DeviceId]:
        """Devices that claims hold."""
        return frozenset((driver, device) for driver, _, device in self.state.allocated)

    @property
    def gpus_in_use(self) -> dict[str, int]:
        """GPUs that device plugins have handed out."""
        used = self.state.requested
        return {name: used[name] for name in self.state.node.allocatable if used.get(name) and is_gpu_resource(name)}

    @property
    def key(self) -> object:
        """Nodes with equal keys give equal answers."""
        return self.scheduler.cluster.group_key(self.name)

    def gpus_free(self, resource: str) -> int | None:
        """GPUs left for a device plugin; None where nothing is known about them."""
        known = resource in self.state.node.allocatable or not self.state.node.allocatable_partial
        return self.state.free(resource) if known else None


class RunningPod(msgspec.Struct, frozen=True):
    """A pod that is on a node already."""

    info: PodInfo
    node: str
    claims: tuple[ClaimKey, ...] = ()


@dataclass
class Simulator:
    """A cluster that is filled pod by pod."""

    scheduler: KubeScheduler
    reader: PodInfoReader
    quotas: Quotas
    notes: set[str] = field(default_factory=set)
    """What was not considered in any of the answers."""
    users: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The pods that claims are reserved for already."""
    running: Mapping[ClaimKey, RunningPod] = field(default_factory=dict)
    """By namespace and name, the pods that are on nodes already."""

    def __post_init__(self) -> None:
        self.cluster = self.scheduler.claims.allocator
        self.nodes = {name: NodeView(state, self.scheduler) for name, state in self.scheduler.cluster.nodes.items()}
        self._users = dict(self.users)
        self._pods = dict(self.running)
        self._undo: list[Callable[[], None]] = []

    def checkpoint(self) -> int:
        """A state that `rollback` can return to."""
        return len(self._undo)

    def rollback(self, checkpoint: int) -> None:
        """Undo everything that was placed and evicted since the checkpoint."""
        while len(self._undo) > checkpoint:
            self._undo.pop()()

    def evict(self, namespace: str, name: str) -> None:
        """Remove a pod, one that ran before or one that was placed here, and free the devices that only it used."""
        found = self._pods.pop((namespace, name), None)
        if found is None:
            return
        freed = self.scheduler.evict(found.info, found.node, found.claims)
        users = self._users
        self._users = {key: user for key, user in users.items() if key not in freed}

        def undo() -> None:
            self.scheduler.undo_evict(found.info, found.node, found.claims, freed)
            self._pods[namespace, name], self._users = found, users

        self._undo.append(undo)

    def waiting_claims(self, pod: PendingPod) -> list[dict[str, Any]]:
        """The pod's claims that hold nothing yet."""
        allocated = self.scheduler.claims.allocated
        return [pod_claim.claim for pod_claim in pod.claims if pod_claim.key not in allocated]

    def decide(self, pod: PendingPod) -> ScheduleResult:
        """The decision of kube-scheduler, and the nodes it would choose from."""
        info = self._pod_info(pod)
        return self.scheduler.decide(ScheduledPod(pod.name, info, tuple(one.claim for one in pod.claims)))

    def priority(self, pod: PendingPod) -> int:
        """The pod's priority; the higher go first."""
        return self._pod_info(pod).priority

    def pod_signature(self, pod: PendingPod) -> object:
        """Equal for pods that are interchangeable."""
        claims = tuple(one.key if one.shared else self.scheduler.claims.signature(one.claim) for one in pod.claims)
        return id(self._pod_info(pod)), claims

    def scored_requests(self, pod: PendingPod) -> tuple[int, int]:
        """CPU and memory the pod asks for, as scores count them."""
        return self._pod_info(pod).requests.scoring

    def equal_nodes(self, pod: PendingPod) -> list[str]:
        """Of equally good nodes one of each kind: the scheduler draws among them. None where it refuses the pod."""
        if pod.refused or pod.problem or pod.node_name or self.quotas.charge(pod):
            return []
        verdict = self.decide(pod)
        return [] if verdict.message else [place.group.first() for place in verdict.best]

    def place(self, pod: PendingPod, chosen: str = "") -> Placement | Refusal:
        """Find a node for the pod, or take the one chosen among `choices`, and take its devices there."""
        if why := self.blocked_reason(pod):
            return Refusal(pod, why)
        if pod.node_name:
            return self._place_on_named_node(pod)
        verdict = self.decide(pod)
        self.notes.update(verdict.notes)
        node = None if verdict.message else chosen or self.scheduler.select_host(verdict)
        if node is None:
            return Refusal(pod, self._reason(verdict), self._most_steps(pod, verdict))
        return self._take(pod, verdict, node)

    def blocked_reason(self, pod: PendingPod) -> str:
        """Why the pod never reaches the scheduler; empty if it does, or if it has its node and devices."""
        gated = _GATED if pod.spec.get("schedulingGates") else ""
        return pod.refused or pod.problem or self.quotas.charge(pod) or gated or self._node_name_problem(pod)

    def daemon_wanted(self, pod: PendingPod) -> bool:
        """Whether the DaemonSet controller creates this pod for its node."""
        if not pod.daemon_node:
            return True
        info, node = self._pod_info(replace(pod, daemon_node="")), self.nodes[pod.daemon_node].state.node
        tolerations = [*info.tolerations, *_DAEMON_TOLERATIONS]
        return matches_node_affinity(info, node) and not blocks(node.taints, tolerations)

    def excludes(self, node: NodeView, pod: PendingPod) -> bool:
        """Whether the node rejects the pod independently of its claims."""
        without = replace(pod, claims=(), daemon_node=pod.daemon_node)
        cycle = self.scheduler.decide(ScheduledPod(pod.name, self._pod_info(without), ()))
        return not any(node.name in place.group for place in cycle.feasible)

    def _pod_info(self, pod: PendingPod) -> PodInfo:
        spec = pod.spec
        if pod.daemon_node:
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pod.daemon_node]}]}
            affinity = {**(spec.get("affinity") or {})}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), **required}
            tolerations = [*(spec.get("tolerations") or ()), *_DAEMON_TOLERATIONS]
            spec = {**spec, "affinity": affinity, "tolerations": tolerations}
        return self.reader.read(spec, namespace=pod.namespace, labels=pod.labels, controller=pod.controller)

    def _reason(self, verdict: ScheduleResult) -> str:
        if not verdict.preemptions:
            return verdict.message
        nodes = list(dict.fromkeys(one.node for one in verdict.preemptions))
        count = min(len(one.victims) for one in verdict.preemptions)
        where = nodes[0] if len(nodes) == 1 else f"{nodes[0]} or {len(nodes) - 1} other nodes"
        pods = "1 pod" if count == 1 else f"{count} pods"
        return f"{verdict.message} kube-scheduler then preempts {pods} of lower priority on {where}"

    def _most_steps(self, pod: PendingPod, verdict: ScheduleResult) -> int:
        """How long the longest search took on nodes that had no devices for it."""
        states = [group.sample for group, why in verdict.rejected if why.reasons == (NoFit(0).message,)]
        asked = ScheduledPod(pod.name, self._pod_info(pod), tuple(one.claim for one in pod.claims))
        waiting = self.scheduler.claims.unallocated
        return max(
            (
                self.scheduler.claims.allocate(one, waiting(self.scheduler.claims.of_pod(asked, one))).steps
                for one in states
            ),
            default=0,
        )

    def _take(self, pod: PendingPod, verdict: ScheduleResult, node: str) -> Placement | Refusal:
        others = sum(len(place.group) for place in verdict.best) - 1  # now: the node is another one once it is taken
        waiting, outcome = self.scheduler.find_devices(verdict.pod, node)
        # Pods of a DaemonSet differ only in their node, so they share one PodInfo there.
        settled = replace(verdict.pod, info=self._pod_info(replace(pod, daemon_node="")))
        self._bind(pod, settled, node, waiting, outcome)
        new = dict(zip(map(claim_key, waiting), outcome.results, strict=True))
        shown = _with_extended(pod, waiting, self.nodes[node].state)
        allocations = [new.get(one.key) or self.scheduler.claims.allocated[one.key] for one in shown.claims]
        if refused := self._driver_refusal(pod, allocations, node):
            return Refusal(pod, refused)
        devices = tuple(tuple(map(device_result, device_results(allocation))) for allocation in allocations)
        return Placement(shown, node, devices, outcome.steps, self.nodes[node].taken, others)

    def _bind(
        self, pod: PendingPod, settled: ScheduledPod, node: str, waiting: Sequence[Any], outcome: Allocation
    ) -> None:
        self.scheduler.bind(settled, node)
        key, users, before = (pod.namespace, pod.name), dict(self._users), self._pods.get((pod.namespace, pod.name))
        self._pods[key] = RunningPod(settled.info, node, tuple(map(claim_key, settled.claims)))

        def undo() -> None:
            self.scheduler.unbind(settled, node, waiting, outcome)
            self._users = users
            self._pods.pop(key)
            if before is not None:
                self._pods[key] = before

        self._undo.append(undo)

    def _driver_refusal(self, pod: PendingPod, allocations: list[Mapping[str, Any]], node: str) -> str:
        """Several pods may share a claim, but not one with our NICs, unless each pod gets its own child link."""
        for one, allocation in zip(pod.claims, allocations, strict=False):
            ours = any(result["driver"] == DRIVER_NAME for result in device_results(allocation))
            config = (allocation.get("devices") or {}).get("config") or ()
            by_claim_first = sorted(config, key=lambda entry: entry.get("source") == "FromClass")
            if one.shared and ours and not supports_multiple_pods(by_claim_first):
                first = self._users.setdefault(one.key, pod.name)
                if first != pod.name:
                    return (
                        f"scheduled on {node}, but it does not start: pod {first} also uses claim {one.key[1]}, "
                        "and a NIC can be in one pod only; a ResourceClaimTemplate creates a claim for each pod"
                    )
        return ""

    def _node_name_problem(self, pod: PendingPod) -> str:
        """What is wrong with a pod that names its node."""
        if not pod.node_name:
            return ""
        if pod.node_name not in self.nodes:
            return f"spec.nodeName is {pod.node_name}, and there is no such node"
        waiting = [one.ref for one in pod.claims if one.key not in self.scheduler.claims.allocated]
        return (
            f"spec.nodeName is {pod.node_name}: the pod bypasses kube-scheduler, so its claims "
            f"({', '.join(waiting)}) are never allocated; choose the node with nodeSelector or affinity"
            if waiting
            else ""
        )

    def _place_on_named_node(self, pod: PendingPod) -> Placement:
        """A pod that names its node, with claims that are allocated: no scheduler sees it."""
        settled = ScheduledPod(pod.name, self._pod_info(pod), tuple(one.claim for one in pod.claims))
        self._bind(pod, settled, pod.node_name, (), Allocation([], 0))
        devices = tuple(
            tuple(map(device_result, device_results(self.scheduler.claims.allocated[one.key]))) for one in pod.claims
        )
        return Placement(pod, pod.node_name, devices, 0, self.nodes[pod.node_name].taken)


def _with_extended(pod: PendingPod, waiting: list[Any], node: NodeInfo) -> PendingPod:
    """The pod with the claim made for its extended resources, and without those among what its device plugin gives."""
    made = [claim for claim in waiting if claim["metadata"]["name"] == EXTENDED_RESOURCE_CLAIM]
    if not made:
        return pod
    plugin = {name: count for name, count in pod.plugin_gpus.items() if node.node.allocatable.get(name)}
    claim = {**made[0], "metadata": {"namespace": pod.namespace, "name": EXTENDED_RESOURCE_CLAIM}}
    return replace(pod, claims=(*pod.claims, PodClaim("(extended resources)", claim)), plugin_gpus=plugin)


def allocation_of(results: tuple[DeviceResult, ...], node: str | None) -> Mapping[str, Any]:
    """An AllocationResult for devices that a claim holds; bound to the node they are on, if they are on one."""
    selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "devices": {"results": [{"request": "", **result.raw} for result in results]},
        **({"nodeSelector": {"nodeSelectorTerms": [selector]}} if node else {}),
    }
