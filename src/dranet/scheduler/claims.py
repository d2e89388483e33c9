"""ResourceClaims of pods: their allocations, and what the allocator answers for unallocated ones on a node.

The allocator runs once for all nodes with equivalent devices in equal use. Its answer is then rewritten for each of
them under its own name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dranet.core.untyped import as_dict, as_dicts, get_path, name_of, namespace_of
from dranet.scheduler.allocation.allocator import ClusterDevices
from dranet.scheduler.allocation.equivalence import ClaimEquivalence
from dranet.scheduler.allocation.nodes import selector_matches
from dranet.scheduler.allocation.outcome import Allocation, AllocationError, NoFit, Outcome
from dranet.scheduler.nodes import DeviceAllocation, NodeInfo
from dranet.scheduler.pods import Pod, PodInfo
from dranet.scheduler.releases import Gate, Release, Version
from dranet.scheduler.resources import all_containers, container_requests

ClaimKey = tuple[str, str]
"""Namespace and name."""
Claim = Mapping[str, Any]
Result = Mapping[str, Any]
EXTENDED_RESOURCE_CLAIM = "<extended-resources>"
"""kube-scheduler's name for the claim that it creates for extended resources backed by a DeviceClass."""
_IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Every DeviceClass is an extended resource under this prefix; `extendedResourceName` adds another name."""


class Claims:
    """Allocations of claims, and answers for claims without one."""

    def __init__(
        self,
        slices: Iterable[Mapping[str, Any]],
        classes: Iterable[Mapping[str, Any]],
        allocated: Mapping[ClaimKey, Mapping[str, Any]] | None = None,
        *,
        version: str | Version | Release = "1.36",
    ) -> None:
        """``allocated`` are the v1 AllocationResults of allocated claims."""
        slices = list(slices)
        self.allocated = dict(allocated or {})
        self.users: dict[ClaimKey, int] = {}
        """The number of pods that use an allocated claim."""
        held = [result for allocation in self.allocated.values() for result in device_results(allocation)]
        self.allocator = ClusterDevices(slices, classes, allocated=held, version=version)
        extended = Gate.EXTENDED_RESOURCE in self.allocator.kubernetes.gates
        self.extended_classes = extended_classes(self.allocator.classes) if extended else {}
        self._shared_changes = 0
        """Counts allocations of devices that belong to no single node. A cached answer is stale after each."""
        self._node_of_pool = {
            (str(get_path(raw, "spec", "driver")), str(get_path(raw, "spec", "pool", "name"))): str(
                get_path(raw, "spec", "nodeName")
            )
            for raw in slices
            if get_path(raw, "spec", "nodeName")
        }
        self._answers: dict[object, tuple[str, Outcome]] = {}
        self._signatures: dict[int, tuple[Any, str]] = {}
        self._descriptions: dict[tuple[int, str], tuple[Any, str]] = {}
        self._equivalence: dict[str, ClaimEquivalence] = {}

    def unallocated(self, claims: Iterable[Claim]) -> list[Claim]:
        return [claim for claim in claims if claim_key(claim) not in self.allocated]

    def available(self, claim: Claim, node: NodeInfo) -> bool:
        """Whether the claim's allocation is usable on the node; true for an unallocated claim."""
        selector = self.allocated.get(claim_key(claim), {}).get("nodeSelector")
        return not isinstance(selector, dict) or selector_matches(selector, node.node)

    def of_pod(self, pod: Pod, node: NodeInfo) -> list[Claim]:
        """The pod's claims on a node, with the one for extended resources that no device plugin provides there."""
        requests = self._extended_requests(pod.info, node) if self.extended_classes else []
        if not requests:
            return list(pod.claims)
        metadata = {"namespace": pod.namespace, "name": EXTENDED_RESOURCE_CLAIM}
        return [*pod.claims, {"metadata": metadata, "spec": {"devices": {"requests": requests}}}]

    def needs_devices(self, pod: Pod) -> bool:
        """Whether the pod has claims, or will have one for extended resources."""
        return bool(pod.claims) or self.needs_extended_resources(pod.info)

    def needs_extended_resources(self, info: PodInfo) -> bool:
        """Whether the pod requests extended resources that a DeviceClass backs."""
        return any(amount and name in self.extended_classes for name, amount in info.requests.resources.items())

    def binding_error(self, pod: Pod, node: NodeInfo) -> str:
        """kube-scheduler's PreBind error for the pod on the node, or an empty text.

        For a pod with other claims, it creates the claim for extended resources even if the node's device plugin
        provides all of them. That claim is empty, and PreBind fails to write an empty one.
        """
        needs_claim = pod.claims and self.needs_extended_resources(pod.info)
        if not needs_claim or len(self.of_pod(pod, node)) > len(pod.claims):
            return ""
        what = f"no update of pod {pod.namespace}/{pod.name} ExtendedResourceClaimStatus"
        return f'running PreBind plugin "DynamicResources": nil or empty request mappings, {what}'

    def allocate(self, node: NodeInfo, claims: Sequence[Claim]) -> Outcome:
        """The allocator's answer for unallocated claims on a node. Changes nothing; see `commit`."""
        if not claims:
            return Allocation([], 0)
        signature = node.node.device_signature
        if not signature:
            return self.allocator.allocate(node.node, claims)
        described = tuple(self._describe(claim, node) for claim in claims)
        key = (described, signature, node.allocation_key, self._shared_changes)
        known = self._answers.get(key)
        if known is not None:
            return _renamed(known[1], known[0], node.name)
        outcome = self.allocator.allocate(node.node, claims)
        if not isinstance(outcome, AllocationError) and _is_local(outcome, node.name):
            self._answers[key] = (node.name, outcome)
        return outcome

    def _describe(self, claim: Claim, node: NodeInfo) -> str:
        """Equal for claims that get the same answer on nodes equivalent to this one."""
        spec, signature = claim["spec"], node.node.device_signature
        known = self._descriptions.get((id(spec), signature))
        if known is None or known[0] is not spec:
            if signature not in self._equivalence:
                self._equivalence[signature] = self.allocator.claim_equivalence(node.node)
            known = self._descriptions[id(spec), signature] = (spec, self._equivalence[signature].describe(spec))
        return known[1]

    def commit(self, claims: Sequence[Claim], outcome: Allocation) -> None:
        """Allocate the claims as the allocator answered."""
        self.allocator.commit(outcome)
        for claim, allocation in zip(claims, outcome.results, strict=True):
            if name_of(claim) != EXTENDED_RESOURCE_CLAIM:
                self.allocated[claim_key(claim)] = allocation

    def release(self, claims: Iterable[Claim], outcome: Allocation) -> None:
        """Undo `commit`."""
        self.allocator.release(outcome)
        for claim in claims:
            self.allocated.pop(claim_key(claim), None)

    def by_node(self, results: Iterable[Result]) -> Iterator[tuple[str, DeviceAllocation]]:
        """The allocated devices that belong to one node, with the node."""
        for result in results:
            if result.get("adminAccess"):
                continue
            node = self._node_of_pool.get((str(result["driver"]), str(result["pool"])))
            if node is None:
                self._shared_changes += 1
                continue
            pool = "" if result["pool"] == node else str(result["pool"])
            share = json.dumps(result.get("consumedCapacity") or {}, sort_keys=True) if result.get("shareID") else ""
            yield node, DeviceAllocation((str(result["driver"]), pool, str(result["device"])), share)

    def _extended_requests(self, info: PodInfo, node: NodeInfo) -> list[dict[str, Any]]:
        offered, needed = node.node.allocatable, info.requests.resources
        names = [name for name in needed if needed[name] and name in self.extended_classes and not offered.get(name)]
        requests = [request for name in sorted(names) for request in self._requests_for(info.spec, name)]
        return sorted(requests, key=lambda request: str(request["name"]))

    def _requests_for(self, spec: Mapping[str, Any], resource: str) -> Iterator[dict[str, Any]]:
        """One request for each container that keeps running. Init containers reuse the devices of the containers after
        them; only the largest remainder gets a request."""
        asked = [
            (i, is_init, _whole(container_requests(one).get(resource)), _position(one, resource))
            for i, (is_init, one) in enumerate(all_containers(spec))
        ]
        for i, is_init, count, position in asked:
            if count and not is_init:
                yield self._request(resource, i, position, count)
        more = [
            (count - sum(later for j, init, later, _ in asked if j >= i and not init), i, position)
            for i, is_init, count, position in asked
            if is_init and count
        ]
        missing = [(count, -i, position) for count, i, position in more if count > 0]
        if missing:
            count, i, position = max(missing)
            yield self._request(resource, -i, position, count)

    def _request(self, resource: str, container: int, position: int, count: int) -> dict[str, Any]:
        exactly = {"deviceClassName": self.extended_classes[resource], "allocationMode": "ExactCount", "count": count}
        return {"name": f"container-{container}-request-{position}", "exactly": exactly}

    def signature(self, claim: Claim) -> str:
        """The text of a claim's spec, cached: pods of one template share the spec object."""
        spec = claim["spec"]
        known = self._signatures.get(id(spec))
        if known is None or known[0] is not spec:
            known = self._signatures[id(spec)] = (spec, json.dumps(spec, sort_keys=True, default=str))
        return known[1]


def claim_key(claim: Claim) -> ClaimKey:
    return namespace_of(claim), name_of(claim)


def device_results(allocation: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The devices of a v1 AllocationResult."""
    return as_dicts(get_path(allocation, "devices", "results"))


def request_classes(claim: Claim) -> Iterator[tuple[str, str]]:
    """The full name and the DeviceClass of every request and subrequest of a claim."""
    for request in as_dicts(get_path(claim, "spec", "devices", "requests")):
        alternatives = as_dicts(request.get("firstAvailable"))
        if not alternatives:
            yield str(request.get("name")), str(get_path(request, "exactly", "deviceClassName") or "")
        for one in alternatives:
            yield f"{request.get('name')}/{one.get('name')}", str(one.get("deviceClassName") or "")


def extended_classes(classes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The DeviceClass of each extended resource. Of several, the youngest wins, then the first by name."""
    found = {f"{_IMPLICIT_PREFIX}{name}": name for name in classes}
    ages: dict[str, str] = {}
    for raw in sorted(classes.values(), key=lambda raw: (str(_created(raw) or ""), name_of(raw))):
        resource, age = as_dict(raw.get("spec")).get("extendedResourceName"), str(_created(raw))
        if resource and ages.get(str(resource)) != age:
            found[str(resource)], ages[str(resource)] = name_of(raw), age
    return found


def _created(raw: Mapping[str, Any]) -> Any:
    return get_path(raw, "metadata", "creationTimestamp")


def _position(container: Mapping[str, Any], resource: str) -> int:
    names = sorted(container_requests(container))
    return names.index(resource) if resource in names else 0


def _whole(value: Any) -> int:
    return int(value) if value is not None and value == int(value) else 0


def _is_local(outcome: Outcome, node: str) -> bool:
    """Whether an answer has devices of this node's own pool only, so that it can be rewritten for another node."""
    return isinstance(outcome, NoFit) or all(
        result["pool"] == node and not result.get("shareID") for result in getattr(outcome, "devices", ())
    )


def _renamed(outcome: Outcome, node: str, other: str) -> Outcome:
    """The same answer for another, equivalent node."""
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
    if isinstance(value, dict):
        return {key: _replaced(inner, node, other) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replaced(inner, node, other) for inner in value]
    return other if value == node else value
