"""The quality of a placement: the distance of every GPU-NIC pair, the bandwidth to expect, and nearer devices.

The figure of a pod is what it contributes to a job of equal pods, in a ring; `jobs` has the figure of a whole job. The
GPUs of a device plugin are not known beforehand: the kubelet may allocate any free ones. Then the figure is the worst
of all possible choices, and marked as such.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import DeviceResult, Placement
from dranet.machines.alignment import Alignment, align, possible_gpus
from dranet.machines.bandwidth import (
    Estimate,
    JobPod,
    NoEstimate,
    estimate,
    is_direct,
    perfectly_aligned,
    ring_estimate,
)
from dranet.machines.distance import Distance, distance
from dranet.machines.machine import DeviceId, Machine, MachineDevice

Figure = Estimate | NoEstimate
NOTHING = NoEstimate("no GPU and no NIC")
ADMIN = NoEstimate("admin access: it observes devices of other pods and has none of its own")


class Quality(msgspec.Struct, frozen=True):
    """Pairs and bandwidth of one pod."""

    member: JobPod = JobPod(())
    expected: Figure = NOTHING
    best: Figure = NOTHING
    """The same devices if every pair were near enough."""
    certain: bool = True
    """False where GPUs come from a device plugin and other choices are possible."""
    luckiest: Distance = Distance.UNKNOWN
    """With `certain` false: the worst pair of the best possible choice."""

    @property
    def alignment(self) -> Alignment:
        """Its pairs."""
        return self.member.alignment

    @property
    def busbw(self) -> float | None:
        """GB/s for large messages; None where there is no figure."""
        return self.expected.gbytes if isinstance(self.expected, Estimate) else None

    @property
    def misaligned(self) -> bool:
        """Whether a NIC is too far from its GPU for GPUDirect."""
        return any(p.distance is not Distance.UNKNOWN and not is_direct(p) for p in self.alignment.pairs)

    @property
    def of_best(self) -> float | None:
        """Share of the best that is to be expected."""
        return share_of_best(self.expected, self.best)

    def to_json(self) -> dict[str, Any]:
        """The fields ``alignment`` and ``busbw`` of a planned pod."""
        alignment: dict[str, Any] = {
            "worst": str(self.alignment.worst),
            "pairs": [
                {"gpu": p.gpu.device, "nic": p.nic.device, "nic_name": p.nic.title, "distance": str(p.distance)}
                for p in self.alignment.pairs
            ],
            "distances": self.alignment.distances(),
            "certain": self.certain,
        }
        if not self.certain:
            alignment["luckiest"] = str(self.luckiest)
        return {"alignment": alignment, "busbw": figure_json(self.expected, self.best)}


def share_of_best(expected: Figure, best: Figure) -> float | None:
    """Of the best that is expected; None where either is unknown."""
    if isinstance(expected, NoEstimate) or isinstance(best, NoEstimate):
        return None
    return expected.gbytes / best.gbytes


def figure_json(expected: Figure, best: Figure) -> dict[str, Any]:
    """A bandwidth for programs: GB/s with its range and what it assumes, or null with the reason."""
    if isinstance(expected, NoEstimate):
        return {"gbytes_per_second": None, "reason": expected.reason, "at_most": _rounded(expected.at_most, 1)}
    of_best = share_of_best(expected, best)
    return {
        "gbytes_per_second": round(expected.gbytes, 1),
        "low": round(expected.low, 1),
        "high": round(expected.high, 1),
        "collective": expected.collective,
        "algorithm": expected.algorithm,
        "limited_by": expected.bound,
        "network": _rounded(expected.network, 1),
        "inside": _rounded(expected.inside, 1),
        "of_best": _rounded(of_best, 3),
        "notes": list(expected.notes),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def device_quality(gpus: Sequence[MachineDevice], nics: Sequence[MachineDevice]) -> Quality:
    """The quality of a pod with these GPUs and NICs."""
    return _quality(tuple(gpus), tuple(nics))


@lru_cache(maxsize=4096)
def _quality(gpus: tuple[MachineDevice, ...], nics: tuple[MachineDevice, ...]) -> Quality:
    """Devices do not refer to their node, so the result of one node is valid for all equivalent ones."""
    if not gpus:
        return Quality(JobPod((), unpaired_nics=nics), NoEstimate("no GPU") if nics else NOTHING)
    member = JobPod(gpus, align(gpus, nics))
    expected = ring_estimate(member) if nics else estimate([member])
    best = ring_estimate(perfectly_aligned(member)) if nics else expected
    return Quality(member, expected, best, True, member.alignment.worst)


def quality_with_plugin(
    gpus: Sequence[MachineDevice], nics: Sequence[MachineDevice], free: Sequence[MachineDevice], count: int
) -> Quality:
    """Of a pod that gets ``count`` more GPUs, any of ``free``, from a device plugin: the worst that can happen."""
    options = [device_quality([*gpus, *choice], nics) for choice in possible_gpus(free, count, nics)]
    if not options:
        return device_quality(gpus, nics)
    worst = max(options, key=lambda q: (q.alignment.worst, -(q.busbw or 0)))
    luckiest = min(option.alignment.worst for option in options)
    certain = len(free) == count
    return Quality(worst.member, worst.expected, worst.best, certain, luckiest)


def allocated_parts(
    machine: Machine, devices: Sequence[Sequence[DeviceResult]]
) -> tuple[list[MachineDevice], list[MachineDevice]]:
    """GPUs and NICs among the devices of a pod, in the order of the machine."""
    held = {result.id for group in devices for result in group}
    return [g for g in machine.gpus if g.id in held], [n for n in machine.nics if n.id in held]


def placement_quality(placement: Placement, machine: Machine) -> Quality:
    """The quality of a placement on its machine."""
    own = [[result for result in group if not result.admin_access] for group in placement.devices]
    gpus, nics = allocated_parts(machine, own)
    if any(placement.devices) and not any(own):
        return Quality(expected=ADMIN)
    wanted = sum(placement.pod.plugin_gpus.values())
    if not wanted:
        return device_quality(gpus, nics)
    free = [gpu for gpu in machine.gpus if gpu.id not in placement.held]
    return quality_with_plugin(gpus, nics, free, wanted)


_MAX_CHOICES = 20_000
"""Limit of choices to try; a machine with a few PCIe roots has far fewer."""


class PlannedPod(msgspec.Struct, frozen=True):
    """A placed pod and the quality of its placement."""

    placement: Placement
    quality: Quality

    @property
    def pod(self) -> PendingPod:
        """The pod itself."""
        return self.placement.pod


def better_devices(
    one: PlannedPod, machine: Machine, free: Sequence[DeviceId]
) -> tuple[tuple[str, ...], Quality] | None:
    """The best choice of as many GPUs and NICs as the pod has, if it is better than the pod's devices."""
    gpus, nics = allocated_parts(machine, one.placement.devices)
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


DeviceChoice = tuple[tuple[MachineDevice, ...], tuple[MachineDevice, ...], Quality]


def best_choice(
    gpus: Sequence[MachineDevice], nics: Sequence[MachineDevice], gpu_count: int, nic_count: int
) -> DeviceChoice | None:
    """The nearest of all choices; of equal ones the first in the order of the devices."""
    options = (
        (chosen, chosen_nics, device_quality(chosen, chosen_nics))
        for chosen_nics in _nic_choices(nics, gpus, nic_count)
        for chosen in possible_gpus(gpus, gpu_count, chosen_nics)
    )
    return min(itertools.islice(options, _MAX_CHOICES), key=lambda option: _rank(option[2]), default=None)


def _rank(one: Quality) -> tuple[Distance, float]:
    return one.alignment.worst, -(one.busbw or 0.0)


def _nic_choices(
    nics: Sequence[MachineDevice], gpus: Sequence[MachineDevice], count: int
) -> Iterator[tuple[MachineDevice, ...]]:
    """Choices of NICs; NICs with the same distances to all GPUs are interchangeable."""
    groups: dict[tuple[Distance, ...], list[MachineDevice]] = {}
    for nic in nics:
        groups.setdefault(tuple(distance(nic.position, gpu.position) for gpu in gpus), []).append(nic)
    members = list(groups.values())
    for counts in itertools.product(*(range(len(group), -1, -1) for group in members)):
        if sum(counts) == count:
            yield tuple(nic for group, number in zip(members, counts, strict=True) for nic in group[:number])
