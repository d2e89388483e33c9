"""Which GPU talks through which card, and how far apart they are.

NCCL gives each GPU the nearest card the pod has. So do we: cards and GPUs are matched so that as many pairs as
possible are as near as possible, each card serving its fair share of GPUs (or each GPU its share of cards). What counts
is the worst pair, because a collective runs at the speed of its slowest channel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from dranet.topology.distance import Distance, distance
from dranet.topology.machine import Part


class Pair(msgspec.Struct, frozen=True):
    """A GPU and the card it uses."""

    gpu: Part
    nic: Part
    distance: Distance


class Alignment(msgspec.Struct, frozen=True):
    """All pairs of one pod, in the order of its GPUs and cards."""

    pairs: tuple[Pair, ...] = ()

    @property
    def worst(self) -> Distance:
        """The farthest pair; UNKNOWN where there is no pair at all."""
        return max((pair.distance for pair in self.pairs), default=Distance.UNKNOWN)

    def distances(self) -> dict[str, dict[str, str]]:
        """Every GPU to every card, also those that do not use each other, by device name."""
        nics = list(dict.fromkeys(pair.nic for pair in self.pairs))
        gpus = dict.fromkeys(pair.gpu for pair in self.pairs)
        return {gpu.device: {nic.device: str(distance(gpu.place, nic.place)) for nic in nics} for gpu in gpus}


def align(gpus: Sequence[Part], nics: Sequence[Part]) -> Alignment:
    """The best pairing of these GPUs with these cards."""
    if not gpus or not nics:
        return Alignment()
    if len(nics) >= len(gpus):
        chosen = _match(nics, gpus)
        pairs = [Pair(gpus[g], nic, distance(gpus[g].place, nic.place)) for nic, g in zip(nics, chosen, strict=True)]
        return Alignment(tuple(sorted(pairs, key=lambda p: gpus.index(p.gpu))))
    chosen = _match(gpus, nics)
    return Alignment(
        tuple(Pair(gpu, nics[n], distance(gpu.place, nics[n].place)) for gpu, n in zip(gpus, chosen, strict=True))
    )


def possible_gpus(free: Sequence[Part], count: int, nics: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """Every choice a device plugin could make, up to GPUs that see these cards alike."""
    groups: dict[tuple[Distance, ...], list[Part]] = {}
    for gpu in free:
        groups.setdefault(tuple(distance(gpu.place, nic.place) for nic in nics), []).append(gpu)
    members = list(groups.values())
    for counts in itertools.product(*(range(len(group) + 1) for group in members)):
        if sum(counts) == count:
            yield tuple(gpu for group, number in zip(members, counts, strict=True) for gpu in group[:number])


def _match(many: Sequence[Part], few: Sequence[Part]) -> list[int]:
    """For each of ``many`` the index of its partner in ``few``, all of which are used equally often.

    Distances are admitted from near to far. Growing a matching never unmatches anyone, so each step pairs as many as
    can be paired at that distance: the result is best for the nearest class first, and its worst pair is as near as any
    pairing allows.
    """
    seats = [index % len(few) for index in range(len(many))]
    taken: list[int | None] = [None] * len(seats)
    placed: set[int] = set()
    apart = [[distance(one.place, few[seat].place) for seat in seats] for one in many]
    for reach in sorted({far for row in apart for far in row}):
        near = [[far <= reach for far in row] for row in apart]
        for one in range(len(many)):
            if one not in placed and _place(one, near, taken, set()):
                placed.add(one)
    result = [0] * len(many)
    for position, occupant in enumerate(taken):
        if occupant is not None:
            result[occupant] = seats[position]
    return result


def _place(one: int, near: list[list[bool]], taken: list[int | None], tried: set[int]) -> bool:
    open_seats = [position for position, reachable in enumerate(near[one]) if reachable and position not in tried]
    for position in sorted(open_seats, key=lambda seat: taken[seat] is not None):
        if position in tried:
            continue
        tried.add(position)
        sitting = taken[position]
        if sitting is None or _place(sitting, near, taken, tried):
            taken[position] = one
            return True
    return False
