"""A gang placed as kube-scheduler does it: its pods one after the other, none reconsidered, all or none of them kept.

So an early pod's choice of devices can leave a later one without, though another order would fit them all
(kubernetes#138765). Such a gang fails every time; it is found out by trying the other order, and said.
Places are tried one by one. Which of several that fit the real scheduler takes is not known beforehand: here it is the
one with the most pods, then the one that gives the best bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dranet.predict.jobs.gangs import Gang
from dranet.predict.placing import Placement, Refusal, Scheduler
from dranet.predict.pods_to_place import Pod
from dranet.topology.blocks import Labels, known

Answer = Placement | Refusal
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

    @property
    def fits(self) -> bool:
        """Whether it starts."""
        return not self.why_not


class _Try(msgspec.Struct, frozen=True):
    """The pods of a group tried in one place."""

    place: str
    answers: tuple[Answer, ...]
    rate: float = 0.0

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
    problems: list[str] = []
    for group in gang.groups:
        chosen, tried = _place_group(scheduler, gang, group, where, rate, set(used) if gang.exclusive else set())
        if chosen is None:
            problems.append(_shortfall(gang, group, tried))
            answers += [Refusal(pod, f"{gang.name}: {problems[-1]}") for pod in group]
            continue
        answers += chosen.answers
        used += [chosen.place] if chosen.place else []
        others |= {one.place: None for one in tried if one.place and len(one.placed) == len(group)}
    placed = sum(isinstance(answer, Placement) for answer in answers)
    if placed < gang.minimum or (problems and not gang.exclusive):
        scheduler.undo(start)
        return _refused(gang, "; ".join(problems) + _other_order(scheduler, gang), placed)
    verdict = GangVerdict(gang.name, placed, wanted, gang.minimum, gang.key, tuple(used), note=gang.note)
    return answers, replace(verdict, others=tuple(one for one in others if one not in used))


def _refused(gang: Gang, why: str, placed: int = 0) -> tuple[list[Answer], GangVerdict]:
    verdict = GangVerdict(gang.name, placed, len(gang.pods), gang.minimum, gang.key, why_not=why, note=gang.note)
    return [Refusal(pod, f"{gang.name}: {why}") for pod in gang.pods], verdict


def _place_group(
    scheduler: Scheduler, gang: Gang, group: tuple[Pod, ...], where: Mapping[str, Labels], rate: Rate, taken: set[str]
) -> tuple[_Try | None, list[_Try]]:
    """The pods of a group in the best place, or None, and what was tried in the places asked for."""
    need = len(group) if len(gang.groups) > 1 else gang.minimum
    first: list[_Try] = []
    for key in (gang.key, *gang.preferred) if gang.key else ():
        tried = list(_tries(scheduler, group, key, where, rate, taken))
        first = first or tried
        best = max(tried, key=lambda one: (len(one.placed), one.rate), default=None)
        if best is not None and len(best.placed) >= need:
            return _again(scheduler, group, key, best.place), tried
    if gang.key and not gang.anywhere:
        return None, first
    mark = scheduler.mark()
    found = _Try("", tuple(map(scheduler.place, group)))
    if len(found.placed) >= need:
        return found, first
    scheduler.undo(mark)
    return None, first or [found]


def _tries(
    scheduler: Scheduler, group: tuple[Pod, ...], key: str, where: Mapping[str, Labels], rate: Rate, taken: set[str]
) -> Iterator[_Try]:
    """Every place in turn; nothing stays placed."""
    for place in places(where, key):
        if place not in taken:
            mark = scheduler.mark()
            found = _again(scheduler, group, key, place)
            scheduler.undo(mark)
            yield replace(found, rate=rate(found.placed) if len(found.placed) == len(group) else 0.0)


def _again(scheduler: Scheduler, group: tuple[Pod, ...], key: str, place: str) -> _Try:
    return _Try(place, tuple(scheduler.place(within(pod, key, place)) for pod in group))


def places(where: Mapping[str, Labels], key: str) -> list[str]:
    """All values of a label, sorted."""
    return sorted({value for labels in where.values() if (value := known(labels, key)) is not None})


def within(pod: Pod, key: str, place: str) -> Pod:
    """The pod, allowed only on nodes with this value of a label."""
    selector = {**(pod.spec.get("nodeSelector") or {}), key: place}
    return replace(pod, spec={**pod.spec, "nodeSelector": selector})


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
    need = len(group) if len(gang.groups) > 1 else gang.minimum
    return f"no {gang.key} takes {need} pods at once ({got}{more}): {first}"


def _other_order(scheduler: Scheduler, gang: Gang) -> str:
    """Whether the last pods first would fit: then only the order is in the way."""
    if gang.key or len(gang.groups) > 1:
        return ""
    mark = scheduler.mark()
    placed = sum(isinstance(scheduler.place(pod), Placement) for pod in reversed(gang.pods))
    scheduler.undo(mark)
    if placed < gang.minimum:
        return ""
    return (
        "; the same pods in reverse order all fit: kube-scheduler never reconsiders an earlier pod's devices "
        "(kubernetes#138765), so give the choosier pods a higher priority or narrow what the others may take"
    )
