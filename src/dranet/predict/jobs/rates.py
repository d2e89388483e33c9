"""The bandwidth of a whole workload: its pods together, by collective, and what the same devices could give at best."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from dranet.predict.quality import Figure, Quality, figure_json, share
from dranet.topology.bandwidth import Estimate, Member, estimate, near
from dranet.topology.collectives import ALL_GATHER, ALL_REDUCE

SHOWN = (ALL_REDUCE, ALL_GATHER)
"""The two that differ most: a tree between two pods flatters the network in the first, never in the second."""


class JobRate(msgspec.Struct, frozen=True):
    """What one workload should reach."""

    workload: str
    figures: tuple[tuple[Figure, Figure], ...]
    """For every collective of `SHOWN`: expected, and at best."""
    certain: bool = True
    """False where a device plugin may hand out other GPUs: then this is the worst case."""
    over_nvlink: Figure | None = None
    """With a ComputeDomain, where all pods are in one NVLink domain and have none yet."""

    @property
    def main(self) -> tuple[Figure, Figure]:
        """The all_reduce, which people quote."""
        return self.figures[0]

    def to_json(self) -> dict[str, Any]:
        """As `dranet plan -o json` prints it."""
        expected, best = self.main
        others = {
            name: figure_json(*pair)
            for name, pair in zip(SHOWN[1:], self.figures[1:], strict=True)
            if isinstance(pair[0], Estimate)
        }
        made = {"workload": self.workload, "certain": self.certain, "busbw": figure_json(expected, best), **others}
        if self.over_nvlink is not None:
            made["over_nvlink"] = figure_json(self.over_nvlink, self.over_nvlink)
        return made


def job_rates(
    pods: Iterable[tuple[str, Quality]], in_one_domain: Collection[str] = (), joined: Collection[str] = ()
) -> list[JobRate]:
    """Workloads of several pods that have GPUs; pods come with the name of their workload. ``in_one_domain`` are the
    workloads in one NVLink domain, ``joined`` those of them whose pods hold a channel of a ComputeDomain."""
    by_workload: dict[str, list[Quality]] = {}
    for workload, found in pods:
        if found.member.gpus:
            by_workload.setdefault(workload, []).append(found)
    several = {name: found for name, found in by_workload.items() if len(found) > 1}
    return [_rate(name, found, name in in_one_domain, name in joined) for name, found in several.items()]


def _rate(workload: str, pods: list[Quality], one_domain: bool, joined: bool) -> JobRate:
    members = [one.member for one in pods]
    # GPUs of one NVLink domain are to each other as GPUs of one machine, wherever they are.
    together = [Member(tuple(gpu for member in members for gpu in member.gpus))]
    figures = tuple(_pair(together if joined else members, collective) for collective in SHOWN)
    over_nvlink = estimate(together) if one_domain and not joined else None
    return JobRate(workload, figures, all(one.certain for one in pods), over_nvlink)


def _pair(members: list[Member], collective: str) -> tuple[Figure, Figure]:
    return estimate(members, collective), estimate([near(member) for member in members], collective)


def sentence(expected: Figure, best: Figure) -> str:
    """For people: the figure, its range and what it assumes, or why there is none."""
    if not isinstance(expected, Estimate):
        return f"no bandwidth figure: {expected.reason}"
    of_best = share(expected, best)
    tail = f", {of_best:.0%} of the best" if of_best is not None else ""
    return (
        f"about {number(expected.gbytes)} GB/s {expected.collective} ({expected.algorithm}, {number(expected.low)} to "
        f"{number(expected.high)}; {LIMITS[expected.bound]}){tail}"
    )


LIMITS = {
    "network": "the cards set the limit",
    "inside": "the links between the GPUs of a pod set the limit",
    "staged": "no card is near enough for GPUDirect",
}


def number(gbytes: float) -> str:
    """Three digits are more than the model is worth; small figures keep one after the point."""
    return f"{gbytes:.0f}" if gbytes >= 100 else f"{gbytes:.1f}"
