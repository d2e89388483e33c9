"""The device allocation of kube-scheduler.

`ClusterDevices` holds the slices, classes and allocated devices of a cluster and answers for any node and any claims.
Keep it for many requests: it compiles selectors once and caches their results and the candidates of each node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from dranet.scheduler.allocation.candidates import NodeCandidates, selector_expressions
from dranet.scheduler.allocation.constraints import Constraint, read_constraint
from dranet.scheduler.allocation.devices import Device, DeviceId, PoolId, Slice, read_slice
from dranet.scheduler.allocation.equivalence import ClaimEquivalence
from dranet.scheduler.allocation.nodes import NodeLabels, read_node_labels
from dranet.scheduler.allocation.outcome import INVALID_POOLS, Allocation, AllocationError, NoFit, Outcome
from dranet.scheduler.allocation.pools import gather_pools
from dranet.scheduler.allocation.requests import MAX_RESULTS, Fatal, Request, claim_name, read_requests
from dranet.scheduler.allocation.results import claim_result
from dranet.scheduler.allocation.rules import rules_for
from dranet.scheduler.allocation.search import Search, SearchLimits, SearchTooLong
from dranet.scheduler.allocation.selectors import shared_compiler
from dranet.scheduler.allocation.state import AllocatedState
from dranet.scheduler.releases import Release, Version, as_release

Claim = Mapping[str, Any]


class ClusterDevices:
    """Slices, classes and allocations of a cluster, indexed. All objects are plain v1 JSON."""

    def __init__(
        self,
        slices: Iterable[Mapping[str, Any]],
        classes: Iterable[Mapping[str, Any]] = (),
        *,
        allocated: Iterable[Mapping[str, Any]] = (),
        version: str | Version | Release = "1.36",
        limits: SearchLimits | None = None,
    ) -> None:
        self.kubernetes = as_release(version)
        self.rules = rules_for(self.kubernetes)
        self.limits = limits or SearchLimits()
        self.classes = {entry["metadata"]["name"]: entry for entry in classes}
        self.state = AllocatedState(allocated, shares=self.rules.consumable_capacity)
        self.selectors = shared_compiler(self.kubernetes)
        self.slices = [read_slice(raw) for raw in slices]
        self._on_node: dict[str, list[Slice]] = {}
        self._shared: list[Slice] = []
        self._by_pool: dict[PoolId, list[Slice]] = {}
        for slice_ in self.slices:
            self._index(slice_)
        self._candidates: dict[str, NodeCandidates] = {}

    def _index(self, slice_: Slice) -> None:
        self._by_pool.setdefault(slice_.pool_id, []).append(slice_)
        shared = not slice_.node_name or (slice_.counter_sets and self.rules.counters_always_relevant)
        if shared:
            self._shared.append(slice_)
        else:
            self._on_node.setdefault(slice_.node_name or "", []).append(slice_)

    def device(self, id_: DeviceId) -> Device | None:
        """A device by (driver, pool, name), whichever generation is listed first."""
        candidates = (device for slice_ in self._by_pool.get(id_[:2], ()) for device in slice_.devices)
        return next((device for device in candidates if device.id == id_), None)

    def candidates(self, node: NodeLabels | Mapping[str, Any]) -> NodeCandidates:
        """Pools and candidate devices of a node, cached by its name."""
        target = read_node_labels(node)
        known = self._candidates.get(target.name)
        if known is None or known.node.labels != target.labels:
            slices = [*self._on_node.get(target.name, ()), *self._shared]
            pools = gather_pools(slices, self._by_pool, target, self.rules)
            known = self._candidates[target.name] = NodeCandidates(target, pools, self.rules, self.selectors)
        return known

    def claim_equivalence(self, node: NodeLabels | Mapping[str, Any]) -> ClaimEquivalence:
        """Which claims get the same answer on a node."""
        return ClaimEquivalence(self.candidates(node), self.classes, self.selectors)

    def allocate(self, node: NodeLabels | Mapping[str, Any], claims: Sequence[Claim]) -> Outcome:
        """The scheduler's answer for these unallocated claims of one pod. Changes nothing; see `commit`."""
        return _Attempt(self, self.candidates(node), claims).run()

    def commit(self, outcome: Allocation) -> None:
        """Mark the devices of an answer as allocated."""
        self.state.add(outcome.devices)

    def release(self, outcome: Allocation) -> None:
        """Undo `commit`."""
        self.state.remove(outcome.devices)


class _Attempt:
    """Checks claims as the scheduler does before it searches, then searches and formats the result."""

    def __init__(self, cluster: ClusterDevices, node: NodeCandidates, claims: Sequence[Claim]) -> None:
        self._cluster = cluster
        self._rules = cluster.rules
        self._node = node
        self._claims = claims
        self._names = [claim_name(claim) for claim in claims]

    def run(self) -> Outcome:
        search: Search | None = None
        try:
            requests = [read_requests(index, claim) for index, claim in enumerate(self._claims)]
            constraints = [self._checked(index, group) for index, group in enumerate(requests)]
            search = Search(
                self._node, requests, constraints, self._names, self._cluster.state, self._rules, self._cluster.limits
            )
            if search.run():
                return Allocation(self._results(search, requests), search.steps)
        except Fatal as error:
            return AllocationError("fatal", str(error), search.steps if search else 0)
        except SearchTooLong:
            message = f"node {self._node.node.name}: timed out trying to allocate devices"
            return AllocationError("timeout", message, search.steps if search else 0)
        if self._node.invalid:
            return AllocationError("node", INVALID_POOLS, search.steps)
        return NoFit(search.steps)

    def _checked(self, index: int, requests: list[list[Request]]) -> list[Constraint]:
        """All checks of a claim before any device is picked, in the scheduler's order."""
        total = 0
        for alternatives in requests:
            self._check_feature_gates(index, alternatives)
            for request in alternatives:
                self._check(index, request)
            fewest = min(request.count for request in alternatives)
            if self._rules.limits_each_request and fewest > MAX_RESULTS - total:
                raise Fatal(
                    f"claim {self._names[index]}, request {alternatives[0].base}: adding {fewest} devices exceeds the"
                    f" claim limit of {MAX_RESULTS}, with {total} already accounted for"
                )
            total += fewest
        if total > MAX_RESULTS:
            raise Fatal(
                f"claim {self._names[index]}: number of requested devices {total} exceeds the claim limit of"
                f" {MAX_RESULTS}"
            )
        return [self._constraint(index, place, raw) for place, raw in enumerate(self._raw_constraints(index))]

    def _raw_constraints(self, index: int) -> Sequence[Mapping[str, Any]]:
        return self._claims[index]["spec"].get("devices", {}).get("constraints") or ()

    def _constraint(self, index: int, place: int, raw: Mapping[str, Any]) -> Constraint:
        found = read_constraint(raw, self._rules)
        if found is None:
            raise Fatal(
                f"claim {self._names[index]}, constraint #{place}: empty constraint (unsupported constraint type?)"
            )
        return found

    def _check_feature_gates(self, index: int, alternatives: list[Request]) -> None:
        claim, first = self._names[index], alternatives[0]
        if first.parent is not None and not self._rules.prioritized_list:
            raise Fatal(
                f"claim {claim}, request {first.parent}: has subrequests, but the DRAPrioritizedList feature is"
                " disabled"
            )
        for request in alternatives:
            if request.capacity is not None and self._rules.rejects_capacity:
                kind = "request" if request.parent is None else "subrequest"
                raise Fatal(
                    f"claim {claim}, {kind} {request.name}: has capacity requests, but the DRAConsumableCapacity"
                    " feature is disabled"
                )

    def _check(self, index: int, request: Request) -> None:
        where = f"claim {self._names[index]}, request {request.name}"
        if request.derived and self._rules.rejects_derived_attributes:
            raise Fatal(f"{where}: cannot handle request with derived attributes, the feature is disabled")
        for place, selector in enumerate(request.selectors):
            if selector.get("cel") is None:
                raise Fatal(f"{where}, selector #{place}: CEL expression empty (unsupported selector type?)")
        if request.has_admin and not self._rules.admin_access:
            raise Fatal(f"{where}: admin access is requested, but the feature is disabled")
        if not request.class_name:
            raise Fatal(f"{where}: missing device class name (unsupported request type?)")
        request.class_ = self._cluster.classes.get(request.class_name)
        if request.class_ is None:
            name = request.class_name
            missing = f'deviceclass.resource.k8s.io "{name}" not found'
            raise Fatal(f"{where}: could not retrieve device class {name}: {missing}")
        class_selectors = (request.class_.get("spec") or {}).get("selectors") or ()
        request.selectors_key = (selector_expressions(class_selectors), selector_expressions(request.selectors))
        if request.all:
            self._expand_all(index, request, where)
        elif request.mode != "ExactCount":
            raise Fatal(f"{where}: unsupported count mode {request.mode}")

    def _expand_all(self, index: int, request: Request, where: str) -> None:
        position = 0
        for pool in self._node.pools:
            if not pool.usable:
                what = "invalid" if pool.complete else "being updated"
                raise Fatal(f"{where}: asks for all devices, but resource pool {pool} is currently {what}")
            for device in pool.devices:
                if self._is_selected(index, request, position, device, where):
                    request.all_devices.append(position)
                position += 1
        request.count = len(request.all_devices)

    def _is_selected(self, index: int, request: Request, position: int, device: Device, where: str) -> bool:
        outcome = self._node.outcome(position, request)
        if outcome.error:
            raise Fatal(self._node.selector_error(outcome, device, request, self._names[index]))
        if not outcome.matches or not self._node.on_node[position]:
            return False
        if not self._rules.consumable_capacity:
            return True
        consumed = self._node.consumption(device, request)
        if consumed.error and self._rules.capacity_errors_fatal:
            raise Fatal(f"{where}: checking capacity for device {device.id[2]}: {consumed.error}")
        used = {} if self._rules.capacity_errors_fatal else self._cluster.state.capacity(device.id) or {}
        return consumed.fits_policy and all(
            amount.value + used.get(name, 0) <= device.capacity[name].value.value
            for name, amount in consumed.amounts.items()
        )

    def _results(self, search: Search, requests: list[list[list[Request]]]) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        shares = count(1)
        for index, claim in enumerate(self._claims):
            chosen = [
                alternatives[search.selected.get((index, place), 0)]
                for place, alternatives in enumerate(requests[index])
            ]
            results.append(claim_result(claim, search.picks[index], chosen, self._node.node.name, self._rules, shares))
        return results
