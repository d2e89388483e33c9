"""A plan: which pod lands where, with which devices, how good that is, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from dranet.allocation.allocator import ClusterDevices
from dranet.allocation.shares import left_text
from dranet.manifests.claim_views import World
from dranet.manifests.workload_kinds import compute_domain
from dranet.manifests.workloads import LeftOut
from dranet.model.errors import InvalidInput
from dranet.predict.cluster_now import allocated_results, scheduler_of, with_nodes
from dranet.predict.filling import Filling
from dranet.predict.hardware import Hardware
from dranet.predict.jobs.gang_placing import GangVerdict
from dranet.predict.jobs.gangs import with_group_claims
from dranet.predict.jobs.places import JobPlaces
from dranet.predict.jobs.rates import JobRate, job_rates
from dranet.predict.matching import Tester
from dranet.predict.not_planned import assumed, left_out_json, left_out_lines, not_considered, not_planned
from dranet.predict.placement_quality import rate
from dranet.predict.placing import Placement, Refusal, Result, Scheduler
from dranet.predict.pods_to_place import Pod, pods_to_place
from dranet.predict.quality import Quality
from dranet.topology.blocks import nvlink_domain
from dranet.topology.machine import Machine

SECONDS_PER_STEP = 10e-6
FILTER_TIMEOUT = 10.0
"""kube-scheduler gives up on a node after this many seconds; a step takes it about ten microseconds."""


class PlannedPod(msgspec.Struct, frozen=True):
    """A placed pod and how good its place is."""

    placement: Placement
    quality: Quality

    @property
    def pod(self) -> Pod:
        """The pod itself."""
        return self.placement.pod

    @property
    def timeout_risk(self) -> str:
        """Whether the scheduler may run out of time on such a search: none, possible or likely."""
        return timeout_risk(self.placement.steps)


class Plan(msgspec.Struct, frozen=True):
    """The whole answer."""

    pods: tuple[PlannedPod, ...]
    unschedulable: tuple[Refusal, ...]
    free: dict[str, tuple[int, int]]
    """By node: GPUs and cards that nobody holds; empty where several templates were each tried alone."""
    machines: Mapping[str, Machine]
    """Every node that was considered."""
    exact: bool = True
    """False where this release looks at the pools or slices of a node in no defined order: one answer of several."""
    not_planned: tuple[LeftOut, ...] = ()
    """Objects that have no part in the answer, and why."""
    assumed: tuple[LeftOut, ...] = ()
    """What was taken for granted about workloads."""
    others: tuple[Placement, ...] = ()
    """Pods that ask for no device; they take room all the same."""
    not_considered: tuple[str, ...] = ()
    """What might change the answer and was not looked at."""
    gangs: tuple[GangVerdict, ...] = ()
    """Pods that are wanted together, and what became of them."""
    places: Mapping[str, JobPlaces] = msgspec.field(default_factory=dict)
    """By workload of several pods, the blocks and NVLink domains it is in; only where nodes have labels of places."""
    left_of_shared: tuple[str, ...] = ()
    """What is left of devices that shares were taken of."""


def timeout_risk(steps: int) -> str:
    """From the number of search steps."""
    seconds = steps * SECONDS_PER_STEP
    return "likely" if seconds >= FILTER_TIMEOUT else "possible" if seconds >= FILTER_TIMEOUT / 10 else "none"


def plan(world: World, hardware: Hardware, kubernetes: tuple[int, int] = (1, 36)) -> Plan:
    """Place every pod of the world on the hardware, in order."""
    hardware = with_nodes(world, hardware)
    if not hardware.machines:
        raise InvalidInput("no node has any ResourceSlice: name machines with --shape, --slices or --live")
    scheduler = scheduler_of(world, hardware, kubernetes)
    every = pods_to_place(world, list(hardware.machines), Tester(kubernetes))
    pods = [pod for pod in every if scheduler.runs_there(pod)]
    if not pods:
        raise InvalidInput(_nothing(world))
    filled = Filling(world, hardware, scheduler, kubernetes)
    answers = filled.place(with_group_claims(world, pods))
    scheduler = filled.scheduler
    placed = [answer for answer in answers if isinstance(answer, Placement)]
    wanting = [one for one in placed if one.devices or one.pod.plugin_gpus]
    planned = tuple(PlannedPod(one, rate(one, hardware.machines[one.node])) for one in wanting)
    refused = tuple(answer for answer in answers if isinstance(answer, Refusal))
    free = {name: _free(scheduler, machine) for name, machine in hardware.machines.items()}
    shown = free if len(pods) == 1 or not pods[0].alone else {}
    exact = scheduler.cluster.rules.defined_order or not _several_slices(hardware)
    return Plan(
        planned,
        refused,
        shown,
        hardware.machines,
        exact,
        not_planned(world, pods),
        assumed(world, pods),
        tuple(one for one in placed if not one.devices and not one.pod.plugin_gpus),
        (*not_considered(pods, scheduler), *_nvlink_between(planned, filled)),
        tuple(filled.gangs),
        {one.workload: one for one in filled.places},
        tuple(_left_of_shared(scheduler.cluster)),
    )


def _nvlink_between(planned: Iterable[PlannedPod], filled: Filling) -> Iterator[str]:
    """Labels tell how far NVLink reaches, and machines of a shape have none."""
    if not any(map(nvlink_domain, filled.labels.values())) and any(map(_has_channel, planned)):
        yield (
            "NVLink between nodes: no node says which NVLink domain it is in (label nvidia.com/gpu.clique), so "
            "bandwidth is that of the cards"
        )


def _several_slices(hardware: Hardware) -> bool:
    """Whether any node sees more than one slice."""
    nodes = [raw["spec"].get("nodeName") for raw in hardware.slices]
    return len(nodes) > 1 and (None in nodes or len(set(nodes)) < len(nodes))


def _nothing(world: World) -> str:
    """Why there is nothing to plan."""
    held = [claim.owner.name for claim in world.claims if allocated_results(World((claim.owner,)))]
    if held or any(spec.placed for spec in world.pods):
        return "nothing to plan: pods and claims here are placed already; dranet explain says why there"
    files = ", ".join(dict.fromkeys(obj.file for obj in world.objects))
    where = f" in {files}" if files else ""
    left = "; ".join(line.strip() for line in left_out_lines(not_planned(world, [])))
    return f"nothing to plan{where}: {left or 'name files with pods or claims with -f'}"


def _free(scheduler: Scheduler, machine: Machine) -> tuple[int, int]:
    node = scheduler.nodes[machine.node]
    used = sum(node.plugin_used.values())
    gpus = sum(gpu.id not in node.taken for gpu in machine.gpus) - used
    return max(gpus, 0), sum(nic.id not in node.taken for nic in machine.nics)


def _left_of_shared(cluster: ClusterDevices) -> Iterator[str]:
    for (driver, pool, name), consumed in sorted(cluster.state.consumed.items()):
        device = cluster.device((driver, pool, name))
        for capacity, taken in sorted(consumed.items()):
            total = device.capacity[capacity].value if device and capacity in device.capacity else None
            if total is not None and 0 < taken < total.value:
                yield f"{left_text(capacity, taken, total)} of {driver} {name} in {pool}"


def jobs(found: Plan) -> list[JobRate]:
    """What workloads of several pods should reach."""
    in_one = {name for name, places in found.places.items() if places.one_domain}
    holding = {one.pod.workload for one in found.pods} - {
        one.pod.workload for one in found.pods if not _has_channel(one)
    }
    return job_rates(((one.pod.workload, one.quality) for one in found.pods), in_one, in_one & holding)


def _has_channel(one: PlannedPod) -> bool:
    """Whether the pod may use NVLink to GPUs of other nodes."""
    return any(result["driver"] == compute_domain.DRIVER for group in one.placement.devices for result in group)


def to_json(found: Plan) -> dict[str, Any]:
    """As `dranet plan -o json` prints it."""
    return {
        "pods": [_pod_json(one, found.machines[one.placement.node]) for one in found.pods],
        "unschedulable": [_refusal_json(refusal) for refusal in found.unschedulable],
        "jobs": [job.to_json() | _places_json(found, job.workload) for job in jobs(found)],
        "gangs": [msgspec.to_builtins(one) | {"fits": one.fits} for one in found.gangs],
        "free": [{"node": node, "gpus": gpus, "nics": nics} for node, (gpus, nics) in found.free.items()],
        "left_of_shared": list(found.left_of_shared),
        "others": [{"pod": one.pod.name, "namespace": one.pod.namespace, "node": one.node} for one in found.others],
        "not_considered": list(found.not_considered),
        "exact": found.exact,
        "not_planned": left_out_json(found.not_planned),
        "assumed": left_out_json(found.assumed),
    }


def _places_json(found: Plan, workload: str) -> dict[str, Any]:
    places = found.places.get(workload)
    return {"places": places.to_json()} if places else {}


def _pod_json(one: PlannedPod, machine: Machine) -> dict[str, Any]:
    made: dict[str, Any] = {
        "pod": one.pod.name,
        "namespace": one.pod.namespace,
        "node": one.placement.node,
        "claims": [
            {
                "claim": pod_claim.claim["metadata"]["name"],
                "devices": [_device_json(result, machine) for result in results],
            }
            for pod_claim, results in zip(one.pod.claims, one.placement.devices, strict=True)
        ],
        **one.quality.to_json(),
        "scheduler": {
            "steps": one.placement.steps,
            "timeout_risk": one.timeout_risk,
            "equally_good_nodes": one.placement.others,
        },
    }
    if one.pod.plugin_gpus:
        made["device_plugin"] = dict(one.pod.plugin_gpus)
    return made


def _refusal_json(refusal: Refusal) -> dict[str, Any]:
    made: dict[str, Any] = {"pod": refusal.pod.name, "reason": refusal.reason}
    if refusal.steps:
        made["scheduler"] = {"steps": refusal.steps, "timeout_risk": timeout_risk(refusal.steps)}
    return made


def _device_json(result: Result, machine: Machine) -> dict[str, Any]:
    made = {key: result[key] for key in ("request", "driver", "pool", "device")}
    part = machine.find((result["driver"], result["device"]))
    if result.get("shareID"):
        made["consumedCapacity"] = result.get("consumedCapacity") or {}
    if part is not None and part.interface:
        made["interface"] = part.interface
    if part is not None and part.rdma:
        made["rdma"] = part.title
    return made
