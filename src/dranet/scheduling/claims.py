"""The claims of pods: which are allocated and where, and what the allocator says of the others on a node.

The allocator is asked once for all nodes whose devices are alike and equally in use; its answer is then read for each
of them under its own name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dranet.allocation.alike_claims import AlikeClaims
from dranet.allocation.allocator import ClusterDevices
from dranet.allocation.nodes import Node, selector_matches
from dranet.allocation.outcome import Allocation, AllocationError, NoFit, Outcome
from dranet.model.untyped import at, mapping, mappings, name_of, namespace_of
from dranet.scheduling.amounts import container_requests, containers
from dranet.scheduling.nodes import Holding, NodeState
from dranet.scheduling.pods import Pod, Traits

ClaimKey = tuple[str, str]
"""Namespace and name."""
Claim = Mapping[str, Any]
Result = Mapping[str, Any]
EXTENDED = "<extended-resources>"
"""The scheduler's name for the claim it makes itself for extended resources that a DeviceClass stands for."""
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Every class is an extended resource under this name; it may have one more of its own."""
_EXTENDED_SINCE = (1, 36)


class Claims:
    """Allocations as they are made, and answers about those to come."""

    def __init__(
        self,
        slices: Iterable[Mapping[str, Any]],
        classes: Iterable[Mapping[str, Any]],
        allocated: Mapping[ClaimKey, Mapping[str, Any]] | None = None,
        *,
        version: str = "1.36",
    ) -> None:
        """``allocated`` are v1 AllocationResults of claims that have one."""
        slices = list(slices)
        self.allocated = dict(allocated or {})
        self.users: dict[ClaimKey, int] = {}
        """How many pods use an allocated claim."""
        held = [result for allocation in self.allocated.values() for result in results_of(allocation)]
        self.allocator = ClusterDevices(slices, classes, allocated=held, version=version)
        extended = self.allocator.rules.version >= _EXTENDED_SINCE
        self.extended_classes = extended_classes(self.allocator.classes) if extended else {}
        self.elsewhere = 0
        """Grows with what changes outside any single node: no answer of before can be trusted then."""
        self._node_of = {
            (str(at(raw, "spec", "driver")), str(at(raw, "spec", "pool", "name"))): str(at(raw, "spec", "nodeName"))
            for raw in slices
            if at(raw, "spec", "nodeName")
        }
        self._answers: dict[object, tuple[str, Outcome]] = {}
        self._signatures: dict[int, tuple[Any, str]] = {}
        self._descriptions: dict[tuple[int, str], tuple[Any, str]] = {}
        self._alike: dict[str, AlikeClaims] = {}

    def waiting(self, claims: Iterable[Claim]) -> list[Claim]:
        """Those that hold nothing yet."""
        return [claim for claim in claims if key_of(claim) not in self.allocated]

    def available(self, claim: Claim, node: NodeState) -> bool:
        """Whether a claim can be used on a node; one that is not allocated can be anywhere."""
        selector = self.allocated.get(key_of(claim), {}).get("nodeSelector")
        return not isinstance(selector, dict) or selector_matches(selector, Node(node.name, node.facts.labels))

    def of_pod(self, pod: Pod, node: NodeState) -> list[Claim]:
        """The pod's claims on a node, with the one for extended resources that no device plugin offers there."""
        requests = self._extended_requests(pod.traits, node) if self.extended_classes else []
        if not requests:
            return list(pod.claims)
        metadata = {"namespace": pod.namespace, "name": EXTENDED}
        return [*pod.claims, {"metadata": metadata, "spec": {"devices": {"requests": requests}}}]

    def wants_any(self, pod: Pod) -> bool:
        """Whether the pod has claims, or will have one for extended resources."""
        return bool(pod.claims) or self.wants_extended(pod.traits)

    def wants_extended(self, traits: Traits) -> bool:
        """Whether such a pod asks for extended resources that a class stands for."""
        return any(amount and name in self.extended_classes for name, amount in traits.requests.needed.items())

    def binding_error(self, pod: Pod, node: NodeState) -> str:
        """What the scheduler trips over after it has chosen a node, if anything.

        It makes a claim for extended resources that a class stands for even where the node's device plugin offers them
        all, if the pod has other claims; that one is empty, and an empty one it cannot write down.
        """
        if not pod.claims or not self.wants_extended(pod.traits) or len(self.of_pod(pod, node)) > len(pod.claims):
            return ""
        what = f"no update of pod {pod.namespace}/{pod.name} ExtendedResourceClaimStatus"
        return f'running PreBind plugin "DynamicResources": nil or empty request mappings, {what}'

    def ask(self, node: NodeState, claims: Sequence[Claim]) -> Outcome:
        """What the allocator makes of unallocated claims on a node."""
        if not claims:
            return Allocation([], 0)
        if not node.facts.devices:
            return self.allocator.allocate({"name": node.name, "labels": dict(node.facts.labels)}, claims)
        described = tuple(self._described(claim, node) for claim in claims)
        key = (described, node.facts.devices, node.in_use, self.elsewhere)
        known = self._answers.get(key)
        if known is not None:
            return _renamed(known[1], known[0], node.name)
        outcome = self.allocator.allocate({"name": node.name, "labels": dict(node.facts.labels)}, claims)
        if not isinstance(outcome, AllocationError) and _is_local(outcome, node.name):
            self._answers[key] = (node.name, outcome)
        return outcome

    def _described(self, claim: Claim, node: NodeState) -> str:
        """What the claim asks of nodes like this one; equal for claims that get the same answer there."""
        spec, kind = claim["spec"], node.facts.devices
        known = self._descriptions.get((id(spec), kind))
        if known is None or known[0] is not spec:
            if kind not in self._alike:
                place = {"name": node.name, "labels": dict(node.facts.labels)}
                self._alike[kind] = self.allocator.alike_claims(place)
            known = self._descriptions[id(spec), kind] = (spec, self._alike[kind].describe(spec))
        return known[1]

    def take(self, claims: Sequence[Claim], outcome: Allocation) -> None:
        """Claims get what the allocator found for them."""
        self.allocator.commit(outcome)
        for claim, allocation in zip(claims, outcome.results, strict=True):
            if name_of(claim) != EXTENDED:
                self.allocated[key_of(claim)] = allocation

    def give_back(self, claims: Iterable[Claim], outcome: Allocation) -> None:
        """The opposite of `take`."""
        self.allocator.release(outcome)
        for claim in claims:
            self.allocated.pop(key_of(claim), None)

    def on_nodes(self, results: Iterable[Result]) -> Iterator[tuple[str, Holding]]:
        """The devices of a result that belong to one node: which node, and what of it."""
        for result in results:
            if result.get("adminAccess"):
                continue
            node = self._node_of.get((str(result["driver"]), str(result["pool"])))
            if node is None:
                self.elsewhere += 1
                continue
            pool = "" if result["pool"] == node else str(result["pool"])
            share = json.dumps(result.get("consumedCapacity") or {}, sort_keys=True) if result.get("shareID") else ""
            yield node, Holding((str(result["driver"]), pool, str(result["device"])), share)

    def _extended_requests(self, traits: Traits, node: NodeState) -> list[dict[str, Any]]:
        offered = node.facts.allocatable
        needed = traits.requests.needed
        names = [name for name in needed if needed[name] and name in self.extended_classes and not offered.get(name)]
        requests = [request for name in sorted(names) for request in self._requests_for(traits.spec, name)]
        return sorted(requests, key=lambda request: str(request["name"]))

    def _requests_for(self, spec: Mapping[str, Any], resource: str) -> Iterator[dict[str, Any]]:
        """A request for each container that stays. One that ends uses what those after it will need, and more."""
        asked = [
            (i, ends, _whole(container_requests(one).get(resource)), _place(one, resource))
            for i, (ends, one) in enumerate(containers(spec))
        ]
        yield from (self._request(resource, i, place, count) for i, ends, count, place in asked if count and not ends)
        more = [
            (count - sum(later for j, stays, later, _ in asked if j >= i and not stays), i, place)
            for i, ends, count, place in asked
            if ends and count
        ]
        missing = [(count, -i, place) for count, i, place in more if count > 0]
        if missing:
            count, i, place = max(missing)
            yield self._request(resource, -i, place, count)

    def _request(self, resource: str, container: int, place: int, count: int) -> dict[str, Any]:
        wanted = {"deviceClassName": self.extended_classes[resource], "allocationMode": "ExactCount", "count": count}
        return {"name": f"container-{container}-request-{place}", "exactly": wanted}

    def signature(self, claim: Claim) -> str:
        """The text of a claim's spec; pods of one template share the spec itself."""
        spec = claim["spec"]
        known = self._signatures.get(id(spec))
        if known is None or known[0] is not spec:
            known = self._signatures[id(spec)] = (spec, json.dumps(spec, sort_keys=True, default=str))
        return known[1]


def key_of(claim: Claim) -> ClaimKey:
    """Namespace and name of a claim."""
    return namespace_of(claim), name_of(claim)


def results_of(allocation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The devices of a v1 AllocationResult."""
    return mappings(at(allocation, "devices", "results"))


def class_names(claim: Claim) -> Iterator[tuple[str, str]]:
    """Every request or alternative of a claim, by its full name, with its class."""
    for request in mappings(at(claim, "spec", "devices", "requests")):
        alternatives = mappings(request.get("firstAvailable"))
        if not alternatives:
            yield str(request.get("name")), str(at(request, "exactly", "deviceClassName") or "")
        for one in alternatives:
            yield f"{request.get('name')}/{one.get('name')}", str(one.get("deviceClassName") or "")


def extended_classes(classes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """By extended resource, the class that stands for it: of several the youngest, then the first by name."""
    found = {f"{IMPLICIT}{name}": name for name in classes}
    by_age = sorted(
        classes.values(), key=lambda raw: (str(at(raw, "metadata", "creationTimestamp") or ""), name_of(raw))
    )
    ages: dict[str, str] = {}
    for raw in by_age:
        resource, age = (
            mapping(raw.get("spec")).get("extendedResourceName"),
            str(at(raw, "metadata", "creationTimestamp")),
        )
        if resource and ages.get(str(resource)) != age:
            found[str(resource)], ages[str(resource)] = name_of(raw), age
    return found


def _place(container: Mapping[str, Any], resource: str) -> int:
    names = sorted(container_requests(container))
    return names.index(resource) if resource in names else 0


def _whole(value: Any) -> int:
    return int(value) if value is not None and value == int(value) else 0


def _is_local(outcome: Outcome, node: str) -> bool:
    """Whether an answer speaks of this node's own pools alone, so that it can be read for another node."""
    return isinstance(outcome, NoFit) or all(
        result["pool"] == node and not result.get("shareID") for result in getattr(outcome, "devices", ())
    )


def _renamed(outcome: Outcome, node: str, other: str) -> Outcome:
    """The same answer for another node that is alike."""
    if not isinstance(outcome, Allocation) or node == other:
        return outcome
    return Allocation([_at_node(result, node, other) for result in outcome.results], outcome.steps)


def _at_node(allocation: dict[str, Any], node: str, other: str) -> dict[str, Any]:
    devices = {**allocation["devices"]}
    if devices.get("results"):
        devices["results"] = [{**found, "pool": other} for found in devices["results"]]
    moved = {**allocation, "devices": devices}
    if "nodeSelector" in allocation:
        moved["nodeSelector"] = _replaced(allocation["nodeSelector"], node, other)
    return moved


def _replaced(value: Any, node: str, other: str) -> Any:
    """Plain data with one text in place of another, wherever it stands."""
    if isinstance(value, dict):
        return {key: _replaced(inner, node, other) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, node, other) for inner in value]
    return other if value == node else value
