"""The pods of one workload together: their bandwidth by collective, and the topology domains they are spread over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dranet.advise.plan.gang_placement import Rate, label_values, restrict_to
from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import Placement, Simulator
from dranet.advise.plan.quality import Figure, Quality, figure_json, share_of_best
from dranet.machines.bandwidth import Estimate, JobPod, estimate, perfectly_aligned
from dranet.machines.collectives import ALL_GATHER, ALL_REDUCE
from dranet.machines.topology_labels import Labels, TopologySpread, nvlink_domain, topology_levels, topology_spreads

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
    together = [JobPod(tuple(gpu for member in members for gpu in member.gpus))]
    figures = tuple(_pair(together if joined else members, collective) for collective in SHOWN)
    over_nvlink = estimate(together) if one_domain and not joined else None
    return JobRate(workload, figures, all(one.certain for one in pods), over_nvlink)


def _pair(members: list[JobPod], collective: str) -> tuple[Figure, Figure]:
    return estimate(members, collective), estimate([perfectly_aligned(member) for member in members], collective)


def rate_text(expected: Figure, best: Figure) -> str:
    """For people: the figure, its range and what it assumes, or why there is none."""
    if not isinstance(expected, Estimate):
        return f"no bandwidth figure: {expected.reason}"
    of_best = share_of_best(expected, best)
    tail = f", {of_best:.0%} of the best" if of_best is not None else ""
    return (
        f"about {number(expected.gbytes)} GB/s {expected.collective} ({expected.algorithm}, {number(expected.low)} to "
        f"{number(expected.high)}; {LIMIT_TEXTS[expected.bound]}){tail}"
    )


LIMIT_TEXTS = {
    "network": "the NICs are the limit",
    "inside": "the links between the GPUs of a pod are the limit",
    "staged": "no NIC is near enough for GPUDirect",
}


def number(gbytes: float) -> str:
    """Three digits are more than the model is worth; small figures keep one after the point."""
    return f"{gbytes:.0f}" if gbytes >= 100 else f"{gbytes:.1f}"


class _BetterPlace(msgspec.Struct, frozen=True):
    """A place that would hold the whole job."""

    label: str
    place: str
    gbytes: float
    """all_reduce there; 0 where no figure exists."""


class JobPlaces(msgspec.Struct, frozen=True):
    """One workload of several pods."""

    workload: str
    nodes: int
    spreads: tuple[TopologySpread, ...]
    domains: tuple[str, ...]
    """NVLink domains its nodes are in, as far as labels tell."""
    better: _BetterPlace | None = None
    one_domain: bool = False
    """Whether all its nodes are known to be in one NVLink domain."""

    def lines(self) -> list[str]:
        """For people."""
        made = [_crossing(one) for one in self.spreads]
        if self.domains:
            made.append(f"{len(self.domains)} NVLink domain{'s' * (len(self.domains) != 1)}: {', '.join(self.domains)}")
        if self.better:
            rate = f", about {self.better.gbytes:.0f} GB/s all_reduce" if self.better.gbytes else ""
            made.append(f"all its pods would fit in one {self.better.label}, {self.better.place}{rate}")
        return made

    def to_json(self) -> dict[str, Any]:
        """As `dranet plan -o json` prints it."""
        return {
            "nodes": self.nodes,
            "levels": [{"label": one.label, "pods": dict(one.pods), "unknown": one.unknown} for one in self.spreads],
            "nvlink_domains": list(self.domains),
            "better": None
            if self.better is None
            else {
                "label": self.better.label,
                "place": self.better.place,
                "gbytes_per_second": round(self.better.gbytes, 1) or None,
            },
        }


def job_places(workload: str, on: Sequence[str], where: Mapping[str, Labels]) -> JobPlaces:
    """Of the pods of one workload that found a node, by these nodes: one entry a pod."""
    nodes = [where.get(node, {}) for node in on]
    found = tuple(one for one in topology_spreads(nodes) if one.domains)
    found_domains = [nvlink_domain(labels) for labels in nodes]
    domains = tuple(sorted({domain for domain in found_domains if domain is not None}))
    one_domain = len(domains) == 1 and None not in found_domains
    return JobPlaces(workload, len(set(on)), found, domains, one_domain=one_domain)


def better_place(
    simulator: Simulator, placed: Sequence[Placement], where: Mapping[str, Labels], rate: Rate
) -> _BetterPlace | None:
    """The nearest kind of place the job is spread over now and would fit into. The scheduler is as before the job."""
    pods = [one.pod for one in placed]
    crossed = {one.label for one in topology_spreads(where.get(one.node, {}) for one in placed) if one.domains > 1}
    for label in reversed(topology_levels(where.values())):
        if label in crossed:
            for place in label_values(where, label):
                fitting = _all_there(simulator, pods, label, place)
                if fitting:
                    return _BetterPlace(label, place, rate(fitting))
    return None


def _all_there(simulator: Simulator, pods: Sequence[PendingPod], label: str, place: str) -> list[Placement]:
    """The pods in one place, none of which stays; empty as soon as one does not fit."""
    mark, fitting = simulator.checkpoint(), list[Placement]()
    for pod in pods:
        answer = simulator.place(restrict_to(pod, label, place))
        if not isinstance(answer, Placement):
            fitting = []
            break
        fitting.append(answer)
    simulator.rollback(mark)
    return fitting


def _crossing(one: TopologySpread) -> str:
    pods = ", ".join(f"{place}: {count}" for place, count in sorted(one.pods.items())[:6])
    more = f" and {one.domains - 6} more" if one.domains > 6 else ""
    unknown = f"; {one.unknown} pods on nodes without the label" if one.unknown else ""
    spread = "in one" if one.domains == 1 else f"across {one.domains}"
    return f"{spread} {one.label} ({pods}{more}{unknown})"
