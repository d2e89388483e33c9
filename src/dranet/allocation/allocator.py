"""Predicting which devices kube-scheduler allocates.

`ClusterDevices` knows the slices and classes of a cluster and what is in use; it answers for any node and any claims,
and is meant to be kept: selectors are compiled once, their verdicts are remembered per device, and what a node has
to offer is worked out once. `Allocator` is the same for a single node and a single question.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dranet.allocation.alike_claims import AlikeClaims
from dranet.allocation.candidates import NodeView, selector_expressions
from dranet.allocation.constraints import Constraint, read_constraint
from dranet.allocation.devices import Device, DeviceId, PoolId, Slice, read_slice
from dranet.allocation.nodes import Node, read_node
from dranet.allocation.outcome import INVALID_POOLS, Allocation, AllocationError, NoFit, Outcome
from dranet.allocation.pools import gather_pools
from dranet.allocation.requests import MAX_RESULTS, Fatal, Request, claim_name, read_requests
from dranet.allocation.results import ShareIds, claim_result, numbered_share_ids
from dranet.allocation.rules import rules_for
from dranet.allocation.search import Search, SearchLimits, SearchTooLong
from dranet.allocation.selectors import shared_compiler
from dranet.allocation.state import AllocatedState

Claim = Mapping[str, Any]


class ClusterDevices:
    """Slices, classes and allocations of a cluster, indexed. All objects are plain v1 JSON."""

    def __init__(
        self,
        slices: Iterable[Mapping[str, Any]],
        classes: Iterable[Mapping[str, Any]] = (),
        *,
        allocated: Iterable[Mapping[str, Any]] = (),
        version: str = "1.36",
        limits: SearchLimits | None = None,
    ) -> None:
        self.rules = rules_for(version)
        self.limits = limits or SearchLimits()
        self.classes = {entry["metadata"]["name"]: entry for entry in classes}
        self.state = AllocatedState(allocated, shares=self.rules.consumable_capacity)
        self.selectors = shared_compiler(self.rules.text, self.rules.cel_features)
        self.slices = [read_slice(raw) for raw in slices]
        self._on_node: dict[str, list[Slice]] = {}
        self._shared: list[Slice] = []
        self._by_pool: dict[PoolId, list[Slice]] = {}
        for slice_ in self.slices:
            self._index(slice_)
        self._views: dict[str, NodeView] = {}
        self._full: dict[tuple[str, str], tuple[int, Outcome]] = {}

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

    def view(self, node: Node | Mapping[str, Any]) -> NodeView:
        """Pools and candidates of a node; worked out once per node name."""
        target = node if isinstance(node, Node) else read_node(node)
        known = self._views.get(target.name)
        if known is None or known.node.labels != target.labels:
            slices = [*self._on_node.get(target.name, ()), *self._shared]
            pools = gather_pools(slices, self._by_pool, target, self.rules)
            known = self._views[target.name] = NodeView(target, pools, self.rules, self.selectors)
        return known

    def alike_claims(self, node: Node | Mapping[str, Any]) -> AlikeClaims:
        """Tells which claims get the same answer on a node."""
        return AlikeClaims(self.view(node), self.classes, self.selectors)

    def allocate(
        self, node: Node | Mapping[str, Any], claims: Sequence[Claim], *, share_ids: ShareIds | None = None
    ) -> Outcome:
        """What the scheduler would do with these unallocated claims of one pod on this node. Changes nothing;
        call `commit` with the outcome to take the devices."""
        return _Attempt(self, self.view(node), claims).run(share_ids or numbered_share_ids())

    def schedule(
        self, claims: Sequence[Claim], nodes: Sequence[Node | Mapping[str, Any]]
    ) -> tuple[Node | None, Outcome]:
        """The first of these nodes where the claims fit, with the answer taken; (None, last outcome) if there is
        none, (None, error) when a fatal error ends the round. Nodes known to be full for such claims are skipped."""
        wanted = _signature(claims)
        outcome: Outcome = NoFit(0)
        for entry in nodes:
            view = self.view(entry)
            known = self._full.get((view.node.name, wanted))
            changes = self.state.changes([pool.id for pool in view.pools])
            if known is not None and known[0] == changes:
                outcome = known[1]
                continue
            outcome = _Attempt(self, view, claims).run(numbered_share_ids())
            if isinstance(outcome, Allocation):
                self.commit(outcome)
                return view.node, outcome
            if isinstance(outcome, AllocationError) and outcome.kind == "fatal":
                return None, outcome
            self._full[(view.node.name, wanted)] = (changes, outcome)
        return None, outcome

    def commit(self, outcome: Allocation) -> None:
        """Take the devices of an answer out of what later questions may use."""
        self.state.add(outcome.devices)

    def release(self, outcome: Allocation) -> None:
        """Give back what an earlier answer took, so that later claims may have it."""
        self.state.remove(outcome.devices)


class Allocator:
    """One node, one set of slices: `Allocator(node, slices, classes).allocate(claims)`."""

    def __init__(
        self,
        node: Mapping[str, Any],
        slices: Iterable[Mapping[str, Any]],
        classes: Iterable[Mapping[str, Any]] = (),
        *,
        allocated: Iterable[Mapping[str, Any]] = (),
        version: str = "1.36",
        limits: SearchLimits | None = None,
    ) -> None:
        self.cluster = ClusterDevices(slices, classes, allocated=allocated, version=version, limits=limits)
        self._node = read_node(node)

    def allocate(self, claims: Sequence[Claim]) -> Outcome:
        """All claims of one pod or none; devices in use and those of earlier answers are not free."""
        return self.cluster.allocate(self._node, claims)


def _signature(claims: Sequence[Claim]) -> str:
    """Claims that ask for the same have the same signature, whatever they are called."""
    return json.dumps([claim.get("spec") for claim in claims], sort_keys=True)


class _Attempt:
    """Checks claims as the scheduler does before it searches, then searches and words the result."""

    def __init__(self, cluster: ClusterDevices, view: NodeView, claims: Sequence[Claim]) -> None:
        self._cluster = cluster
        self._rules = cluster.rules
        self._view = view
        self._claims = claims
        self._names = [claim_name(claim) for claim in claims]

    def run(self, share_ids: ShareIds) -> Outcome:
        search: Search | None = None
        try:
            requests = [read_requests(index, claim) for index, claim in enumerate(self._claims)]
            constraints = [self._checked(index, group) for index, group in enumerate(requests)]
            search = Search(
                self._view, requests, constraints, self._names, self._cluster.state, self._rules, self._cluster.limits
            )
            if search.run():
                return Allocation(self._results(search, requests, share_ids), search.steps)
        except Fatal as error:
            return AllocationError("fatal", error.message, search.steps if search else 0)
        except SearchTooLong:
            message = f"node {self._view.node.name}: timed out trying to allocate devices"
            return AllocationError("timeout", message, search.steps if search else 0)
        if self._view.invalid:
            return AllocationError("node", INVALID_POOLS, search.steps)
        return NoFit(search.steps)

    def _checked(self, index: int, requests: list[list[Request]]) -> list[Constraint]:
        """Everything that can be wrong with a claim before any device is picked, in the scheduler's order."""
        total = 0
        for alternatives in requests:
            self._gates(index, alternatives)
            for request in alternatives:
                self._check(index, request)
            total += min(request.count for request in alternatives)
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

    def _gates(self, index: int, alternatives: list[Request]) -> None:
        claim, first = self._names[index], alternatives[0]
        if first.parent is not None and not self._rules.prioritized_list:
            raise Fatal(
                f"claim {claim}, request {first.parent}: has subrequests, but the DRAPrioritizedList feature is"
                " disabled"
            )
        if self._rules.consumable_capacity:
            return
        for request in alternatives:
            if request.capacity is not None:
                kind = "request" if request.parent is None else "subrequest"
                raise Fatal(
                    f"claim {claim}, {kind} {request.name}: has capacity requests, but the DRAConsumableCapacity"
                    " feature is disabled"
                )

    def _check(self, index: int, request: Request) -> None:
        where = f"claim {self._names[index]}, request {request.name}"
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
        for pool in self._view.pools:
            if not pool.usable:
                what = "invalid" if pool.complete else "being updated"
                raise Fatal(f"{where}: asks for all devices, but resource pool {pool} is currently {what}")
            for device in pool.devices:
                if self._wanted(index, request, position, device, where):
                    request.all_devices.append(position)
                position += 1
        request.count = len(request.all_devices)

    def _wanted(self, index: int, request: Request, position: int, device: Device, where: str) -> bool:
        outcome = self._view.outcome(position, request)
        if outcome.error:
            raise Fatal(self._view.selector_error(outcome, device, request, self._names[index]))
        if not outcome.matches or not self._view.on_node[position]:
            return False
        if not self._rules.consumable_capacity:
            return True
        wanted = self._view.consumption(device, request)
        if wanted.error and self._rules.capacity_errors_fatal:
            raise Fatal(f"{where}: checking capacity for device {device.id[2]}: {wanted.error}")
        used = {} if self._rules.capacity_errors_fatal else self._cluster.state.capacity(device.id) or {}
        return wanted.fits_policy and all(
            amount.value + used.get(name, 0) <= device.capacity[name].value.value
            for name, amount in wanted.amounts.items()
        )

    def _results(
        self, search: Search, requests: list[list[list[Request]]], share_ids: ShareIds
    ) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for index, claim in enumerate(self._claims):
            chosen = [
                alternatives[search.selected.get((index, place), 0)]
                for place, alternatives in enumerate(requests[index])
            ]
            results.append(
                claim_result(claim, search.picks[index], chosen, self._view.node.name, self._rules, share_ids)
            )
        return results
