"""A running job: its pods by block and rail, the expected and the measured bandwidth.

The figures and sentences are those of ``dranet plan``, for pods that already have devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from dranet.advise.plan.jobs import RatedPod, job_places, job_rates, rate_text
from dranet.advise.plan.quality import Quality
from dranet.advise.plan.rails import JobRails, PodRails, rails_text
from dranet.core.errors import NotFound
from dranet.machines.machine import MachineDevice, natural_sort_key
from dranet.web.cluster import PODS, ClusterObjects, Holder, Object, results
from dranet.web.jobs import job_of, measured_of
from dranet.web.views import View, block_of, node_labels, node_of, quality_of


class Member(NamedTuple):
    """One pod of the job."""

    name: str
    node: str
    block: str
    quality: Quality
    nics: list[MachineDevice]
    measured: float | None


def job_details(cluster: ClusterObjects, key: str) -> View:
    """The details of the job ``namespace/Kind/name``."""
    namespace, _, job = key.partition("/")
    pods = [pod for pod in cluster.objects(PODS) if (pod["metadata"].get("namespace") or "") == namespace]
    members = [_member(cluster, pod) for pod in pods if job_of(pod) == job]
    if not members or not job:
        raise NotFound(f"no pod of job {key!r} requests devices")
    placed = [member for member in members if member.node]
    labels = {member.node: node_labels(cluster, member.node) for member in placed}
    where = job_places(job, [member.node for member in placed], labels)
    measured = [member.measured for member in members if member.measured is not None]
    return {
        "pods": len(members),
        "waiting": len(members) - len(placed),
        "rails": _rail_names(placed),
        "blocks": _blocks(placed),
        "places": where.lines() if len(placed) > 1 else [],
        "rails_text": _rails(job, placed),
        "expected": _expected(job, placed),
        "measured": max(measured, default=None),
    }


def _member(cluster: ClusterObjects, pod: Object) -> Member:
    namespace, name = pod["metadata"].get("namespace") or "", pod["metadata"]["name"]
    claims = cluster.claims_of(Holder(PODS, namespace, name))
    node = node_of(cluster, pod, claims)
    machine = cluster.machine(node)
    held = {(result["driver"], result["device"]) for claim in claims for result in results(claim)}
    nics = sorted((nic for nic in machine.nics if nic.id in held), key=lambda nic: nic.address)
    found = quality_of(machine, pod, claims)
    return Member(name, node, block_of(cluster, node), found, nics, measured_of(pod))


def _rail_names(members: Iterable[Member]) -> list[str]:
    return sorted({nic.rail or "" for member in members for nic in member.nics}, key=natural_sort_key)


def _blocks(members: list[Member]) -> list[View]:
    """The pods, machines and NICs by rail of each block; NICs without a rail have an empty one."""
    made = []
    for block in sorted({member.block for member in members}, key=natural_sort_key):
        here = [member for member in members if member.block == block]
        rails = Counter(nic.rail or "" for member in here for nic in member.nics)
        made.append({"block": block, "pods": len(here), "nodes": len({one.node for one in here}), "rails": dict(rails)})
    return made


def _rails(job: str, members: list[Member]) -> str:
    pods = []
    for member in members:
        known = tuple(nic.rail for nic in member.nics if nic.rail)
        if member.nics:
            pods.append(PodRails(member.name, member.node, known, len(member.nics) - len(known)))
    if len(pods) < 2 or not any(pod.rails for pod in pods):
        return ""
    return rails_text(JobRails(job, tuple(pods)))


def _expected(job: str, members: list[Member]) -> str:
    """The figures are those of the NICs; channels of a ComputeDomain are not considered."""
    rates = job_rates(RatedPod(job, member.quality) for member in members)
    return rate_text(*rates[0].main) if rates else "no figure: a job needs two pods with GPUs from claims or limits"
