"""Place a gang as kube-scheduler does: its pods one after the other, none reconsidered, and all or none of them kept.

An early pod may take the devices that a later one needs, though another order would fit them all. kube-scheduler takes
pods of equal priority in no fixed order (they come out of a Go map), picks any of several equally good nodes, and picks
any topology domain with the highest score (kubernetes#138765). So the same gang may start today and not tomorrow. The
search here tries these orders and choices, one for each group of equal pods and nodes, and the verdict lists them.
Topology domains are tried one by one; of those that the scheduler may pick, the one with the best bandwidth is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from dranet.advise.plan.gangs import Gang
from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import Placement, Refusal, Simulator
from dranet.core.untyped import as_dict, as_dicts, get_path
from dranet.machines.topology_labels import Labels, topology_value
from dranet.scheduler.framework import MAX_NODE_SCORE
from dranet.scheduler.resources import CPU, MEMORY

TRIES = 2000
"""Limit of placements to try for one gang; the result is then what was found so far."""
_Restrict = Callable[[PendingPod], PendingPod]
"""Restricts a pod to one topology domain."""


def _possible_counts(simulator: Simulator, pods: Sequence[PendingPod], narrow: _Restrict, tries: int) -> frozenset[int]:
    """How many of these pods, sorted by priority, may get a node there. Changes nothing."""
    search = _OrderSearch(simulator, narrow, tries)
    search.run(tuple(pods), 0)
    return frozenset(search.found)


class _OrderSearch:
    """Tries all orders of pods and all equally good nodes, depth first."""

    def __init__(self, simulator: Simulator, narrow: _Restrict, tries: int) -> None:
        self.simulator, self.narrow, self.left = simulator, narrow, tries
        self.found: set[int] = set()

    def run(self, waiting: tuple[PendingPod, ...], placed: int) -> None:
        """Continue with each of the waiting pods that the scheduler may take next."""
        if not waiting:
            self.found.add(placed)
            return
        for i in self._next(waiting):
            pod, rest = self.narrow(waiting[i]), (*waiting[:i], *waiting[i + 1 :])
            for node in self.simulator.equal_nodes(pod) or [""]:
                if self.left <= 0:
                    return
                self.left -= 1
                mark = self.simulator.checkpoint()
                fits = isinstance(self.simulator.place(pod, node), Placement)
                self.run(rest, placed + fits)
                self.simulator.rollback(mark)

    def _next(self, waiting: tuple[PendingPod, ...]) -> list[int]:
        """One pod of each kind among those with the highest priority."""
        kinds: dict[object, int] = {}
        for i, pod in enumerate(waiting):
            if self.simulator.priority(pod) != self.simulator.priority(waiting[0]):
                break
            kinds.setdefault(self.simulator.pod_signature(pod), i)
        return list(kinds.values())


class _PlaceScore(msgspec.Struct, frozen=True):
    """What decides between places: how many pods they take, and how full they are then."""

    counts: frozenset[int]
    """All numbers of pods that may fit."""
    fullness: int
    """Of CPU and memory, in parts of a hundred."""


def _fullness(simulator: Simulator, nodes: Sequence[str], placed: Sequence[Placement]) -> int:
    """The scheduler prefers the place that is used most, counting the gang's own pods. Asked before they are placed."""
    states = [simulator.nodes[name].state for name in nodes]
    wanted = [simulator.scored_requests(one.pod) for one in placed]
    parts = []
    for i, resource in enumerate((CPU, MEMORY)):
        whole = sum(state.node.allocatable.get(resource, 0) for state in states)
        known = [state for state in states if state.node.allocatable.get(resource)]
        used = sum(state.non_zero_requested[i] for state in known) + sum(amounts[i] for amounts in wanted)
        parts += [min(used, whole) * MAX_NODE_SCORE // whole] if whole else []
    return sum(parts) // len(parts) if parts else 0


def _possible_places(places: Mapping[str, _PlaceScore], need: int) -> list[str]:
    """The places that the scheduler may pick: with the highest score at their best and the others at their worst."""
    return [name for name, score in places.items() if max(score.counts) >= need and _may_win(name, places, need)]


def _may_win(name: str, places: Mapping[str, _PlaceScore], need: int) -> bool:
    mine = max(places[name].counts)
    # A place that may miss the minimum may not be a candidate at all.
    rivals = [(min(one.counts), one) for other, one in places.items() if other != name and min(one.counts) >= need]
    most = max(mine, *(count for count, _ in rivals)) if rivals else mine
    points = mine * MAX_NODE_SCORE // most + places[name].fullness
    return all(count * MAX_NODE_SCORE // most + one.fullness <= points for count, one in rivals)


Answer = Placement | Refusal
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Rate = Callable[[Sequence[Placement]], float]
"""How good placements of one job are together, GB/s."""


class GangVerdict(msgspec.Struct, frozen=True):
    """What became of a gang."""

    name: str
    placed: int
    wanted: int
    minimum: int
    key: str = ""
    places: tuple[str, ...] = ()
    """Where each of its groups went, by the value of `key`."""
    others: tuple[str, ...] = ()
    """Other places that would have taken them."""
    why_not: str = ""
    note: str = ""
    equally: tuple[str, ...] = ()
    """Places that the scheduler may take instead: they have as many points, and it draws lots. Of a gang that is
    refused: where it starts with luck."""
    luck: str = ""
    """Why it may start or not with the same pods on the same nodes; empty where it is certain."""

    @property
    def fits(self) -> bool:
        """Whether it starts."""
        return not self.why_not


class _Try(msgspec.Struct, frozen=True):
    """The pods of a group tried in one place."""

    place: str
    answers: tuple[Answer, ...]
    rate: float = 0.0
    score: _PlaceScore = _PlaceScore(frozenset({0}), 0)

    @property
    def placed(self) -> list[Placement]:
        return [answer for answer in self.answers if isinstance(answer, Placement)]


def place_gang(
    simulator: Simulator, gang: Gang, where: Mapping[str, Labels], rate: Rate
) -> tuple[list[Answer], GangVerdict]:
    """Its pods placed, or all refused with the reason. ``where`` are the labels of nodes."""
    wanted = len(gang.pods)
    if wanted < gang.minimum:
        return _refused(
            gang, f"waiting for minCount pods from a gang to appear in scheduling queue: {wanted} of {gang.minimum}"
        )
    start, answers, others = simulator.checkpoint(), list[Answer](), dict[str, None]()
    used: list[str] = []
    equally: list[str] = []
    luck = ""
    problems: list[str] = []
    for group in gang.groups:
        group = tuple(sorted(group, key=lambda pod: -simulator.priority(pod)))
        chosen, tried = _place_group(simulator, gang, group, where, rate, set(used) if gang.exclusive else set())
        luck = luck or (_uncertainty(tried, _need(gang, group)) if gang.by_scheduler else "")
        lots = [one for one in _likely(tried, _need(gang, group)) if one] if gang.by_scheduler else []
        if chosen is None:
            equally += lots
            problems.append(_shortfall(gang, group, tried))
            answers += [Refusal(pod, f"{gang.name}: {problems[-1]}") for pod in group]
            continue
        answers += chosen.answers
        used += [chosen.place] if chosen.place else []
        equally += [one for one in lots if one != chosen.place]
        others |= {one.place: None for one in tried if one.place and len(one.placed) == len(group)}
    placed = sum(isinstance(answer, Placement) for answer in answers)
    if placed < gang.minimum or (problems and not gang.exclusive):
        simulator.rollback(start)
        answers, verdict = _refused(gang, "; ".join(problems), placed, luck)
        return answers, replace(verdict, equally=tuple(equally))
    verdict = GangVerdict(gang.name, placed, wanted, gang.minimum, gang.key, tuple(used), note=gang.note, luck=luck)
    others = {one: None for one in others if one not in (*used, *equally)}
    return answers, replace(verdict, others=tuple(others), equally=tuple(equally))


def _refused(gang: Gang, why: str, placed: int = 0, luck: str = "") -> tuple[list[Answer], GangVerdict]:
    verdict = GangVerdict(gang.name, placed, len(gang.pods), gang.minimum, gang.key, why_not=why, note=gang.note)
    reason = f"{gang.name}: {why}" + (f"; {luck}" if luck else "")
    return [Refusal(pod, reason) for pod in gang.pods], replace(verdict, luck=luck)


def _need(gang: Gang, group: tuple[PendingPod, ...]) -> int:
    """How many pods of a group must fit."""
    return len(group) if len(gang.groups) > 1 else gang.minimum


def _likely(tried: Sequence[_Try], need: int) -> list[str]:
    return _possible_places({one.place: one.score for one in tried}, need)


def _uncertainty(tried: Sequence[_Try], need: int) -> str:
    """The text for a gang that may start or not; empty if the result is certain."""
    most = max((max(one.score.counts) for one in tried), default=0)
    certain = any(min(one.score.counts) >= need for one in tried)
    if most < need or certain:
        return ""
    least = max(min(one.score.counts) for one in tried)
    return (
        f"not deterministic: {least} to {most} of its pods fit, depending on the order in which kube-scheduler takes "
        "pods of equal priority and on its choice among equally good nodes; it never reconsiders a pod "
        "(kubernetes#138765); "
        "give pods with special needs a higher priority, or restrict the nodes of the others"
    )


def _place_group(
    simulator: Simulator,
    gang: Gang,
    group: tuple[PendingPod, ...],
    where: Mapping[str, Labels],
    rate: Rate,
    taken: set[str],
) -> tuple[_Try | None, list[_Try]]:
    """The pods of a group in the best place, or None, and what was tried in the places asked for."""
    need = _need(gang, group)
    first: list[_Try] = []
    for key in (gang.key, *gang.preferred) if gang.key else ():
        tried = list(_tries(simulator, gang, group, key, where, rate, taken))
        first = first or tried
        wanted = _likely(tried, need) if gang.by_scheduler else [one.place for one in tried]
        fitting = [one for one in tried if one.place in wanted and len(one.placed) >= need]
        if fitting:
            best = max(fitting, key=lambda one: (len(one.placed), one.rate))
            return _place_in(simulator, group, key, best.place), tried
    if gang.key and not gang.anywhere:
        return None, first
    mark = simulator.checkpoint()
    counts = _possible_counts(simulator, group, lambda pod: pod, TRIES) if gang.by_scheduler else frozenset({0})
    found = _Try("", tuple(map(simulator.place, group)), score=_PlaceScore(counts, 0))
    if len(found.placed) >= need:
        return found, first or [found]
    simulator.rollback(mark)
    return None, first or [found]


def _tries(
    simulator: Simulator,
    gang: Gang,
    group: tuple[PendingPod, ...],
    key: str,
    where: Mapping[str, Labels],
    rate: Rate,
    taken: set[str],
) -> Iterator[_Try]:
    """Every place in turn; nothing stays placed."""
    every = [place for place in label_values(where, key) if place not in taken]
    for place in every:
        mark = simulator.checkpoint()
        found = _place_in(simulator, group, key, place)
        simulator.rollback(mark)
        if gang.by_scheduler:
            nodes = [name for name, labels in where.items() if topology_value(labels, key) == place]
            counts = _possible_counts(simulator, group, partial(restrict_to, key=key, place=place), TRIES // len(every))
            full = _fullness(simulator, nodes, found.placed)
            found = replace(found, score=_PlaceScore(counts | {len(found.placed)}, full))
        yield replace(found, rate=rate(found.placed) if len(found.placed) == len(group) else 0.0)


def _place_in(simulator: Simulator, group: tuple[PendingPod, ...], key: str, place: str) -> _Try:
    return _Try(place, tuple(simulator.place(restrict_to(pod, key, place)) for pod in group))


def label_values(where: Mapping[str, Labels], key: str) -> list[str]:
    """All values of a label, sorted."""
    return sorted({value for labels in where.values() if (value := topology_value(labels, key)) is not None})


def restrict_to(pod: PendingPod, key: str, place: str) -> PendingPod:
    """The pod, allowed only on nodes with this value of a label. Not by its node selector, which may ask for another
    value of the same label: then it goes nowhere here."""
    affinity = as_dict(pod.spec.get("affinity"))
    nodes = as_dict(affinity.get("nodeAffinity"))
    terms = as_dicts(get_path(nodes, _REQUIRED, "nodeSelectorTerms")) or [{}]
    here = {"key": key, "operator": "In", "values": [place]}
    narrowed = [{**term, "matchExpressions": [*as_dicts(term.get("matchExpressions")), here]} for term in terms]
    nodes = {**nodes, _REQUIRED: {"nodeSelectorTerms": narrowed}}
    return replace(pod, spec={**pod.spec, "affinity": {**affinity, "nodeAffinity": nodes}})


def _shortfall(gang: Gang, group: tuple[PendingPod, ...], tried: Sequence[_Try]) -> str:
    """Why a group did not fit: how far each place got, and what stopped the one that got farthest."""
    if not tried:
        return f"no node has the label {gang.key}"
    most = max(tried, key=lambda one: len(one.placed))
    first = next((one.reason for one in most.answers if isinstance(one, Refusal)), "")
    if not gang.key:
        return f"{len(most.placed)} of {len(group)} pods fit, {gang.minimum} are needed at once: {first}"
    got = ", ".join(f"{one.place} takes {len(one.placed)}" for one in tried[:8])
    more = f" and {len(tried) - 8} more" if len(tried) > 8 else ""
    return f"no {gang.key} takes {_need(gang, group)} pods at once ({got}{more}): {first}"
