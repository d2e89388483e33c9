"""Pods placed one after the other, as kube-scheduler would, on nodes that fill up.

The allocator answers for one pod on one node; its answer is read for all nodes that are alike (`node_state`). Where
kube-scheduler is free to choose between nodes, the emptiest comes first, then the order in which the nodes were given;
a real one may choose another, but not better devices.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dranet.allocation.allocator import ClusterDevices
from dranet.allocation.outcome import Allocation, AllocationError, NoFit, Outcome
from dranet.manifests.workloads import mapping
from dranet.predict.hardware import Hardware
from dranet.predict.node_state import NodeState, kinds_of_nodes, node_facts
from dranet.predict.pods_to_place import Pod
from dranet.topology.machine import DeviceId

Result = dict[str, Any]
"""One device of an allocation: request, driver, pool, device."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod on a node, with the devices of each of its claims."""

    pod: Pod
    node: str
    devices: tuple[tuple[Result, ...], ...]
    steps: int
    held: frozenset[DeviceId] = frozenset()
    """All that claims hold on the node, this pod's included: what a device plugin cannot hand out."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A pod that no node takes, in the words of the scheduler."""

    pod: Pod
    reason: str
    steps: int = 0


class Scheduler:
    """A cluster that is filled pod by pod."""

    def __init__(
        self,
        hardware: Hardware,
        classes: Iterable[Mapping[str, Any]],
        *,
        texts: Iterable[str] = (),
        held: Mapping[tuple[str, str], tuple[Result, ...]] | None = None,
        nodes: Mapping[str, Mapping[str, Any]] | None = None,
        plugin_used: Mapping[str, Mapping[str, int]] | None = None,
        version: str = "1.36",
    ) -> None:
        """``texts`` are all selectors and constraint attributes that will be asked about: what they do not mention
        cannot tell two nodes apart. ``held`` are the devices of allocated claims by namespace and name, ``nodes`` v1
        Node objects (labels, device plugin capacity, cordoned or not), ``plugin_used`` the GPUs that device plugins
        have handed out, by node and resource."""
        allocated = [result for results in (held or {}).values() for result in results]
        self.cluster = ClusterDevices(hardware.slices, classes, allocated=allocated, version=version)
        kinds = kinds_of_nodes(hardware, list(texts))
        everywhere = any(not raw["spec"].get("nodeName") for raw in hardware.slices)
        self.nodes = {}
        for i, name in enumerate(hardware.machines):
            raw = (nodes or {}).get(name, {})
            gpus, counted, labels = node_facts(hardware, name, raw)
            kind = f"{kinds[name]} {sorted(labels.items())}" if everywhere else kinds[name]
            cordoned = bool(mapping(raw.get("spec")).get("unschedulable"))
            used = tuple(sorted((plugin_used or {}).get(name, {}).items()))
            self.nodes[name] = NodeState(name, i, kind, gpus, labels, counted, cordoned, plugin_used=used)
        # By claim, the node its devices tie it to (empty for any) and the devices.
        self._shared_claims = {
            key: (next((r["pool"] for r in results if r["pool"] in self.nodes), ""), results)
            for key, results in (held or {}).items()
        }
        self._answers: dict[object, tuple[str, Outcome]] = {}
        self._signatures: dict[int, tuple[dict[str, Any], str]] = {}
        self._groups: dict[object, list[tuple[int, int, str]]] = {}
        self._global = 0
        for result in allocated:
            self._mark(result)
        for node in self.nodes.values():
            self._enter(node)

    def waiting_claims(self, pod: Pod) -> list[dict[str, Any]]:
        """The pod's claims that hold nothing yet."""
        return [pod_claim.claim for pod_claim in pod.claims if pod_claim.key not in self._shared_claims]

    def place(self, pod: Pod) -> Placement | Refusal:
        """Find a node for the pod and take its devices."""
        problem = pod.problem or self._missing_class(pod)
        if problem:
            return Refusal(pod, problem)
        claims = self.waiting_claims(pod)
        best: tuple[tuple[int, int, int], NodeState, Allocation] | None = None
        reasons: dict[object, str] = {}
        steps = 0
        for node in self._candidates(pod):
            refused = self._node_problem(node, pod)
            outcome = None if refused else self._ask(node, claims)
            if isinstance(outcome, AllocationError) and outcome.kind != "node":
                return Refusal(pod, f'running "DynamicResources" filter plugin: {outcome.message}', outcome.steps)
            if isinstance(outcome, Allocation):
                rank = (-_score(claims, outcome), node.pods, node.order)
                best = min(best, (rank, node, outcome), key=lambda entry: entry[0]) if best else (rank, node, outcome)
                continue
            reasons[node.key] = refused or (outcome.message if outcome else "")
            steps = max(steps, outcome.steps if outcome else 0)
        if best is None:
            return Refusal(pod, self._no_node(pod, reasons), steps)
        return self._take(pod, best[1], best[2])

    def _candidates(self, pod: Pod) -> Iterator[NodeState]:
        """One node of each kind and state, the emptiest; every allowed node where a pod is choosy."""
        if self._choosy(pod):
            yield from (node for node in self.nodes.values() if self._allowed(node, pod))
            return
        for key in list(self._groups):
            heap = self._groups[key]
            while heap and not self._current(key, heap[0]):
                heapq.heappop(heap)
            if heap:
                yield self.nodes[heap[0][2]]
            else:
                del self._groups[key]

    def excludes(self, node: NodeState, pod: Pod) -> bool:
        """Whether the pod could not land there whatever its claims are."""
        return not self._allowed(node, pod) or bool(self._node_problem(node, pod))

    def _choosy(self, pod: Pod) -> bool:
        return bool(pod.node_name or pod.node_terms or any(c.key in self._shared_claims for c in pod.claims))

    def _current(self, key: object, entry: tuple[int, int, str]) -> bool:
        node = self.nodes[entry[2]]
        return node.pods == entry[0] and node.key == key

    def _enter(self, node: NodeState) -> None:
        heapq.heappush(self._groups.setdefault(node.key, []), (node.pods, node.order, node.name))

    def _allowed(self, node: NodeState, pod: Pod) -> bool:
        if pod.node_name and node.name != pod.node_name:
            return False
        shared = [self._shared_claims[c.key][0] for c in pod.claims if c.key in self._shared_claims]
        if any(where not in {"", node.name} for where in shared):
            return False
        return not pod.node_terms or node.matches(pod.node_terms)

    def _node_problem(self, node: NodeState, pod: Pod) -> str:
        if node.cordoned:
            return "node(s) were unschedulable"
        for resource, wanted in pod.plugin_gpus.items():
            free = node.plugin_free(resource)
            if free is not None and free < wanted:
                return f"Insufficient {resource}"
        return ""

    def _ask(self, node: NodeState, claims: list[dict[str, Any]]) -> Outcome:
        if not claims:
            return Allocation([], 0)
        key = (tuple(self._signature(claim["spec"]) for claim in claims), node.key, self._global)
        known = self._answers.get(key)
        if known is not None:
            return _renamed(known[1], known[0], node.name)
        outcome = self.cluster.allocate({"name": node.name, "labels": dict(node.labels)}, claims)
        if not isinstance(outcome, AllocationError) and _is_local(outcome, node.name):
            self._answers[key] = (node.name, outcome)
        return outcome

    def _signature(self, spec: dict[str, Any]) -> str:
        """The text of a claim's spec; pods of one template share the spec itself."""
        known = self._signatures.get(id(spec))
        if known is None or known[0] is not spec:
            known = self._signatures[id(spec)] = (spec, json.dumps(spec, sort_keys=True, default=str))
        return known[1]

    def _take(self, pod: Pod, node: NodeState, outcome: Allocation) -> Placement:
        self.cluster.commit(outcome)
        for result in outcome.devices:
            self._mark(result)
        used = dict(node.plugin_used)
        for resource, count in pod.plugin_gpus.items():
            used[resource] = used.get(resource, 0) + count
        node.plugin_used = tuple(sorted(used.items()))
        node.pods += 1
        node.renew()
        self._enter(node)
        solved = iter(outcome.results)
        devices: list[tuple[Result, ...]] = []
        for pod_claim in pod.claims:
            if pod_claim.key in self._shared_claims:
                devices.append(self._shared_claims[pod_claim.key][1])
                continue
            found = tuple(next(solved)["devices"].get("results") or ())
            devices.append(found)
            if pod_claim.shared:
                self._shared_claims[pod_claim.key] = (node.name, found)
        return Placement(pod, node.name, tuple(devices), outcome.steps, node.taken)

    def _mark(self, result: Result) -> None:
        if result.get("adminAccess"):
            return
        node = self.nodes.get(result["pool"])
        if node is None or result.get("shareID"):
            self._global += 1  # a pool of several nodes, or shared capacity: no answer of before can be trusted
        if node is not None:
            node.taken |= {(result["driver"], result["device"])}
            node.renew()

    def _missing_class(self, pod: Pod) -> str:
        for pod_claim in pod.claims:
            for request in pod_claim.claim["spec"].get("devices", {}).get("requests") or ():
                parts = request.get("firstAvailable") or [request.get("exactly") or {}]
                for part in parts:
                    name = part.get("deviceClassName")
                    if name not in self.cluster.classes:
                        where = (
                            f"{request['name']}/{part['name']}" if request.get("firstAvailable") else request["name"]
                        )
                        return f"request {where}: device class {name} does not exist"
        return ""

    def _no_node(self, pod: Pod, reasons: dict[object, str]) -> str:
        """Every node is counted under the reason given for its kind."""
        counts: dict[str, int] = {}
        for node in self.nodes.values():
            allowed = not self._choosy(pod) or self._allowed(node, pod)
            reason = reasons.get(node.key, "") if allowed else "node(s) didn't match Pod's node affinity/selector"
            counts[reason] = counts.get(reason, 0) + 1
        shown = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
        return f"0/{len(self.nodes)} nodes are available: {shown}."


def _is_local(outcome: Outcome, node: str) -> bool:
    """Whether an answer speaks of this node's own pools alone, so that it can be read for another node."""
    return isinstance(outcome, NoFit) or all(
        result["pool"] == node and not result.get("shareID") for result in getattr(outcome, "devices", ())
    )


def _renamed(outcome: Outcome, node: str, other: str) -> Outcome:
    """The same answer for another node that is alike."""
    if not isinstance(outcome, Allocation) or node == other:
        return outcome
    results = [
        {"devices": {"results": [{**found, "pool": other} for found in result["devices"].get("results") or ()]}}
        for result in outcome.results
    ]
    return Allocation(results, outcome.steps)


def _score(claims: Sequence[Mapping[str, Any]], outcome: Allocation) -> int:
    """The scheduler prefers nodes where earlier alternatives of firstAvailable fit."""
    score = 0
    for claim, result in zip(claims, outcome.results, strict=True):
        chosen = {r["request"] for r in result["devices"].get("results") or ()}
        for request in claim["spec"].get("devices", {}).get("requests") or ():
            names = [f"{request['name']}/{sub['name']}" for sub in request.get("firstAvailable") or ()]
            score += sum(8 - i for i, name in enumerate(names) if name in chosen)
    return score
