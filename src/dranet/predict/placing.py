"""Pods placed one after the other, as kube-scheduler would, on nodes that fill up.

`dranet.scheduling` decides; here its verdicts become placements with devices, and what happens beside the scheduler is
added: pods that name their node themselves, DaemonSets, and claims that several pods want at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.allocation.outcome import Allocation, NoFit
from dranet.manifests.workloads import is_gpu_resource
from dranet.model.names import DRIVER_NAME
from dranet.model.several_pods import serves_several_pods
from dranet.predict.pods_to_place import Pod, PodClaim
from dranet.predict.quotas import Quotas
from dranet.scheduling import Pod as ScheduledPod
from dranet.scheduling import Scheduler as KubeScheduler
from dranet.scheduling import Traits, TraitsReader, Verdict
from dranet.scheduling.claims import EXTENDED, key_of, results_of
from dranet.scheduling.filters.node_affinity import wanted
from dranet.scheduling.filters.taint_toleration import goes_there
from dranet.scheduling.nodes import NodeState
from dranet.topology.machine import DeviceId

Result = dict[str, Any]
"""One device of an allocation: request, driver, pool, device."""
GATED = "Scheduling is blocked due to non-empty scheduling gates"
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


class Placement(msgspec.Struct, frozen=True):
    """A pod on a node, with the devices of each of its claims."""

    pod: Pod
    node: str
    devices: tuple[tuple[Result, ...], ...]
    steps: int
    held: frozenset[DeviceId] = frozenset()
    """All that claims hold on the node, this pod's included: what a device plugin cannot hand out."""
    others: int = 0
    """How many other nodes the scheduler may take as well: they have as many points."""


class Refusal(msgspec.Struct, frozen=True):
    """A pod that no node takes, in the words of the scheduler."""

    pod: Pod
    reason: str
    steps: int = 0


class NodeView(msgspec.Struct, frozen=True):
    """A node as it is now."""

    state: NodeState
    scheduler: KubeScheduler

    @property
    def name(self) -> str:
        """Its name."""
        return self.state.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self.state.facts.labels

    @property
    def cordoned(self) -> bool:
        """Nothing new is scheduled there; what runs there stays."""
        return self.state.facts.cordoned

    @property
    def taken(self) -> frozenset[DeviceId]:
        """Devices that claims hold."""
        return frozenset((driver, device) for driver, _, device in self.state.taken)

    @property
    def plugin_used(self) -> dict[str, int]:
        """GPUs that device plugins have handed out."""
        used = self.state.used
        return {name: used[name] for name in self.state.facts.allocatable if used.get(name) and is_gpu_resource(name)}

    @property
    def key(self) -> object:
        """Nodes with equal keys give equal answers."""
        return self.scheduler.cluster.key(self.name)

    def plugin_free(self, resource: str) -> int | None:
        """GPUs left for a device plugin; None where nothing is known about them."""
        known = resource in self.state.facts.allocatable or not self.state.facts.open
        return self.state.free(resource) if known else None


class _Taken(msgspec.Struct, frozen=True):
    """What one placement changed."""

    pod: ScheduledPod
    node: str
    waiting: tuple[Any, ...]
    outcome: Allocation


@dataclass
class Scheduler:
    """A cluster that is filled pod by pod."""

    kube: KubeScheduler
    reader: TraitsReader
    quotas: Quotas
    notes: set[str] = field(default_factory=set)
    """What was not considered in any of the answers."""
    users: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """The pods that claims are reserved for already."""

    def __post_init__(self) -> None:
        self.cluster = self.kube.claims.allocator
        self.nodes = {name: NodeView(state, self.kube) for name, state in self.kube.cluster.nodes.items()}
        self._users = dict(self.users)
        self._taken: list[_Taken] = []

    def mark(self) -> int:
        """A point to come back to."""
        return len(self._taken)

    def undo(self, mark: int) -> None:
        """As if nothing had been placed since the mark."""
        while len(self._taken) > mark:
            last = self._taken.pop()
            self.kube.forget(last.pod, last.node, last.waiting, last.outcome)
            self._users = {key: name for key, name in self._users.items() if name != last.pod.name}

    def waiting_claims(self, pod: Pod) -> list[dict[str, Any]]:
        """The pod's claims that hold nothing yet."""
        allocated = self.kube.claims.allocated
        return [pod_claim.claim for pod_claim in pod.claims if pod_claim.key not in allocated]

    def decide(self, pod: Pod) -> Verdict:
        """What the scheduler would say, and which nodes it would choose from."""
        traits = self._traits(pod)
        return self.kube.decide(ScheduledPod(pod.name, traits, tuple(one.claim for one in pod.claims)))

    def priority(self, pod: Pod) -> int:
        """The pod's priority; the higher go first."""
        return self._traits(pod).priority

    def kind(self, pod: Pod) -> object:
        """Equal for pods that are interchangeable."""
        claims = tuple(one.key if one.shared else self.kube.claims.signature(one.claim) for one in pod.claims)
        return id(self._traits(pod)), claims

    def counted(self, pod: Pod) -> tuple[int, int]:
        """CPU and memory the pod asks for, as scores count them."""
        return self._traits(pod).requests.scored

    def choices(self, pod: Pod) -> list[str]:
        """Of equally good nodes one of each kind: the scheduler draws among them. None where it refuses the pod."""
        if pod.problem or pod.node_name or self.quotas.charge(pod):
            return []
        verdict = self.decide(pod)
        return [] if verdict.message else [place.alike.first() for place in verdict.best]

    def place(self, pod: Pod, chosen: str = "") -> Placement | Refusal:
        """Find a node for the pod, or take the one chosen among `choices`, and take its devices there."""
        if why := self.never_asked(pod):
            return Refusal(pod, why)
        if pod.node_name:
            return self._bound(pod)
        verdict = self.decide(pod)
        self.notes.update(verdict.notes)
        node = None if verdict.message else chosen or self.kube.choose(verdict)
        if node is None:
            return Refusal(pod, self._reason(verdict), self._most_steps(pod, verdict))
        return self._take(pod, verdict, node)

    def never_asked(self, pod: Pod) -> str:
        """Why no scheduler ever decides about the pod; nothing where one does, or where it has its node and devices."""
        gated = GATED if pod.spec.get("schedulingGates") else ""
        return pod.problem or self.quotas.charge(pod) or gated or self._wrongly_bound(pod)

    def runs_there(self, pod: Pod) -> bool:
        """Whether a DaemonSet's controller makes a pod for the node it is meant for."""
        if not pod.daemon_node:
            return True
        traits, facts = self._traits(replace(pod, daemon_node="")), self.nodes[pod.daemon_node].state.facts
        return wanted(traits, facts) and goes_there(facts, [*traits.tolerations, *_DAEMON_TOLERATIONS])

    def excludes(self, node: NodeView, pod: Pod) -> bool:
        """Whether the pod could not land there whatever its claims are."""
        without = replace(pod, claims=(), daemon_node=pod.daemon_node)
        cycle = self.kube.decide(ScheduledPod(pod.name, self._traits(without), ()))
        return not any(node.name in place.alike for place in cycle.places)

    def _traits(self, pod: Pod) -> Traits:
        spec = pod.spec
        if pod.daemon_node:
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pod.daemon_node]}]}
            affinity = {**(spec.get("affinity") or {})}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            affinity["nodeAffinity"] = {**(affinity.get("nodeAffinity") or {}), **required}
            tolerations = [*(spec.get("tolerations") or ()), *_DAEMON_TOLERATIONS]
            spec = {**spec, "affinity": affinity, "tolerations": tolerations}
        return self.reader.read(spec, namespace=pod.namespace, labels=pod.labels, controller=pod.controller)

    def _reason(self, verdict: Verdict) -> str:
        if not verdict.preemptions:
            return verdict.message
        nodes = list(dict.fromkeys(one.node for one in verdict.preemptions))
        count = min(len(one.victims) for one in verdict.preemptions)
        where = nodes[0] if len(nodes) == 1 else f"{nodes[0]} or {len(nodes) - 1} other nodes"
        pods = "1 less important pod" if count == 1 else f"{count} less important pods"
        return f"{verdict.message} It will then make {pods} leave {where} and go there"

    def _most_steps(self, pod: Pod, verdict: Verdict) -> int:
        """How long the longest search took on nodes that had no devices for it."""
        states = [alike.sample for alike, why in verdict.rejected if why.reasons == (NoFit(0).message,)]
        asked = ScheduledPod(pod.name, self._traits(pod), tuple(one.claim for one in pod.claims))
        waiting = self.kube.claims.waiting
        return max(
            (self.kube.claims.ask(one, waiting(self.kube.claims.of_pod(asked, one))).steps for one in states), default=0
        )

    def _take(self, pod: Pod, verdict: Verdict, node: str) -> Placement | Refusal:
        others = sum(len(place.alike) for place in verdict.best) - 1  # now: the node is another one once it is taken
        waiting, outcome = self.kube.devices(verdict.pod, node)
        # A pod of a DaemonSet differs from its siblings in the node it is meant for, and in nothing that counts there.
        settled = replace(verdict.pod, traits=self._traits(replace(pod, daemon_node="")))
        self.kube.take(settled, node)
        self._taken.append(_Taken(settled, node, tuple(waiting), outcome))
        new = dict(zip(map(key_of, waiting), outcome.results, strict=True))
        shown = _with_extended(pod, waiting, self.nodes[node].state)
        allocations = [new.get(one.key) or self.kube.claims.allocated[one.key] for one in shown.claims]
        if refused := self._refused_by_the_driver(pod, allocations, node):
            return Refusal(pod, refused)
        devices = tuple(tuple(results_of(allocation)) for allocation in allocations)
        return Placement(shown, node, devices, outcome.steps, self.nodes[node].taken, others)

    def _refused_by_the_driver(self, pod: Pod, allocations: list[Mapping[str, Any]], node: str) -> str:
        """Several pods may share a claim, but not one with our cards in it, unless each can have a child of its own."""
        for one, allocation in zip(pod.claims, allocations, strict=False):
            ours = any(result["driver"] == DRIVER_NAME for result in results_of(allocation))
            config = (allocation.get("devices") or {}).get("config") or ()
            by_claim_first = sorted(config, key=lambda entry: entry.get("source") == "FromClass")
            if one.shared and ours and not serves_several_pods(by_claim_first):
                first = self._users.setdefault(one.key, pod.name)
                if first != pod.name:
                    return (
                        f"scheduled on {node}, but it does not start: claim {one.key[1]} is pod {first}'s as well, "
                        "and a network card belongs to one pod only; a ResourceClaimTemplate makes a claim for each pod"
                    )
        return ""

    def _wrongly_bound(self, pod: Pod) -> str:
        """What is wrong with a pod that names its node."""
        if not pod.node_name:
            return ""
        if pod.node_name not in self.nodes:
            return f"it names node {pod.node_name} itself (nodeName), and there is no such node"
        waiting = [one.ref for one in pod.claims if one.key not in self.kube.claims.allocated]
        return (
            f"it names node {pod.node_name} itself (nodeName): kube-scheduler never sees it, nobody allocates "
            f"{', '.join(waiting)}, and it waits for ever; choose the node with nodeSelector or affinity"
            if waiting
            else ""
        )

    def _bound(self, pod: Pod) -> Placement:
        """A pod that names its node, with claims that are allocated: no scheduler sees it."""
        settled = ScheduledPod(pod.name, self._traits(pod), tuple(one.claim for one in pod.claims))
        self.kube.take(settled, pod.node_name)
        devices = tuple(tuple(results_of(self.kube.claims.allocated[one.key])) for one in pod.claims)
        return Placement(pod, pod.node_name, devices, 0, self.nodes[pod.node_name].taken)


def _with_extended(pod: Pod, waiting: list[Any], node: NodeState) -> Pod:
    """The pod with the claim made for its extended resources, and without those among what its device plugin gives."""
    made = [claim for claim in waiting if claim["metadata"]["name"] == EXTENDED]
    if not made:
        return pod
    plugin = {name: count for name, count in pod.plugin_gpus.items() if node.facts.allocatable.get(name)}
    claim = {**made[0], "metadata": {"namespace": pod.namespace, "name": EXTENDED}}
    return replace(pod, claims=(*pod.claims, PodClaim("(extended resources)", claim)), plugin_gpus=plugin)


def allocation_of(results: tuple[Result, ...], node: str | None) -> Mapping[str, Any]:
    """An AllocationResult for devices that a claim holds; bound to the node they are on, if they are on one."""
    selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "devices": {"results": list(results)},
        **({"nodeSelector": {"nodeSelectorTerms": [selector]}} if node else {}),
    }


__all__ = ["Allocation", "NodeView", "Placement", "Refusal", "Result", "Scheduler", "allocation_of"]
