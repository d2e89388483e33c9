"""Were there nearer devices? Every choice of as many GPUs and cards from the free ones is looked at."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from dranet.predict.placement_quality import parts_of
from dranet.predict.planning import PlannedPod
from dranet.predict.quality import Quality, quality
from dranet.topology.alignment import possible_gpus
from dranet.topology.distance import Distance, distance
from dranet.topology.machine import DeviceId, Machine, Part

MOST = 20_000
"""Choices looked at; a machine with a few PCIe roots has far fewer."""


def better_devices(
    one: PlannedPod, machine: Machine, free: Sequence[DeviceId]
) -> tuple[tuple[str, ...], Quality] | None:
    """The best choice of as many GPUs and cards as the pod has, if it beats what the pod got."""
    gpus, nics = parts_of(machine, one.placement.devices)
    if not gpus or not nics or one.pod.plugin_gpus:
        return None
    usable = set(free)
    best = best_choice(
        [part for part in machine.gpus if part.id in usable],
        [part for part in machine.nics if part.id in usable],
        len(gpus),
        len(nics),
    )
    if best is None or _rank(best[2]) >= _rank(one.quality):
        return None
    return tuple(part.device for part in (*best[0], *best[1])), best[2]


Choice = tuple[tuple[Part, ...], tuple[Part, ...], Quality]


def best_choice(gpus: Sequence[Part], nics: Sequence[Part], gpu_count: int, nic_count: int) -> Choice | None:
    """The nearest of all choices; of equals the first in the order of the devices."""
    options = (
        (chosen, cards, quality(chosen, cards))
        for cards in _cards(nics, gpus, nic_count)
        for chosen in possible_gpus(gpus, gpu_count, cards)
    )
    return min(itertools.islice(options, MOST), key=lambda option: _rank(option[2]), default=None)


def _rank(one: Quality) -> tuple[Distance, float]:
    return one.alignment.worst, -(one.busbw or 0.0)


def _cards(nics: Sequence[Part], gpus: Sequence[Part], count: int) -> Iterator[tuple[Part, ...]]:
    """Choices of cards, up to cards that see all GPUs alike."""
    groups: dict[tuple[Distance, ...], list[Part]] = {}
    for nic in nics:
        groups.setdefault(tuple(distance(nic.place, gpu.place) for gpu in gpus), []).append(nic)
    members = list(groups.values())
    for counts in itertools.product(*(range(len(group), -1, -1) for group in members)):
        if sum(counts) == count:
            yield tuple(nic for group, number in zip(members, counts, strict=True) for nic in group[:number])
