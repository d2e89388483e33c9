"""What kube-scheduler leaves to luck when it places a gang, and how far luck goes.

Pods of equal priority are taken in no fixed order, since they come out of a Go map; a pod with several equally good
nodes gets any of them; and of places with equal points any is taken. No pod is reconsidered (kubernetes#138765). So one
gang may start today and not tomorrow. Orders and nodes are tried here, of pods and nodes that are alike one each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from dranet.predict.placing import Placement, Scheduler
from dranet.predict.pods_to_place import Pod
from dranet.scheduling.amounts import CPU, MEMORY
from dranet.scheduling.scores.normal import MOST

TRIES = 2000
"""Placements tried for one gang; after that only what was found so far is known."""
Narrow = Callable[[Pod], Pod]
"""A pod, kept to one place."""


def possible_counts(scheduler: Scheduler, pods: Sequence[Pod], narrow: Narrow, tries: int) -> frozenset[int]:
    """How many of these pods, sorted by priority, may get a node there. Changes nothing."""
    walk = _Walk(scheduler, narrow, tries)
    walk.go(tuple(pods), 0)
    return frozenset(walk.found)


class _Walk:
    """Through all orders of pods and all equally good nodes, depth first."""

    def __init__(self, scheduler: Scheduler, narrow: Narrow, tries: int) -> None:
        self.scheduler, self.narrow, self.left = scheduler, narrow, tries
        self.found: set[int] = set()

    def go(self, waiting: tuple[Pod, ...], placed: int) -> None:
        """Go on with any of the waiting pods that the scheduler may take next."""
        if not waiting:
            self.found.add(placed)
            return
        for i in self._next(waiting):
            pod, rest = self.narrow(waiting[i]), (*waiting[:i], *waiting[i + 1 :])
            for node in self.scheduler.choices(pod) or [""]:
                if self.left <= 0:
                    return
                self.left -= 1
                mark = self.scheduler.mark()
                fits = isinstance(self.scheduler.place(pod, node), Placement)
                self.go(rest, placed + fits)
                self.scheduler.undo(mark)

    def _next(self, waiting: tuple[Pod, ...]) -> list[int]:
        """One pod of each kind among those with the highest priority."""
        kinds: dict[object, int] = {}
        for i, pod in enumerate(waiting):
            if self.scheduler.priority(pod) != self.scheduler.priority(waiting[0]):
                break
            kinds.setdefault(self.scheduler.kind(pod), i)
        return list(kinds.values())


class PlaceScore(msgspec.Struct, frozen=True):
    """What decides between places: how many pods they take, and how full they are then."""

    counts: frozenset[int]
    """All that luck may give."""
    fullness: int
    """Of CPU and memory, in parts of a hundred."""


def fullness(scheduler: Scheduler, nodes: Sequence[str], placed: Sequence[Placement]) -> int:
    """The scheduler prefers the place that is used most, counting the gang's own pods. Asked before they are placed."""
    states = [scheduler.nodes[name].state for name in nodes]
    wanted = [scheduler.counted(one.pod) for one in placed]
    parts = []
    for i, resource in enumerate((CPU, MEMORY)):
        whole = sum(state.facts.allocatable.get(resource, 0) for state in states)
        known = [state for state in states if state.facts.allocatable.get(resource)]
        used = sum(state.counted[i] for state in known) + sum(amounts[i] for amounts in wanted)
        parts += [min(used, whole) * MOST // whole] if whole else []
    return sum(parts) // len(parts) if parts else 0


def likely(places: Mapping[str, PlaceScore], need: int) -> list[str]:
    """The places that the scheduler may take: with the most points if luck is with them and against the others."""
    return [name for name, score in places.items() if max(score.counts) >= need and _may_win(name, places, need)]


def _may_win(name: str, places: Mapping[str, PlaceScore], need: int) -> bool:
    mine = max(places[name].counts)
    # A place that may fall short of the minimum may not be there to compare with.
    rivals = [(min(one.counts), one) for other, one in places.items() if other != name and min(one.counts) >= need]
    most = max(mine, *(count for count, _ in rivals)) if rivals else mine
    points = mine * MOST // most + places[name].fullness
    return all(count * MOST // most + one.fullness <= points for count, one in rivals)
