"""A whole job as it runs now: its pods over blocks and rails, the bandwidth to expect, and what was measured.

The figures and sentences are those of ``dranet plan``, asked about pods that have their devices already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from dranet.model.errors import NotFound
from dranet.predict.jobs.places import JobPlaces, job_places
from dranet.predict.jobs.rails import JobRails, PodRails, rails_text
from dranet.predict.jobs.rates import job_rates, sentence
from dranet.predict.quality import Quality
from dranet.topology.machine import Part, natural
from dranet.web.cluster import PODS, ClusterObjects, Holder, Object, results
from dranet.web.jobs import job_of, measured_of
from dranet.web.views import View, block_of, node_labels, node_of, quality_of


class Member(NamedTuple):
    """One pod of the job."""

    name: str
    node: str
    block: str
    quality: Quality
    cards: list[Part]
    measured: float | None


def job_details(cluster: ClusterObjects, key: str) -> View:
    """``namespace/Kind/name``: everything the page shows of it."""
    namespace, _, job = key.partition("/")
    pods = [pod for pod in cluster.objects(PODS) if (pod["metadata"].get("namespace") or "") == namespace]
    members = [_member(cluster, pod) for pod in pods if job_of(pod) == job]
    if not members or not job:
        raise NotFound(f"no pod of {key!r} asks for devices here")
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
        "expected": _expected(job, placed, where),
        "measured": max(measured, default=None),
    }


def _member(cluster: ClusterObjects, pod: Object) -> Member:
    namespace, name = pod["metadata"].get("namespace") or "", pod["metadata"]["name"]
    claims = cluster.claims_of(Holder(PODS, namespace, name))
    node = node_of(cluster, pod, claims)
    machine = cluster.machine(node)
    held = {(result["driver"], result["device"]) for claim in claims for result in results(claim)}
    cards = sorted((nic for nic in machine.nics if nic.id in held), key=lambda nic: nic.address)
    found = quality_of(machine, pod, claims)
    return Member(name, node, block_of(cluster, node), found, cards, measured_of(pod))


def _rail_names(members: Iterable[Member]) -> list[str]:
    return sorted({card.rail or "" for member in members for card in member.cards}, key=natural)


def _blocks(members: list[Member]) -> list[View]:
    """By block its pods, machines, and cards on every rail; an empty rail are the cards that publish none."""
    made = []
    for block in sorted({member.block for member in members}, key=natural):
        here = [member for member in members if member.block == block]
        rails = Counter(card.rail or "" for member in here for card in member.cards)
        made.append({"block": block, "pods": len(here), "nodes": len({one.node for one in here}), "rails": dict(rails)})
    return made


def _rails(job: str, members: list[Member]) -> str:
    pods = []
    for member in members:
        known = tuple(card.rail for card in member.cards if card.rail)
        if member.cards:
            pods.append(PodRails(member.name, member.node, known, len(member.cards) - len(known)))
    if len(pods) < 2 or not any(pod.rails for pod in pods):
        return ""
    return rails_text(JobRails(job, tuple(pods)))


def _expected(job: str, members: list[Member], where: JobPlaces) -> str:
    """Whether pods hold a channel of a ComputeDomain is not looked at: figures are those of the cards."""
    rates = job_rates(((job, member.quality) for member in members), {job} if where.one_domain else ())
    return sentence(*rates[0].main) if rates else "no figure: a job needs two pods with GPUs that claims or limits name"
