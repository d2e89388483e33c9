"""Which GPU uses which NIC, and how far apart they are.

NCCL gives each GPU the nearest NIC of the pod. The same here: GPUs and NICs are matched so that as many pairs as
possible are as near as possible, and each NIC serves its fair share of GPUs (or each GPU its share of NICs). The worst
pair counts, because a collective runs at the speed of its slowest channel.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from dranet.machines.distance import Distance, distance
from dranet.machines.machine import MachineDevice


class Pair(msgspec.Struct, frozen=True):
    """A GPU and the NIC it uses."""

    gpu: MachineDevice
    nic: MachineDevice
    distance: Distance


class Alignment(msgspec.Struct, frozen=True):
    """All pairs of one pod, in the order of its GPUs and NICs."""

    pairs: tuple[Pair, ...] = ()

    @property
    def worst(self) -> Distance:
        """The farthest distance of a pair; UNKNOWN without pairs."""
        return max((pair.distance for pair in self.pairs), default=Distance.UNKNOWN)

    def distances(self) -> dict[str, dict[str, str]]:
        """From every GPU to every NIC by device name, also those that do not use each other."""
        nics = list(dict.fromkeys(pair.nic for pair in self.pairs))
        gpus = dict.fromkeys(pair.gpu for pair in self.pairs)
        return {gpu.device: {nic.device: str(distance(gpu.position, nic.position)) for nic in nics} for gpu in gpus}


def align(gpus: Sequence[MachineDevice], nics: Sequence[MachineDevice]) -> Alignment:
    """The best pairing of these GPUs with these NICs."""
    if not gpus or not nics:
        return Alignment()
    if len(nics) >= len(gpus):
        chosen = _match(nics, gpus)
        pairs = [
            Pair(gpus[g], nic, distance(gpus[g].position, nic.position)) for nic, g in zip(nics, chosen, strict=True)
        ]
        return Alignment(tuple(sorted(pairs, key=lambda p: gpus.index(p.gpu))))
    chosen = _match(gpus, nics)
    return Alignment(
        tuple(Pair(gpu, nics[n], distance(gpu.position, nics[n].position)) for gpu, n in zip(gpus, chosen, strict=True))
    )


def possible_gpus(
    free: Sequence[MachineDevice], count: int, nics: Sequence[MachineDevice]
) -> Iterator[tuple[MachineDevice, ...]]:
    """Every choice of GPUs that a device plugin could make; GPUs with equal distances to these NICs count as one."""
    groups: dict[tuple[Distance, ...], list[MachineDevice]] = {}
    for gpu in free:
        groups.setdefault(tuple(distance(gpu.position, nic.position) for nic in nics), []).append(gpu)
    members = list(groups.values())
    for counts in itertools.product(*(range(len(group) + 1) for group in members)):
        if sum(counts) == count:
            yield tuple(gpu for group, number in zip(members, counts, strict=True) for gpu in group[:number])


def _match(many: Sequence[MachineDevice], few: Sequence[MachineDevice]) -> list[int]:
    """For each of ``many`` the index of its partner in ``few``; all partners are used equally often.

    A bipartite matching that admits distances from near to far. Extending a matching never unmatches a pair, so each
    step pairs as many as possible at that distance, and the worst pair is as near as any pairing allows.
    """
    seats = [index % len(few) for index in range(len(many))]
    taken: list[int | None] = [None] * len(seats)
    placed: set[int] = set()
    apart = [[distance(one.position, few[seat].position) for seat in seats] for one in many]
    for reach in sorted({far for row in apart for far in row}):
        near = [[far <= reach for far in row] for row in apart]
        for one in range(len(many)):
            if one not in placed and _assign(one, near, taken, set()):
                placed.add(one)
    result = [0] * len(many)
    for position, occupant in enumerate(taken):
        if occupant is not None:
            result[occupant] = seats[position]
    return result


def _assign(one: int, near: list[list[bool]], taken: list[int | None], tried: set[int]) -> bool:
    open_seats = [position for position, reachable in enumerate(near[one]) if reachable and position not in tried]
    for position in sorted(open_seats, key=lambda seat: taken[seat] is not None):
        if position in tried:
            continue
        tried.add(position)
        occupant = taken[position]
        if occupant is None or _assign(occupant, near, taken, tried):
            taken[position] = one
            return True
    return False
