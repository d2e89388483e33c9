"""Which pods of a job share rails. Rails may be isolated networks or routed to each other, and nothing a device
publishes tells which: pods on different rails are a note, not a failure.

NCCL uses every NIC of a pod and ignores subnets, so on isolated rails one common rail is not enough: connections on the
other rails hang. There, all pods of a job need the same rails, in the same order of PCI addresses. NICs without a rail
are not judged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dranet.advise.plan.planning import Plan
from dranet.advise.plan.quality import allocated_parts
from dranet.core.attributes import RAIL
from dranet.machines.machine import natural_sort_key


class PodRails(msgspec.Struct, frozen=True):
    """The rails of one pod's NICs, in the order of their PCI addresses."""

    pod: str
    node: str
    rails: tuple[str, ...]
    unknown: int = 0
    """NICs that have no rail."""

    def reaches(self, other: PodRails) -> bool:
        """Whether any two of their NICs are on one rail."""
        return not set(self.rails).isdisjoint(other.rails)

    def __str__(self) -> str:
        return f"{self.pod} has {', '.join(sorted(set(self.rails), key=natural_sort_key)) or 'none'}"


class JobRails(msgspec.Struct, frozen=True):
    """The rails of all pods of one workload that have NICs."""

    workload: str
    pods: tuple[PodRails, ...]

    @property
    def common(self) -> tuple[str, ...]:
        """The rails that every pod has."""
        shared = set.intersection(*(set(pod.rails) for pod in self.pods))
        return tuple(sorted(shared, key=natural_sort_key))

    @property
    def apart(self) -> tuple[PodRails, PodRails] | None:
        """The first two pods that cannot talk at all."""
        return _first(self.pods, lambda a, b: not a.reaches(b))

    @property
    def uneven(self) -> tuple[PodRails, PodRails] | None:
        """The first two pods whose rails are not the same, or not in the same order."""
        return _first(self.pods, lambda a, b: a.rails != b.rails)

    @property
    def unknown(self) -> bool:
        """Whether some NIC has no rail while others have one."""
        return any(pod.unknown for pod in self.pods)


def _first(pods: Sequence[PodRails], differs: Any) -> tuple[PodRails, PodRails] | None:
    return next(((a, b) for a, b in itertools.combinations(pods, 2) if differs(a, b)), None)


def job_rails(found: Plan) -> list[JobRails]:
    """Every workload of several pods with NICs, if the rail of some NIC is known."""
    jobs: dict[str, list[PodRails]] = {}
    for one in found.pods:
        _, nics = allocated_parts(found.machines[one.placement.node], one.placement.devices)
        rails = [nic.rail for nic in sorted(nics, key=lambda nic: nic.address)]
        if rails:
            known = tuple(rail for rail in rails if rail)
            pod = PodRails(one.pod.name, one.placement.node, known, len(rails) - len(known))
            jobs.setdefault(one.pod.job, []).append(pod)
    found_jobs = (JobRails(workload, tuple(pods)) for workload, pods in jobs.items() if len(pods) > 1)
    return [job for job in found_jobs if any(pod.rails for pod in job.pods)]


def rails_text(job: JobRails) -> str:
    """One line: what the pods share, and what to do where that is not enough."""
    if job.unknown:
        return f"{job.workload}: some NICs publish no {RAIL}, so it is not known whether its pods reach each other"
    if (pair := job.apart) is not None:
        return (
            f"{job.workload}: different rails; not proven isolated: {pair[0]}, {pair[1]}; where rails are isolated "
            f"networks, such pods cannot reach each other over their NICs; {_advice()}"
        )
    if (pair := job.uneven) is not None:
        shared = ", ".join(job.common) or "none"
        return (
            f"{job.workload}: rails that all pods share: {shared}, but {pair[0]} and {pair[1]}; {_advice(*job.common)}"
        )
    return f"{job.workload}: all pods on rails {', '.join(job.common)}{_crossing(job)}"


def _advice(*rails: str) -> str:
    wanted = f' == "{rails[0]}"' if len(rails) == 1 else f" in {list(rails)}".replace("'", '"') if rails else ""
    selector = f'the selector device.attributes["dra.net"].rail{wanted} forces it, ' if wanted else ""
    return f"{selector}dranet suggest --same-rails writes the claim"


def _crossing(job: JobRails) -> str:
    nodes = len({pod.node for pod in job.pods})
    if nodes % 2 and nodes > 1 and len(job.common) > 1:
        return f"; with an odd number of nodes ({nodes}) NCCL's rings cross rails once: set NCCL_CROSS_NIC=0"
    return ""


def rails_json(found: Plan) -> list[dict[str, Any]]:
    """The field ``rails`` of `dranet plan -o json`: one entry a job."""
    return [
        {
            "workload": job.workload,
            "common": list(job.common),
            "reachable": None if job.unknown or job.apart else True,
            "same": None if job.unknown else job.uneven is None,
            "pods": [{"pod": pod.pod, "node": pod.node, "rails": list(pod.rails)} for pod in job.pods],
            "text": rails_text(job),
        }
        for job in job_rails(found)
    ]


def rails_lines(found: Plan) -> Iterator[str]:
    """One line a job, for people."""
    return (rails_text(job) for job in job_rails(found))
