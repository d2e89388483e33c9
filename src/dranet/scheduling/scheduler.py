"""kube-scheduler's default profile, predicted: `decide` about a pod, then `take` a node for it.

Where nodes have equal points the real one draws lots, and with a hundred nodes and more it stops looking once it has
found enough of them: any of the best nodes is a right prediction for a small cluster, a likely one for a large one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.allocation.outcome import Allocation
from dranet.scheduling import message, scores
from dranet.scheduling.claims import Claim, ClaimKey, Claims, key_of, results_of
from dranet.scheduling.cycle import Check, Cycle, OwnScore, Prepare, Refused, Rejection, SchedulerError
from dranet.scheduling.filters import FILTERS, OWN, RELATIVE
from dranet.scheduling.filters import dynamic_resources as devices
from dranet.scheduling.filters.dynamic_resources import NOT_AVAILABLE, PLUGIN
from dranet.scheduling.filters.node_affinity import asked_keys, asked_names
from dranet.scheduling.nodes import Alike, ClusterNodes, NodeFacts, NodeState
from dranet.scheduling.pods import Pod, Traits
from dranet.scheduling.preemption import Tried, preempt
from dranet.scheduling.scores.topology_spread import ZONE
from dranet.scheduling.selectors import Labels
from dranet.scheduling.verdict import Place, Verdict

_SHOWN_ERRORS = 100


class Scheduler:
    """A cluster that is filled pod by pod."""

    def __init__(
        self,
        nodes: Iterable[NodeFacts],
        *,
        slices: Iterable[Mapping[str, Any]] = (),
        classes: Iterable[Mapping[str, Any]] = (),
        allocated: Mapping[ClaimKey, Mapping[str, Any]] | None = None,
        namespaces: Mapping[str, Labels] | None = None,
        version: str = "1.36",
    ) -> None:
        """``allocated`` are the AllocationResults of claims that have one, ``namespaces`` labels by name."""
        self.cluster = ClusterNodes(nodes)
        self.claims = Claims(slices, classes, allocated, version=version)
        self.namespaces = namespaces or {}
        for allocation in self.claims.allocated.values():
            self._hold(results_of(allocation))

    def running(self, node: str, traits: Traits, claims: Iterable[Claim] = ()) -> None:
        """A pod that is on a node already."""
        self._ask_about(traits)
        if node in self.cluster.nodes:
            self.cluster.add(node, traits)
        self._use(claims)

    def decide(self, pod: Pod) -> Verdict:
        """What the scheduler would say of a pod. Changes nothing."""
        total = len(self.cluster.nodes)
        if not total:
            return Verdict(pod, message=message.NO_NODES)
        cycle = self.cycle(pod)
        try:
            own, relative = prepared(cycle, OWN), prepared(cycle, RELATIVE)
            judged = [(alike, self._judge(cycle, alike, own, relative)) for alike in cycle.alike]
        except Refused as refusal:
            return self._nowhere(cycle, refusal)
        except SchedulerError as error:
            return Verdict(pod, message=str(error), messages=tuple(self._errors(cycle)), notes=_notes(cycle))
        fitting = [alike for alike, rejection in judged if rejection is None]
        rejected = tuple((alike, rejection) for alike, rejection in judged if rejection is not None)
        if fitting:
            return self._fits(cycle, tuple(rate(cycle, fitting)), rejected)
        tried = preempt(cycle, rejected, objection)
        parts = [message.unavailable(total, rejected)]
        parts += [_after(self._deallocation(cycle, rejected), tried)] if tried.message else []
        text = " ".join(parts)
        return Verdict(pod, (), rejected, text, (text,), tried.preemptions, _notes(cycle))

    def cycle(self, pod: Pod) -> Cycle:
        """The question about a pod as filters and scores are given it."""
        self._ask_about(pod.traits)
        named = asked_names(pod.traits) | self._tied_to(pod)
        return Cycle(pod, self.cluster, self.claims, self.cluster.apart(named), self.namespaces)

    def devices(self, pod: Pod, node: str) -> tuple[list[Claim], Allocation]:
        """The pod's claims that wait, and what they would get on a node where the pod fits."""
        state = self.cluster.nodes[node]
        waiting = self.claims.waiting(self.claims.of_pod(pod, state))
        outcome = self.claims.ask(state, waiting)
        return waiting, outcome if isinstance(outcome, Allocation) else Allocation([], outcome.steps)

    def take(self, pod: Pod, node: str) -> Allocation:
        """The pod goes to a node where it fits, and its claims get their devices there."""
        waiting, outcome = self.devices(pod, node)
        self.claims.take(waiting, outcome)
        self._hold(outcome.devices)
        self.cluster.add(node, pod.traits)
        self._use(pod.claims)
        return outcome

    def forget(self, pod: Pod, node: str, waiting: Sequence[Claim], outcome: Allocation) -> None:
        """The opposite of `take`: the pod was never there. ``waiting`` are the claims that got devices then."""
        self.cluster.add(node, pod.traits, -1)
        for holder, holding in self.claims.on_nodes(outcome.devices):
            if holder in self.cluster.nodes:
                self.cluster.hold(holder, holding, release=True)
        self.claims.give_back(waiting, outcome)
        for claim in pod.claims:
            self.claims.users[key_of(claim)] -= 1

    def stumble(self, pod: Pod, node: str) -> None:
        """The scheduler trips over its own claim (`Claims.binding_error`): the pod stays where it was, but its other
        claims have got their devices on the node by then, and keep them."""
        waiting, outcome = self.devices(pod, node)
        self.claims.take(waiting, outcome)
        self._hold(outcome.devices)

    def leave(self, traits: Traits, node: str) -> None:
        """A pod leaves its node; its claims keep their devices."""
        self.cluster.add(node, traits, -1)

    def choose(self, verdict: Verdict) -> str | None:
        """One of the best nodes: the one with the fewest pods, then the first as the nodes were given."""
        first = [self.cluster.nodes[place.alike.first()] for place in verdict.best]
        return min(first, key=_preference).name if first else None

    def _judge(self, cycle: Cycle, alike: Alike, own: list[Check], relative: list[Check]) -> Rejection | None:
        """The first filter that objects. What depends on the node and the traits alone is found out once."""
        settled = alike.settled.get(cycle.traits)
        if settled is None:
            settled = alike.settled[cycle.traits] = _Settled(_first_objection(own, alike))
        return settled.rejection or _first_objection(relative, alike)

    def _fits(self, cycle: Cycle, places: tuple[Place, ...], rejected: tuple[tuple[Alike, Rejection], ...]) -> Verdict:
        found = Verdict(cycle.pod, places, rejected, notes=_notes(cycle))
        if not self.claims.wants_extended(cycle.traits):
            return found
        errors = [self.claims.binding_error(cycle.pod, place.alike.sample) for place in found.best]
        messages = tuple(dict.fromkeys(error for error in errors if error))
        return replace(found, message=errors[0] if all(errors) else "", messages=messages)

    def _nowhere(self, cycle: Cycle, refusal: Refused) -> Verdict:
        total = len(self.cluster.nodes)
        text = message.refused(total, refusal.reason)
        if refusal.plugin == PLUGIN:
            text += " " + _after("no new claims to deallocate", preempt(cycle, (), objection))
        else:
            # The scheduler asks a plugin that has not been prepared yet, and reports what that one misses.
            text += " not found"
        return Verdict(cycle.pod, message=text, messages=(text,), notes=_notes(cycle))

    def _errors(self, cycle: Cycle) -> Iterable[str]:
        """What the scheduler may report: whichever node it looks at first decides."""
        checks = [check for prepare in FILTERS if prepare is not devices.prepare and (check := prepare(cycle))]
        found: dict[str, None] = {}
        for alike in cycle.alike:
            if _first_objection(checks, alike) is None:
                for name in list(alike.names)[:_SHOWN_ERRORS]:
                    try:
                        devices.ask(cycle, self.cluster.nodes[name])
                    except SchedulerError as error:
                        found[str(error)] = None
        return found

    def _deallocation(self, cycle: Cycle, rejected: Sequence[tuple[Alike, Rejection]]) -> str:
        """What becomes of claims that tie the pod to nodes it does not fit on."""
        if not self.claims.wants_any(cycle.pod):
            return "no new claims to deallocate"
        tied = [alike for alike, rejection in rejected if rejection is NOT_AVAILABLE]
        for claim in cycle.pod.claims:
            idle = key_of(claim) in self.claims.allocated and not self.claims.users.get(key_of(claim))
            if idle and any(not self.claims.available(claim, alike.sample) for alike in tied):
                return "deallocation of ResourceClaim completed"
        return "still not schedulable"

    def _ask_about(self, traits: Traits) -> None:
        keys = asked_keys(traits) | {rule.key for rule in traits.spread} | {term.key for term in traits.terms}
        self.cluster.ask_about(keys | ({ZONE} if traits.spread_by is not None else set()))

    def _tied_to(self, pod: Pod) -> set[str]:
        """Nodes that allocated claims of the pod belong to."""
        found = [self.claims.allocated[key_of(one)] for one in pod.claims if key_of(one) in self.claims.allocated]
        return {name for one in found for name in _names_in(one.get("nodeSelector"))}

    def _hold(self, results: Iterable[Mapping[str, Any]]) -> None:
        for node, holding in self.claims.on_nodes(results):
            if node in self.cluster.nodes:
                self.cluster.hold(node, holding)

    def _use(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            self.claims.users[key_of(claim)] = self.claims.users.get(key_of(claim), 0) + 1


class _Settled(msgspec.Struct):
    """What pods with certain traits find on nodes that are alike."""

    rejection: Rejection | None
    points: tuple[int, ...] | None = None


def prepared(cycle: Cycle, filters: Iterable[Prepare] = FILTERS) -> list[Check]:
    """The filters that have something to say about the pod."""
    return [check for prepare in filters if (check := prepare(cycle)) is not None]


def objection(cycle: Cycle, alike: Alike) -> Rejection | None:
    """What the filters have against a node, asked from the start."""
    return _first_objection(prepared(cycle), alike)


def _first_objection(checks: Iterable[Check], alike: Alike) -> Rejection | None:
    for check in checks:
        rejection = check(alike)
        if rejection is not None:
            return rejection
    return None


def rate(cycle: Cycle, nodes: list[Alike]) -> Iterable[Place]:
    """Points for nodes that fit. A single node needs none."""
    if sum(map(len, nodes)) == 1:
        return [Place(nodes[0], 0)]
    own = [(weight, score) for weight, score in scores.OWN if score.asked(cycle.traits)]
    points = zip(*(_own_points(cycle, alike, own) for alike in nodes), strict=True)
    given = [(weight, score.normal(list(each))) for (weight, score), each in zip(own, points, strict=True)]
    given += [(weight, each) for weight, score in scores.RELATIVE if (each := score(cycle, nodes)) is not None]
    weighted = [each if weight == 1 else [weight * one for one in each] for weight, each in given]
    return [Place(alike, sum(each)) for alike, each in zip(nodes, zip(*weighted, strict=True), strict=True)]


def _own_points(cycle: Cycle, alike: Alike, own: list[tuple[int, OwnScore]]) -> tuple[int, ...]:
    settled: _Settled = alike.settled[cycle.traits]
    if settled.points is None:
        settled.points = tuple(score.points(cycle, alike) for _, score in own)
    return settled.points


def _after(deallocation: str, tried: Tried) -> str:
    return f"preemption: {tried.message}" if tried.failed else f"{deallocation}, preemption: {tried.message}"


def _notes(cycle: Cycle) -> tuple[str, ...]:
    return tuple(sorted(cycle.notes))


def _preference(state: NodeState) -> tuple[int, int]:
    return state.size, state.order


def _names_in(selector: Any) -> Iterable[str]:
    """All values of a node selector; those that are names of nodes will be found among the nodes."""
    if isinstance(selector, dict):
        for term in selector.get("nodeSelectorTerms") or ():
            for one in (*(term.get("matchFields") or ()), *(term.get("matchExpressions") or ())):
                yield from one.get("values") or ()
