"""Where the pods of a job stand: blocks crossed, NVLink domains, and whether one place could hold them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dranet.predict.jobs.gang_placing import Rate, places, within
from dranet.predict.placing import Placement, Scheduler
from dranet.predict.pods_to_place import Pod
from dranet.topology.blocks import Crossing, Labels, crossings, levels, nvlink_domain


class Better(msgspec.Struct, frozen=True):
    """A place that would hold the whole job."""

    label: str
    place: str
    gbytes: float
    """all_reduce there; 0 where no figure exists."""


class JobPlaces(msgspec.Struct, frozen=True):
    """One workload of several pods."""

    workload: str
    nodes: int
    crossings: tuple[Crossing, ...]
    domains: tuple[str, ...]
    """NVLink domains its nodes are in, as far as labels tell."""
    better: Better | None = None
    one_domain: bool = False
    """Whether all its nodes are known to be in one NVLink domain."""

    def lines(self) -> list[str]:
        """For people."""
        made = [_crossing(one) for one in self.crossings]
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
            "levels": [{"label": one.label, "pods": dict(one.pods), "unknown": one.unknown} for one in self.crossings],
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
    found = tuple(one for one in crossings(nodes) if one.places)
    said = [nvlink_domain(labels) for labels in nodes]
    domains = tuple(sorted({domain for domain in said if domain is not None}))
    one_domain = len(domains) == 1 and None not in said
    return JobPlaces(workload, len(set(on)), found, domains, one_domain=one_domain)


def better_place(
    scheduler: Scheduler, placed: Sequence[Placement], where: Mapping[str, Labels], rate: Rate
) -> Better | None:
    """The nearest kind of place the job is spread over now and would fit into. The scheduler is as before the job."""
    pods = [one.pod for one in placed]
    crossed = {one.label for one in crossings(where.get(one.node, {}) for one in placed) if one.places > 1}
    for label in reversed(levels(where.values())):
        if label in crossed:
            for place in places(where, label):
                fitting = _all_there(scheduler, pods, label, place)
                if fitting:
                    return Better(label, place, rate(fitting))
    return None


def _all_there(scheduler: Scheduler, pods: Sequence[Pod], label: str, place: str) -> list[Placement]:
    """The pods in one place, none of which stays; empty as soon as one does not fit."""
    mark, fitting = scheduler.mark(), list[Placement]()
    for pod in pods:
        answer = scheduler.place(within(pod, label, place))
        if not isinstance(answer, Placement):
            fitting = []
            break
        fitting.append(answer)
    scheduler.undo(mark)
    return fitting


def _crossing(one: Crossing) -> str:
    pods = ", ".join(f"{place}: {count}" for place, count in sorted(one.pods.items())[:6])
    more = f" and {one.places - 6} more" if one.places > 6 else ""
    unknown = f"; {one.unknown} pods on nodes that do not say" if one.unknown else ""
    spread = "in one" if one.places == 1 else f"across {one.places}"
    return f"{spread} {one.label} ({pods}{more}{unknown})"
