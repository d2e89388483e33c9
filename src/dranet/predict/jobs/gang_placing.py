"""A gang placed as kube-scheduler does it: its pods one after the other, none reconsidered, all or none of them kept.

So an early pod's choice of devices can leave a later one without, though another order would fit them all. Orders are
luck, as are equally good nodes and places; `gang_luck` tells how far that goes, and the verdict says it.
Places are tried one by one. Of those that the scheduler may take, the one that gives the best bandwidth is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from dranet.model.untyped import at, mapping, mappings
from dranet.predict.jobs.gang_luck import TRIES, PlaceScore, fullness, likely, possible_counts
from dranet.predict.jobs.gangs import Gang
from dranet.predict.placing import Placement, Refusal, Scheduler
from dranet.predict.pods_to_place import Pod
from dranet.topology.blocks import Labels, known

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
    score: PlaceScore = PlaceScore(frozenset({0}), 0)

    @property
    def placed(self) -> list[Placement]:
        return [answer for answer in self.answers if isinstance(answer, Placement)]


def place_gang(
    scheduler: Scheduler, gang: Gang, where: Mapping[str, Labels], rate: Rate
) -> tuple[list[Answer], GangVerdict]:
    """Its pods placed, or all refused with the reason. ``where`` are the labels of nodes."""
    wanted = len(gang.pods)
    if wanted < gang.minimum:
        return _refused(
            gang, f"waiting for minCount pods from a gang to appear in scheduling queue: {wanted} of {gang.minimum}"
        )
    start, answers, others = scheduler.mark(), list[Answer](), dict[str, None]()
    used: list[str] = []
    equally: list[str] = []
    luck = ""
    problems: list[str] = []
    for group in gang.groups:
        group = tuple(sorted(group, key=lambda pod: -scheduler.priority(pod)))
        chosen, tried = _place_group(scheduler, gang, group, where, rate, set(used) if gang.exclusive else set())
        luck = luck or (_luck(tried, _need(gang, group)) if gang.by_scheduler else "")
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
        scheduler.undo(start)
        answers, verdict = _refused(gang, "; ".join(problems), placed, luck)
        return answers, replace(verdict, equally=tuple(equally))
    verdict = GangVerdict(gang.name, placed, wanted, gang.minimum, gang.key, tuple(used), note=gang.note, luck=luck)
    others = {one: None for one in others if one not in (*used, *equally)}
    return answers, replace(verdict, others=tuple(others), equally=tuple(equally))


def _refused(gang: Gang, why: str, placed: int = 0, luck: str = "") -> tuple[list[Answer], GangVerdict]:
    verdict = GangVerdict(gang.name, placed, len(gang.pods), gang.minimum, gang.key, why_not=why, note=gang.note)
    reason = f"{gang.name}: {why}" + (f"; {luck}" if luck else "")
    return [Refusal(pod, reason) for pod in gang.pods], replace(verdict, luck=luck)


def _need(gang: Gang, group: tuple[Pod, ...]) -> int:
    """How many pods of a group must fit."""
    return len(group) if len(gang.groups) > 1 else gang.minimum


def _likely(tried: Sequence[_Try], need: int) -> list[str]:
    return likely({one.place: one.score for one in tried}, need)


def _luck(tried: Sequence[_Try], need: int) -> str:
    """What to say where the same gang may start or not."""
    most = max((max(one.score.counts) for one in tried), default=0)
    certain = any(min(one.score.counts) >= need for one in tried)
    if most < need or certain:
        return ""
    least = max(min(one.score.counts) for one in tried)
    return (
        f"luck decides: of its pods {least} to {most} fit, by the order in which kube-scheduler takes those of equal "
        "priority and the node it draws among equally good ones, and it never reconsiders a pod (kubernetes#138765); "
        "give the choosier pods a higher priority or narrow what the others may take"
    )


def _place_group(
    scheduler: Scheduler, gang: Gang, group: tuple[Pod, ...], where: Mapping[str, Labels], rate: Rate, taken: set[str]
) -> tuple[_Try | None, list[_Try]]:
    """The pods of a group in the best place, or None, and what was tried in the places asked for."""
    need = _need(gang, group)
    first: list[_Try] = []
    for key in (gang.key, *gang.preferred) if gang.key else ():
        tried = list(_tries(scheduler, gang, group, key, where, rate, taken))
        first = first or tried
        wanted = _likely(tried, need) if gang.by_scheduler else [one.place for one in tried]
        fitting = [one for one in tried if one.place in wanted and len(one.placed) >= need]
        if fitting:
            best = max(fitting, key=lambda one: (len(one.placed), one.rate))
            return _again(scheduler, group, key, best.place), tried
    if gang.key and not gang.anywhere:
        return None, first
    mark = scheduler.mark()
    counts = possible_counts(scheduler, group, lambda pod: pod, TRIES) if gang.by_scheduler else frozenset({0})
    found = _Try("", tuple(map(scheduler.place, group)), score=PlaceScore(counts, 0))
    if len(found.placed) >= need:
        return found, first or [found]
    scheduler.undo(mark)
    return None, first or [found]


def _tries(
    scheduler: Scheduler,
    gang: Gang,
    group: tuple[Pod, ...],
    key: str,
    where: Mapping[str, Labels],
    rate: Rate,
    taken: set[str],
) -> Iterator[_Try]:
    """Every place in turn; nothing stays placed."""
    every = [place for place in places(where, key) if place not in taken]
    for place in every:
        mark = scheduler.mark()
        found = _again(scheduler, group, key, place)
        scheduler.undo(mark)
        if gang.by_scheduler:
            nodes = [name for name, labels in where.items() if known(labels, key) == place]
            counts = possible_counts(scheduler, group, partial(within, key=key, place=place), TRIES // len(every))
            full = fullness(scheduler, nodes, found.placed)
            found = replace(found, score=PlaceScore(counts | {len(found.placed)}, full))
        yield replace(found, rate=rate(found.placed) if len(found.placed) == len(group) else 0.0)


def _again(scheduler: Scheduler, group: tuple[Pod, ...], key: str, place: str) -> _Try:
    return _Try(place, tuple(scheduler.place(within(pod, key, place)) for pod in group))


def places(where: Mapping[str, Labels], key: str) -> list[str]:
    """All values of a label, sorted."""
    return sorted({value for labels in where.values() if (value := known(labels, key)) is not None})


def within(pod: Pod, key: str, place: str) -> Pod:
    """The pod, allowed only on nodes with this value of a label. Not by its node selector, which may ask for another
    value of the same label: then it goes nowhere here."""
    affinity = mapping(pod.spec.get("affinity"))
    nodes = mapping(affinity.get("nodeAffinity"))
    terms = mappings(at(nodes, _REQUIRED, "nodeSelectorTerms")) or [{}]
    here = {"key": key, "operator": "In", "values": [place]}
    narrowed = [{**term, "matchExpressions": [*mappings(term.get("matchExpressions")), here]} for term in terms]
    nodes = {**nodes, _REQUIRED: {"nodeSelectorTerms": narrowed}}
    return replace(pod, spec={**pod.spec, "affinity": {**affinity, "nodeAffinity": nodes}})


def _shortfall(gang: Gang, group: tuple[Pod, ...], tried: Sequence[_Try]) -> str:
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
