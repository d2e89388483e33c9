"""kube-scheduler's default profile: `decide` about a pod, then `bind` it to a node.

kube-scheduler chooses at random among nodes with equal scores, and in clusters of 100 nodes or more it stops once it
has found enough nodes. So any of the best nodes is a correct prediction for a small cluster and a likely one for a
large cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.scheduler.allocation.outcome import Allocation
from dranet.scheduler.claims import Claim, ClaimKey, Claims, claim_key, device_results
from dranet.scheduler.framework import (
    NO_NODES,
    Cycle,
    Filter,
    NodeScore,
    PreFilter,
    PreFilterFailure,
    SchedulerError,
    ScheduleResult,
    ScoredNodes,
    Status,
    fit_error,
    unavailable,
)
from dranet.scheduler.label_selectors import Labels
from dranet.scheduler.nodes import ClusterNodes, EquivalenceClass, Node, NodeInfo
from dranet.scheduler.plugins import (
    CLUSTER_FILTERS,
    CLUSTER_SCORES,
    FILTERS,
    NODE_FILTERS,
    NODE_SCORES,
    dynamic_resources,
)
from dranet.scheduler.plugins.node_affinity import label_keys, mentioned_nodes
from dranet.scheduler.plugins.pod_topology_spread import ZONE_LABEL
from dranet.scheduler.pods import Pod, PodInfo
from dranet.scheduler.preemption import PreemptionResult, preempt
from dranet.scheduler.releases import Release, Version

_MAX_ERROR_NODES = 100


class Scheduler:
    """A cluster whose pods are scheduled one by one."""

    def __init__(
        self,
        nodes: Iterable[Node],
        *,
        slices: Iterable[Mapping[str, Any]] = (),
        classes: Iterable[Mapping[str, Any]] = (),
        allocated: Mapping[ClaimKey, Mapping[str, Any]] | None = None,
        namespaces: Mapping[str, Labels] | None = None,
        version: str | Version | Release = "1.36",
    ) -> None:
        """``allocated`` are the AllocationResults of allocated claims, ``namespaces`` labels by name."""
        self.cluster = ClusterNodes(nodes)
        self.claims = Claims(slices, classes, allocated, version=version)
        self.namespaces = namespaces or {}
        for allocation in self.claims.allocated.values():
            self._update_devices(device_results(allocation))

    def add_running_pod(self, node: str, info: PodInfo, claims: Iterable[Claim] = ()) -> None:
        """Add a pod that is bound to a node already."""
        self._distinguish_nodes(info)
        if node in self.cluster.nodes:
            self.cluster.update_pods(node, info)
        self._count_users(claims, 1)

    def decide(self, pod: Pod) -> ScheduleResult:
        """Run one scheduling cycle. Changes nothing."""
        total = len(self.cluster.nodes)
        if not total:
            return ScheduleResult(pod, message=NO_NODES)
        cycle = self._cycle(pod)
        try:
            node_filters, cluster_filters = (
                _run_pre_filters(cycle, NODE_FILTERS),
                _run_pre_filters(cycle, CLUSTER_FILTERS),
            )
            statuses = [(group, _filter(cycle, group, node_filters, cluster_filters)) for group in cycle.groups]
        except PreFilterFailure as failure:
            return self._rejected_everywhere(cycle, failure)
        except SchedulerError as error:
            return ScheduleResult(pod, message=str(error), messages=tuple(self._errors(cycle)), notes=_notes(cycle))
        feasible = [group for group, status in statuses if status is None]
        rejected = tuple((group, status) for group, status in statuses if status is not None)
        if feasible:
            return self._feasible(cycle, tuple(_score(cycle, feasible)), rejected)
        preemption = preempt(cycle, rejected, _run_all_filters)
        text = fit_error(total, rejected)
        if preemption.message:
            text += " " + _post_filter_message(self._deallocation(cycle, rejected), preemption)
        return ScheduleResult(pod, (), rejected, text, (text,), preemption.preemptions, _notes(cycle))

    def _cycle(self, pod: Pod) -> Cycle:
        self._distinguish_nodes(pod.info)
        names = mentioned_nodes(pod.info) | self._allocated_nodes(pod)
        return Cycle(pod, self.cluster, self.claims, self.cluster.split_out(names), self.namespaces)

    def find_devices(self, pod: Pod, node: str) -> tuple[list[Claim], Allocation]:
        """The pod's unallocated claims, and their devices on a node where the pod fits. Changes nothing."""
        info = self.cluster.nodes[node]
        unallocated = self.claims.unallocated(self.claims.of_pod(pod, info))
        outcome = self.claims.allocate(info, unallocated)
        return unallocated, outcome if isinstance(outcome, Allocation) else Allocation([], outcome.steps)

    def bind(self, pod: Pod, node: str) -> Allocation:
        """Bind the pod to a node where it fits and allocate its claims there."""
        outcome = self._allocate(pod, node)
        self.cluster.update_pods(node, pod.info)
        self._count_users(pod.claims, 1)
        return outcome

    def unbind(self, pod: Pod, node: str, allocated: Sequence[Claim], outcome: Allocation) -> None:
        """Undo `bind`. ``allocated`` are the claims that it allocated."""
        self.cluster.update_pods(node, pod.info, -1)
        self._update_devices(outcome.devices, release=True)
        self.claims.release(allocated, outcome)
        self._count_users(pod.claims, -1)

    def fail_prebind(self, pod: Pod, node: str) -> None:
        """PreBind fails (`Claims.binding_error`): the pod stays unbound, but its claims are allocated already."""
        self._allocate(pod, node)

    def evict(self, info: PodInfo, node: str, claims: Iterable[ClaimKey]) -> dict[ClaimKey, Mapping[str, Any]]:
        """Remove a running pod and deallocate the claims that no other pod uses; returns their allocations."""
        if node in self.cluster.nodes:
            self.cluster.update_pods(node, info, -1)
        freed: dict[ClaimKey, Mapping[str, Any]] = {}
        for key in claims:
            self.claims.users[key] = self.claims.users.get(key, 1) - 1
            if key in self.claims.allocated and self.claims.users[key] <= 0:
                freed[key] = self.claims.allocated.pop(key)
        outcome = Allocation([dict(one) for one in freed.values()], 0)
        self._update_devices(outcome.devices, release=True)
        self.claims.allocator.release(outcome)
        return freed

    def undo_evict(
        self, info: PodInfo, node: str, claims: Iterable[ClaimKey], freed: Mapping[ClaimKey, Mapping[str, Any]]
    ) -> None:
        """Undo `evict`."""
        outcome = Allocation([dict(one) for one in freed.values()], 0)
        self.claims.allocator.commit(outcome)
        self._update_devices(outcome.devices)
        self.claims.allocated.update(freed)
        for key in claims:
            self.claims.users[key] = self.claims.users.get(key, 0) + 1
        if node in self.cluster.nodes:
            self.cluster.update_pods(node, info)

    def remove_pod(self, info: PodInfo, node: str) -> None:
        """Remove a pod from its node. Its claims stay allocated."""
        self.cluster.update_pods(node, info, -1)

    def select_host(self, result: ScheduleResult) -> str | None:
        """One of the best nodes: with the fewest pods, then the first in the order of the nodes."""
        nodes = [self.cluster.nodes[scored.group.first()] for scored in result.best]
        return min(nodes, key=_preference).name if nodes else None

    def _feasible(
        self, cycle: Cycle, feasible: tuple[ScoredNodes, ...], rejected: tuple[tuple[EquivalenceClass, Status], ...]
    ) -> ScheduleResult:
        found = ScheduleResult(cycle.pod, feasible, rejected, notes=_notes(cycle))
        if not self.claims.needs_extended_resources(cycle.info):
            return found
        errors = [self.claims.binding_error(cycle.pod, scored.group.sample) for scored in found.best]
        messages = tuple(dict.fromkeys(error for error in errors if error))
        return replace(found, message=errors[0] if all(errors) else "", messages=messages)

    def _rejected_everywhere(self, cycle: Cycle, failure: PreFilterFailure) -> ScheduleResult:
        text = unavailable(len(self.cluster.nodes), failure.reason)
        if failure.plugin == dynamic_resources.PLUGIN:
            text += " " + _post_filter_message("no new claims to deallocate", preempt(cycle, (), _run_all_filters))
        else:
            # kube-scheduler calls DynamicResources, whose PreFilter did not run, and reports its missing state.
            text += " not found"
        return ScheduleResult(cycle.pod, message=text, messages=(text,), notes=_notes(cycle))

    def _errors(self, cycle: Cycle) -> Iterable[str]:
        """All errors that the scheduler may report: it depends on which node it checks first."""
        others = [one for one in FILTERS if one is not dynamic_resources.pre_filter]
        filters = _run_pre_filters(cycle, others)
        found: dict[str, None] = {}
        for group in cycle.groups:
            if _first_status(filters, group) is None:
                for name in list(group.names)[:_MAX_ERROR_NODES]:
                    try:
                        dynamic_resources.filter_node(cycle, self.cluster.nodes[name])
                    except SchedulerError as error:
                        found[str(error)] = None
        return found

    def _deallocation(self, cycle: Cycle, rejected: Sequence[tuple[EquivalenceClass, Status]]) -> str:
        """DynamicResources' PostFilter: it deallocates an unused claim that restricts the pod to other nodes."""
        if not self.claims.needs_devices(cycle.pod):
            return "no new claims to deallocate"
        unavailable_on = [group for group, status in rejected if status is dynamic_resources.NOT_AVAILABLE]
        for claim in cycle.pod.claims:
            unused = claim_key(claim) in self.claims.allocated and not self.claims.users.get(claim_key(claim))
            if unused and any(not self.claims.available(claim, group.sample) for group in unavailable_on):
                return "deallocation of ResourceClaim completed"
        return "still not schedulable"

    def _distinguish_nodes(self, info: PodInfo) -> None:
        keys = label_keys(info) | {rule.key for rule in info.spread} | {term.key for term in info.terms}
        self.cluster.distinguish(keys | ({ZONE_LABEL} if info.default_spread is not None else set()))

    def _allocated_nodes(self, pod: Pod) -> set[str]:
        """Nodes of the pod's allocated claims."""
        keys = [claim_key(claim) for claim in pod.claims]
        found = [self.claims.allocated[key] for key in keys if key in self.claims.allocated]
        return {name for one in found for name in _selector_values(one.get("nodeSelector"))}

    def _allocate(self, pod: Pod, node: str) -> Allocation:
        unallocated, outcome = self.find_devices(pod, node)
        self.claims.commit(unallocated, outcome)
        self._update_devices(outcome.devices)
        return outcome

    def _update_devices(self, results: Iterable[Mapping[str, Any]], *, release: bool = False) -> None:
        for node, allocation in self.claims.by_node(results):
            if node in self.cluster.nodes:
                self.cluster.update_devices(node, allocation, release=release)

    def _count_users(self, claims: Iterable[Claim], sign: int) -> None:
        for claim in claims:
            self.claims.users[claim_key(claim)] = self.claims.users.get(claim_key(claim), 0) + sign


class _Cached(msgspec.Struct):
    """Results for one PodInfo on equivalent nodes."""

    status: Status | None
    scores: tuple[int, ...] | None = None


def _filter(
    cycle: Cycle, group: EquivalenceClass, node_filters: list[Filter], cluster_filters: list[Filter]
) -> Status | None:
    """The status of the first filter that rejects the nodes. The results of node filters are cached."""
    cached = group.cache.get(cycle.info)
    if cached is None:
        cached = group.cache[cycle.info] = _Cached(_first_status(node_filters, group))
    return cached.status or _first_status(cluster_filters, group)


def _run_pre_filters(cycle: Cycle, pre_filters: Iterable[PreFilter]) -> list[Filter]:
    """The filters that apply to the pod."""
    return [check for pre_filter in pre_filters if (check := pre_filter(cycle)) is not None]


def _run_all_filters(cycle: Cycle, group: EquivalenceClass) -> Status | None:
    return _first_status(_run_pre_filters(cycle, FILTERS), group)


def _first_status(filters: Iterable[Filter], group: EquivalenceClass) -> Status | None:
    for check in filters:
        status = check(group)
        if status is not None:
            return status
    return None


def _score(cycle: Cycle, groups: list[EquivalenceClass]) -> Iterable[ScoredNodes]:
    # kube-scheduler does not score a single node.
    if sum(map(len, groups)) == 1:
        return [ScoredNodes(groups[0], 0)]
    plugins = [(weight, plugin) for weight, plugin in NODE_SCORES if plugin.applies(cycle.info)]
    scores = zip(*(_node_scores(cycle, group, plugins) for group in groups), strict=True)
    found = [(weight, plugin.normalize(list(each))) for (weight, plugin), each in zip(plugins, scores, strict=True)]
    found += [(weight, each) for weight, plugin in CLUSTER_SCORES if (each := plugin(cycle, groups)) is not None]
    weighted = [each if weight == 1 else [weight * one for one in each] for weight, each in found]
    return [ScoredNodes(group, sum(each)) for group, each in zip(groups, zip(*weighted, strict=True), strict=True)]


def _node_scores(cycle: Cycle, group: EquivalenceClass, plugins: list[tuple[int, NodeScore]]) -> tuple[int, ...]:
    cached: _Cached = group.cache[cycle.info]
    if cached.scores is None:
        cached.scores = tuple(plugin.score(cycle, group) for _, plugin in plugins)
    return cached.scores


def _post_filter_message(deallocation: str, preemption: PreemptionResult) -> str:
    text = f"preemption: {preemption.message}"
    return text if preemption.failed else f"{deallocation}, {text}"


def _notes(cycle: Cycle) -> tuple[str, ...]:
    return tuple(sorted(cycle.notes))


def _preference(node: NodeInfo) -> tuple[int, int]:
    return node.pod_count, node.index


def _selector_values(selector: Any) -> Iterable[str]:
    """All values of a node selector; the caller keeps those that are node names."""
    if isinstance(selector, dict):
        for term in selector.get("nodeSelectorTerms") or ():
            for one in (*(term.get("matchFields") or ()), *(term.get("matchExpressions") or ())):
                yield from one.get("values") or ()
