"""DynamicResources: claims must be available on the node, and unallocated ones must be allocatable there.

The score prefers nodes where earlier alternatives of firstAvailable fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dranet.core.untyped import as_dicts, get_path
from dranet.scheduler.allocation.outcome import Allocation, AllocationError, NoFit
from dranet.scheduler.claims import claim_key, device_results, request_classes
from dranet.scheduler.framework import Cycle, Filter, PreFilterFailure, SchedulerError, Status, normalize_score
from dranet.scheduler.nodes import EquivalenceClass, NodeInfo

PLUGIN = "DynamicResources"
NOT_AVAILABLE = Status(("resourceclaim not available on the node",))
_MAX_ALTERNATIVES = 8


def pre_filter(cycle: Cycle) -> Filter | None:
    claims = cycle.claims
    if not claims.needs_devices(cycle.pod):
        return None
    unallocated = claims.unallocated(cycle.pod.claims)
    for claim in unallocated:
        for request, name in request_classes(claim):
            if name not in claims.allocator.classes:
                raise PreFilterFailure(f"request {request}: device class {name} does not exist", PLUGIN)

    found: dict[object, Status | None] = {}
    # An allocated claim selects nodes by name, and device plugins differ between nodes: then ask for every node.
    by_devices = not claims.needs_extended_resources(cycle.info) and len(unallocated) == len(cycle.pod.claims)

    def check(group: EquivalenceClass) -> Status | None:
        info = group.sample
        if not by_devices or not info.node.device_signature:
            return filter_node(cycle, info)
        key = (info.node.device_signature, info.allocation_key)
        if key not in found:
            found[key] = filter_node(cycle, info)
        return found[key]

    return check


def filter_node(cycle: Cycle, node: NodeInfo) -> Status | None:
    """Check one node. Raises SchedulerError: an error in a claim or class ends the whole cycle."""
    claims = cycle.claims.of_pod(cycle.pod, node)
    outcome = cycle.claims.allocate(node, cycle.claims.unallocated(claims))
    if isinstance(outcome, AllocationError):
        if outcome.kind == "node":
            return Status((outcome.message,))
        raise SchedulerError(f'running "{PLUGIN}" filter plugin: {outcome.message}')
    if isinstance(outcome, NoFit):
        return Status((outcome.message,))
    return None if all(cycle.claims.available(claim, node) for claim in claims) else NOT_AVAILABLE


def score(cycle: Cycle, groups: list[EquivalenceClass]) -> list[int] | None:
    # Without firstAvailable all nodes would have the same score.
    if not any(as_dicts(r.get("firstAvailable")) for claim in cycle.pod.claims for r in _requests(claim)):
        return None
    return normalize_score([_score_node(cycle, group.sample) for group in groups])


def _score_node(cycle: Cycle, node: NodeInfo) -> int:
    claims = cycle.claims.of_pod(cycle.pod, node)
    unallocated = cycle.claims.unallocated(claims)
    outcome = cycle.claims.allocate(node, unallocated)
    if not unallocated or not isinstance(outcome, Allocation):
        return 0
    new = dict(zip(map(claim_key, unallocated), outcome.results, strict=True))
    return sum(
        _score_claim(claim, new.get(claim_key(claim)) or cycle.claims.allocated[claim_key(claim)]) for claim in claims
    )


def _score_claim(claim: Mapping[str, Any], allocation: Mapping[str, Any]) -> int:
    chosen = {result.get("request") for result in device_results(allocation)}
    names = [
        (i, f"{request.get('name')}/{one.get('name')}")
        for request in _requests(claim)
        for i, one in enumerate(as_dicts(request.get("firstAvailable")))
    ]
    return sum(_MAX_ALTERNATIVES - i for i, name in names if name in chosen)


def _requests(claim: Mapping[str, Any]) -> list[dict[str, Any]]:
    return as_dicts(get_path(claim, "spec", "devices", "requests"))
