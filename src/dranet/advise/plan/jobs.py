"""The pods of one workload together: their bandwidth by collective, and the topology domains they are spread over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dranet.advise.plan.gang_placement import label_values, restrict_to
from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import Placement, Simulator
from dranet.advise.plan.quality import Figure, Quality, figure_json, share_of_best
from dranet.machines.bandwidth import Estimate, JobPod, estimate, perfectly_aligned, short_number
from dranet.machines.collectives import ALL_GATHER, ALL_REDUCE
from dranet.machines.topology_labels import Labels, TopologySpread, nvlink_domain, topology_levels, topology_spreads

SHOWN = (ALL_REDUCE, ALL_GATHER)
"""The two that differ most: a tree between two pods flatters the network in the first, never in the second."""


SIZES = (8 << 10, 8 << 20, 8 << 30)
"""Small, medium and large: 8 KiB, 8 MiB and 8 GiB."""


class JobRate(msgspec.Struct, frozen=True):
    """What one workload should reach."""

    workload: str
    figures: tuple[tuple[Figure, Figure], ...]
    """For every collective of `SHOWN`: expected, and at best."""
    members: tuple[JobPod, ...] = ()
    """Its pods, as the first figures count them."""
    certain: bool = True
    """False where a device plugin may hand out other GPUs: then this is the worst case."""
    over_nvlink: Figure | None = None
    """With a ComputeDomain, where pods share an NVLink domain and have none yet."""

    @property
    def main(self) -> tuple[Figure, Figure]:
        """The all_reduce, which people quote."""
        return self.figures[0]

    @property
    def by_size(self) -> list[tuple[int, float, float]]:
        """Bytes, seconds and GB/s of all_reduce messages of `SIZES`, each with its fastest algorithm."""
        found = [(size, self.at_size(size)) for size in SIZES]
        return [(size, one.seconds(size), one.at(size)) for size, one in found if isinstance(one, Estimate)]

    def at_size(self, size: int) -> Figure:
        """The all_reduce of messages of this many bytes."""
        return estimate(self.members, size=size)

    def to_json(self) -> dict[str, Any]:
        """As `dranet plan -o json` prints it."""
        expected, best = self.main
        others = {
            name: figure_json(*pair)
            for name, pair in zip(SHOWN[1:], self.figures[1:], strict=True)
            if isinstance(pair[0], Estimate)
        }
        made = {"workload": self.workload, "certain": self.certain, "busbw": figure_json(expected, best), **others}
        made["by_size"] = [
            {"bytes": size, "seconds": round(seconds, 7), "gbytes_per_second": round(rate, 2)}
            for size, seconds, rate in self.by_size
        ]
        if self.over_nvlink is not None:
            made["over_nvlink"] = figure_json(self.over_nvlink, self.over_nvlink)
        return made


class RatedPod(msgspec.Struct, frozen=True):
    """A pod of a workload, for its rate."""

    workload: str
    quality: Quality
    domain: str = ""
    """The NVLink domain of its node; empty where unknown."""
    channel: bool = False
    """Whether it holds a channel of a ComputeDomain, without which NVLink ends at its node."""


def job_rates(pods: Iterable[RatedPod]) -> list[JobRate]:
    """Workloads of several pods that have GPUs."""
    by_workload: dict[str, list[RatedPod]] = {}
    for one in pods:
        if one.quality.member.gpus:
            by_workload.setdefault(one.workload, []).append(one)
    return [_rate(name, found) for name, found in by_workload.items() if len(found) > 1]


def _rate(workload: str, pods: list[RatedPod]) -> JobRate:
    apart, joined = [one.quality.member for one in pods], _joined(pods)
    channels = all(one.channel for one in pods)
    figures = tuple(_pair(joined if channels else apart, collective) for collective in SHOWN)
    shared = len({one.domain for one in pods} - {""}) < sum(bool(one.domain) for one in pods)
    over_nvlink = estimate(joined) if shared and not channels else None
    members = tuple(joined if channels else apart)
    return JobRate(workload, figures, members, all(one.quality.certain for one in pods), over_nvlink)


def _joined(pods: list[RatedPod]) -> list[JobPod]:
    """The pods with their NVLink domains: GPUs of one domain are to each other as GPUs of one machine. Equal pods stay
    one object, which `estimate` counts."""
    made = {(id(one.quality.member), one.domain): replace(one.quality.member, domain=one.domain) for one in pods}
    return [made[id(one.quality.member), one.domain] for one in pods]


def _pair(members: list[JobPod], collective: str) -> tuple[Figure, Figure]:
    best = {id(member): perfectly_aligned(member) for member in members}
    return estimate(members, collective), estimate([best[id(member)] for member in members], collective)


def rate_text(expected: Figure, best: Figure) -> str:
    """For people: the figure, its range and what it assumes, or why there is none."""
    if not isinstance(expected, Estimate):
        limit = f" (at most {short_number(expected.at_most)} GB/s, the NICs' line rate)" if expected.at_most else ""
        return f"no bandwidth figure{limit}: {expected.reason}"
    of_best = share_of_best(expected, best)
    tail = f", {of_best:.0%} of the best" if of_best is not None else ""
    return (
        f"{expected.range_text} ({expected.collective}, {expected.ranks.total} GPUs, {expected.algorithm}; "
        f"{LIMIT_TEXTS[expected.bound]}){tail}"
    )


LIMIT_TEXTS = {
    "network": "the NICs are the limit",
    "inside": "the links between the GPUs of a pod are the limit",
    "staged": "no NIC is near enough for GPUDirect",
}


FigureOf = Callable[[Sequence[Placement]], Figure]
"""The all_reduce of placed pods."""


class _BetterPlace(msgspec.Struct, frozen=True):
    """A place that would hold the whole job."""

    label: str
    place: str
    figure: Figure
    """all_reduce there."""


class JobPlaces(msgspec.Struct, frozen=True):
    """One workload of several pods."""

    workload: str
    nodes: int
    spreads: tuple[TopologySpread, ...]
    domains: tuple[str, ...]
    """NVLink domains its nodes are in, as far as labels tell."""
    better: _BetterPlace | None = None
    domain_of: Mapping[str, str] = {}
    """By node, its NVLink domain where known."""

    def lines(self) -> list[str]:
        """For people."""
        made = [_crossing(one) for one in self.spreads]
        if self.domains:
            made.append(f"{len(self.domains)} NVLink domain{'s' * (len(self.domains) != 1)}: {', '.join(self.domains)}")
        if self.better:
            figure = self.better.figure
            rate = f", {figure.range_text} all_reduce" if isinstance(figure, Estimate) else ""
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
                **_better_json(self.better.figure),
            },
        }


def _better_json(figure: Figure) -> dict[str, float | None]:
    if not isinstance(figure, Estimate):
        return {"gbytes_per_second": None}
    return {name: round(value, 1) for name, value in _range(figure).items()}


def _range(found: Estimate) -> dict[str, float]:
    return {"gbytes_per_second": found.gbytes, "low": found.low, "high": found.high}


def job_places(workload: str, on: Sequence[str], where: Mapping[str, Labels]) -> JobPlaces:
    """Of the pods of one workload that found a node, by these nodes: one entry a pod."""
    nodes = [where.get(node, {}) for node in on]
    found = tuple(one for one in topology_spreads(nodes) if one.domains)
    domain_of = {node: domain for node in on if (domain := nvlink_domain(where.get(node, {}))) is not None}
    return JobPlaces(workload, len(set(on)), found, tuple(sorted(set(domain_of.values()))), domain_of=domain_of)


def better_place(
    simulator: Simulator, placed: Sequence[Placement], where: Mapping[str, Labels], rate: FigureOf
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
