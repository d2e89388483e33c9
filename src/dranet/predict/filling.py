"""Pods of a plan onto nodes, in order: gangs as a whole, the others one by one, and where each job ends up.

Whether a job of several pods would fit in one block is tried when its last pod is placed: everything since its first
pod is taken back, tried elsewhere, and placed again as before, which gives the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from dranet.manifests.claim_views import World
from dranet.model.untyped import at, texts
from dranet.predict.cluster_now import scheduler_of
from dranet.predict.hardware import Hardware
from dranet.predict.jobs.gang_placing import Answer, GangVerdict, place_gang
from dranet.predict.jobs.gangs import Gang, gangs_of
from dranet.predict.jobs.places import JobPlaces, better_place, job_places
from dranet.predict.placement_quality import rate
from dranet.predict.placing import Placement, Scheduler
from dranet.predict.pods_to_place import Pod
from dranet.topology.bandwidth import Estimate, estimate
from dranet.topology.blocks import labels_of_slices, levels, nvlink_domain


class Filling:
    """A cluster while a plan fills it."""

    def __init__(self, world: World, hardware: Hardware, scheduler: Scheduler, kubernetes: tuple[int, int]) -> None:
        self.scheduler = scheduler
        self.gangs: list[GangVerdict] = []
        self.places: list[JobPlaces] = []
        self._world, self._hardware, self._kubernetes = world, hardware, kubernetes
        said = labels_of_slices(hardware.slices)
        nodes = {obj.name: texts(at(obj.data, "metadata", "labels")) for obj in world.by_kind.get("Node", ())}
        self.labels = {name: {**said.get(name, {}), **nodes.get(name, {})} for name in hardware.machines}
        known = self.labels.values()
        self._has_places = bool(levels(known)) or any(nvlink_domain(labels) for labels in known)

    def place(self, pods: Sequence[Pod]) -> list[Answer]:
        """Every pod, in order; a gang stands where its first pod does."""
        answers: list[Answer] = []
        for workload in _workloads(pods, gangs_of(self._world, pods)):
            if workload[0].pods[0].alone and answers:
                self.scheduler = scheduler_of(self._world, self._hardware, self._kubernetes)
            answers += self._workload(workload)
        return answers

    def _workload(self, gangs: Sequence[Gang]) -> list[Answer]:
        """Gangs and single pods of one workload."""
        start = self.scheduler.mark()
        answers, verdicts = self._all(gangs)
        self.gangs += verdicts
        placed = [one for one in answers if isinstance(one, Placement) and (one.devices or one.pod.plugin_gpus)]
        if self._has_places and len(placed) > 1:
            found = job_places(placed[0].pod.workload, [one.node for one in placed], self.labels)
            self.places.append(self._with_better(found, placed, gangs, start))
        return answers

    def _with_better(
        self, found: JobPlaces, placed: Sequence[Placement], gangs: Sequence[Gang], start: int
    ) -> JobPlaces:
        if all(one.places < 2 for one in found.crossings):
            return found
        self.scheduler.undo(start)
        better = better_place(self.scheduler, placed, self.labels, self._rate)
        self._all(gangs)
        return replace(found, better=better)

    def _all(self, gangs: Sequence[Gang]) -> tuple[list[Answer], list[GangVerdict]]:
        answers: list[Answer] = []
        verdicts: list[GangVerdict] = []
        for gang in gangs:
            if gang.name:
                found, verdict = place_gang(self.scheduler, gang, self.labels, self._rate)
                answers += found
                verdicts.append(verdict)
            else:
                answers.append(self.scheduler.place(gang.pods[0]))
        return answers, verdicts

    def _rate(self, placed: Sequence[Placement]) -> float:
        members = [rate(one, self._hardware.machines[one.node]).member for one in placed]
        found = estimate([member for member in members if member.gpus]) if len(members) > 1 else None
        return found.gbytes if isinstance(found, Estimate) else 0.0


def _workloads(pods: Sequence[Pod], gangs: Sequence[Gang]) -> Iterator[list[Gang]]:
    """Pods in order, those of one workload that follow each other together. A pod alone is a gang without a name."""
    of_pod = {id(pod): gang for gang in gangs for pod in gang.pods}
    done: set[int] = set()
    together: list[Gang] = []
    for pod in pods:
        gang = of_pod.get(id(pod)) or Gang("", ((pod,),), 1)
        if gang.name and id(gang) in done:
            continue
        done.add(id(gang))
        if together and (pod.alone or together[0].pods[0].workload != pod.workload):
            yield together
            together = []
        together.append(gang)
    if together:
        yield together
