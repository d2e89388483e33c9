"""A plan: the node and devices of each pod, the bandwidth to expect, and what stays free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from dranet.advise.manifests import COMPUTE_DOMAIN_DRIVER, Manifests, Skipped
from dranet.advise.plan.cluster import add_bare_nodes, allocated_devices, build_simulator
from dranet.advise.plan.considered import unconsidered_objects
from dranet.advise.plan.gang_placement import Answer, GangVerdict, place_gang
from dranet.advise.plan.gangs import Gang, gangs_of, with_group_claims
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.jobs import JobPlaces, JobRate, RatedPod, better_place, job_places, job_rates
from dranet.advise.plan.pending_pods import PendingPod, list_pending_pods
from dranet.advise.plan.placement import Placement, Refusal, Simulator
from dranet.advise.plan.quality import Figure, PlannedPod, placement_quality
from dranet.advise.plan.rollouts import Applied, applied_changes, place_rollout
from dranet.advise.plan.selectors import SelectorTester
from dranet.advise.plan.skipped import assumptions, not_considered, skipped_lines, skipped_objects
from dranet.advise.plan.unknowns import Unknowns
from dranet.core.errors import InvalidInput
from dranet.core.untyped import as_strings, get_path
from dranet.machines.bandwidth import Estimate, estimate
from dranet.machines.machine import Machine
from dranet.machines.topology_labels import labels_from_slices, nvlink_domain, topology_levels
from dranet.scheduler.allocation.allocator import ClusterDevices
from dranet.scheduler.allocation.shares import left_text


class Plan(msgspec.Struct, frozen=True):
    """The whole answer."""

    pods: tuple[PlannedPod, ...]
    unschedulable: tuple[Refusal, ...]
    free: dict[str, tuple[int, int]]
    """By node: free GPUs and NICs; empty where several templates were each tried alone."""
    machines: Mapping[str, Machine]
    """Every node that was considered."""
    exact: bool = True
    """False where this release looks at the pools or slices of a node in no defined order: one answer of several."""
    not_planned: tuple[Skipped, ...] = ()
    """Objects that have no part in the answer, and why."""
    assumed: tuple[Skipped, ...] = ()
    """What was assumed about workloads."""
    others: tuple[Placement, ...] = ()
    """Pods that ask for no device; they take room all the same."""
    not_considered: tuple[str, ...] = ()
    """What might change the answer and was not considered."""
    gangs: tuple[GangVerdict, ...] = ()
    """Pods that are wanted together, and what became of them."""
    places: Mapping[str, JobPlaces] = msgspec.field(default_factory=dict)
    """By workload of several pods, the blocks and NVLink domains it is in; only where nodes have labels of places."""
    left_of_shared: tuple[str, ...] = ()
    """What is left of devices that shares were taken of."""
    unknown: tuple[Refusal, ...] = ()
    """Pods whose placement the input does not decide, with what is missing."""
    applied: tuple[Applied, ...] = ()
    """For workloads with pods that run: what applying them does to these."""

    @property
    def placed_pods(self) -> list[PendingPod]:
        """Every pod that fits, those with devices first."""
        return [*(one.pod for one in self.pods), *(one.pod for one in self.others)]


def plan(manifests: Manifests, hardware: Hardware, kubernetes: tuple[int, int] = (1, 36)) -> Plan:
    """Place every pod of the manifests on the hardware, in order."""
    hardware = add_bare_nodes(manifests, hardware)
    if not hardware.machines:
        raise InvalidInput("no node has any ResourceSlice: name machines with --shape, --slices or --live")
    simulator = build_simulator(manifests, hardware, kubernetes)
    every = list_pending_pods(manifests, list(hardware.machines), SelectorTester(kubernetes))
    pods = [pod for pod in every if simulator.daemon_wanted(pod)]
    applied = applied_changes(manifests, pods)
    if not pods and not applied:
        raise InvalidInput(_nothing(manifests))
    unknowns = Unknowns(manifests, hardware, SelectorTester(kubernetes))
    unknown = tuple(Refusal(pod, why) for pod in pods if (why := unknowns.of_pod(pod)))
    undecided = {id(refusal.pod) for refusal in unknown}
    known = [pod for pod in pods if id(pod) not in undecided]
    for spec in manifests.pods:
        for name in spec.removed:
            simulator.evict(spec.namespace, name)
    planner = _Planner(manifests, hardware, simulator, kubernetes)
    answers = planner.place(with_group_claims(manifests, known))
    simulator = planner.simulator
    placed = [answer for answer in answers if isinstance(answer, Placement)]
    wanting = [one for one in placed if one.devices or one.pod.plugin_gpus]
    planned = tuple(PlannedPod(one, placement_quality(one, hardware.machines[one.node])) for one in wanting)
    refused = tuple(answer for answer in answers if isinstance(answer, Refusal))
    free = {name: _free(simulator, machine) for name, machine in hardware.machines.items()}
    shown = free if len(pods) < 2 or not pods[0].standalone else {}
    exact = simulator.cluster.rules.defined_order or not _several_slices(hardware)
    return Plan(
        planned,
        refused,
        shown,
        hardware.machines,
        exact,
        skipped_objects(manifests, pods),
        assumptions(manifests, pods),
        tuple(one for one in placed if not one.devices and not one.pod.plugin_gpus),
        _unconsidered(manifests, pods, planned, planner),
        tuple(planner.gangs),
        {one.workload: one for one in planner.places},
        tuple(_left_of_shared(simulator.cluster)),
        unknown,
        applied,
    )


class _Planner:
    """A cluster while a plan fills it.

    Whether a job of several pods would fit in one topology domain is tried after its last pod: everything since its
    first pod is rolled back, tried elsewhere, and placed again, which gives the same answers.
    """

    def __init__(
        self, manifests: Manifests, hardware: Hardware, simulator: Simulator, kubernetes: tuple[int, int]
    ) -> None:
        self.simulator = simulator
        self.gangs: list[GangVerdict] = []
        self.places: list[JobPlaces] = []
        self._manifests, self._hardware, self._kubernetes = manifests, hardware, kubernetes
        published = labels_from_slices(hardware.slices)
        nodes = {
            obj.name: as_strings(get_path(obj.data, "metadata", "labels")) for obj in manifests.by_kind.get("Node", ())
        }
        self.labels = {name: {**published.get(name, {}), **nodes.get(name, {})} for name in hardware.machines}
        known = self.labels.values()
        self._has_places = bool(topology_levels(known)) or any(nvlink_domain(labels) for labels in known)

    def place(self, pods: Sequence[PendingPod]) -> list[Answer]:
        """Place every pod, in order; a gang takes the turn of its first pod."""
        answers: list[Answer] = []
        for workload in _workloads(pods, gangs_of(self._manifests, pods)):
            if workload[0].pods[0].standalone and answers:
                self.simulator = build_simulator(self._manifests, self._hardware, self._kubernetes)
            answers += self._workload(workload)
        return answers

    def _workload(self, gangs: Sequence[Gang]) -> list[Answer]:
        """Gangs and single pods of one workload."""
        start = self.simulator.checkpoint()
        answers, verdicts = self._all(gangs)
        self.gangs += verdicts
        jobs: dict[str, list[Placement]] = {}
        for one in answers:
            if isinstance(one, Placement) and (one.devices or one.pod.plugin_gpus):
                jobs.setdefault(one.pod.job, []).append(one)
        for job, placed in jobs.items() if self._has_places else ():
            if len(placed) > 1:
                found = job_places(job, [one.node for one in placed], self.labels)
                self.places.append(self._with_better(found, placed, gangs, start))
        return answers

    def _with_better(
        self, found: JobPlaces, placed: Sequence[Placement], gangs: Sequence[Gang], start: int
    ) -> JobPlaces:
        if all(one.domains < 2 for one in found.spreads):
            return found
        self.simulator.rollback(start)
        better = better_place(self.simulator, placed, self.labels, self._figure)
        self._all(gangs)
        return replace(found, better=better)

    def _all(self, gangs: Sequence[Gang]) -> tuple[list[Answer], list[GangVerdict]]:
        answers: list[Answer] = []
        verdicts: list[GangVerdict] = []
        stages: dict[str, list[Answer]] = {}
        rolled = [gang.pods[0] for gang in gangs if not gang.name and gang.pods[0].rollout is not None]
        if rolled:
            answers += place_rollout(self.simulator, rolled)
        for gang in gangs:
            if not gang.name and gang.pods[0].rollout is not None:
                continue
            found: Sequence[Answer]
            if why := self._wait_for_stages(gang.pods[0], stages):
                found = [Refusal(pod, why) for pod in gang.pods]
            elif gang.name:
                found, verdict = place_gang(self.simulator, gang, self.labels, self._rate)
                verdicts.append(verdict)
            else:
                found = [self._place(gang.pods[0])]
            for one in found:
                stages.setdefault(one.pod.stage, []).append(one)
            answers += found
        single = {id(gang.pods[0]) for gang in gangs if not gang.name and not gang.pods[0].after}
        return [self._try_again(one) if id(one.pod) in single else one for one in answers], verdicts

    def _try_again(self, answer: Answer) -> Answer:
        """A pod waits in the queue for the pods that it has an affinity to, which may be created after it."""
        affinity = get_path(
            answer.pod.spec, "affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
        )
        return self.simulator.place(answer.pod) if isinstance(answer, Refusal) and affinity else answer

    def _place(self, pod: PendingPod) -> Answer:
        for name in pod.replaces:
            self.simulator.evict(pod.namespace, name)
        return self.simulator.place(pod)

    def _wait_for_stages(self, pod: PendingPod, stages: Mapping[str, list[Answer]]) -> str:
        """Why the pod is not created yet. Pods of a stage that has to be complete have left their nodes."""
        for stage, status in pod.after:
            if any(isinstance(one, Refusal) for one in stages.get(stage, ())):
                return f"not created: {pod.workload} waits until {stage} is {status.lower()}"
        for stage, status in pod.after:
            for one in stages.get(stage, ()) if status == "Complete" else ():
                self.simulator.evict(one.pod.namespace, one.pod.name)
        return ""

    def _rate(self, placed: Sequence[Placement]) -> float:
        found = self._figure(placed)
        return found.gbytes if isinstance(found, Estimate) else 0.0

    def _figure(self, placed: Sequence[Placement]) -> Figure:
        members = [placement_quality(one, self._hardware.machines[one.node]).member for one in placed]
        return estimate([member for member in members if member.gpus])


def _workloads(pods: Sequence[PendingPod], gangs: Sequence[Gang]) -> Iterator[list[Gang]]:
    """Pods in order, those of one workload that follow each other together. A pod alone is a gang without a name."""
    of_pod = {id(pod): gang for gang in gangs for pod in gang.pods}
    done: set[int] = set()
    together: list[Gang] = []
    for pod in pods:
        gang = of_pod.get(id(pod)) or Gang("", ((pod,),), 1)
        if gang.name and id(gang) in done:
            continue
        done.add(id(gang))
        if together and (pod.standalone or _workload_key(together[0].pods[0]) != _workload_key(pod)):
            yield together
            together = []
        together.append(gang)
    if together:
        yield together


def _workload_key(pod: PendingPod) -> tuple[str, str]:
    return pod.namespace, pod.workload


def _unconsidered(
    manifests: Manifests, pods: Sequence[PendingPod], planned: Iterable[PlannedPod], planner: _Planner
) -> tuple[str, ...]:
    objects = unconsidered_objects(manifests, pods, planner.simulator)
    return tuple(
        dict.fromkeys([*not_considered(pods, planner.simulator), *objects, *_nvlink_between(planned, planner)])
    )


def _nvlink_between(planned: Iterable[PlannedPod], planner: _Planner) -> Iterator[str]:
    """Labels tell how far NVLink reaches, and machines of a shape have none."""
    if not any(map(nvlink_domain, planner.labels.values())) and any(map(_has_channel, planned)):
        yield (
            "NVLink between nodes: no node has the label nvidia.com/gpu.clique (its NVLink domain), so the "
            "bandwidth is that of the NICs"
        )


def _several_slices(hardware: Hardware) -> bool:
    """Whether any node sees more than one slice."""
    nodes = [raw["spec"].get("nodeName") for raw in hardware.slices]
    return len(nodes) > 1 and (None in nodes or len(set(nodes)) < len(nodes))


def _nothing(manifests: Manifests) -> str:
    """Why there is nothing to plan."""
    held = [claim.owner.name for claim in manifests.claims if allocated_devices(Manifests((claim.owner,)))]
    if held or any(spec.placed for spec in manifests.pods):
        return "nothing to plan: all pods and claims are placed already; `dranet explain` shows why"
    files = ", ".join(dict.fromkeys(obj.file for obj in manifests.objects))
    where = f" in {files}" if files else ""
    left = "; ".join(line.strip() for line in skipped_lines(skipped_objects(manifests, [])))
    return f"nothing to plan{where}: {left or 'name files with pods or claims with -f'}"


def _free(simulator: Simulator, machine: Machine) -> tuple[int, int]:
    node = simulator.nodes[machine.node]
    used = sum(node.gpus_in_use.values())
    gpus = sum(gpu.id not in node.taken for gpu in machine.gpus) - used
    return max(gpus, 0), sum(nic.id not in node.taken for nic in machine.nics)


def _left_of_shared(cluster: ClusterDevices) -> Iterator[str]:
    for (driver, pool, name), consumed in sorted(cluster.state.consumed.items()):
        device = cluster.device((driver, pool, name))
        for capacity, taken in sorted(consumed.items()):
            total = device.capacity[capacity].value if device and capacity in device.capacity else None
            if total is not None and 0 < taken < total.value:
                yield f"{left_text(capacity, taken, total)} of {driver} {name} in {pool}"


def rated_jobs(found: Plan) -> list[JobRate]:
    """What workloads of several pods should reach."""
    return job_rates(_rated_pod(found, one) for one in found.pods)


def _rated_pod(found: Plan, one: PlannedPod) -> RatedPod:
    places = found.places.get(one.pod.job)
    domain = places.domain_of.get(one.placement.node, "") if places else ""
    return RatedPod(one.pod.job, one.quality, domain, _has_channel(one))


def _has_channel(one: PlannedPod) -> bool:
    """Whether the pod holds a ComputeDomain channel, which allows NVLink to GPUs of other nodes."""
    return any(result.driver == COMPUTE_DOMAIN_DRIVER for group in one.placement.devices for result in group)
