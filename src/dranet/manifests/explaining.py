"""Why a claim got its devices, or why it gets none and what would change that.

Kubernetes says "cannot allocate all claims" and no more. Here every device of a node is held against every request in
the order the scheduler does it, and the first rule it fails is named. Then changes to the claim are tried, from small
to large, until one makes it fit; those are tried with the allocator itself, so what is promised holds. Nodes that are
alike are reported once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dranet.allocation.devices import Device
from dranet.allocation.requests import Request, read_requests, taint_blocks
from dranet.allocation.selectors import SelectorCompiler
from dranet.manifests.better import better_devices
from dranet.manifests.hardware import Hardware
from dranet.manifests.planning import PlannedPod, allocated_results, rate, scheduler_of, with_nodes
from dranet.manifests.pods import Pod, pods_to_place
from dranet.manifests.quality import Quality
from dranet.manifests.reading import Object
from dranet.manifests.relaxing import Change, changes_that_fit
from dranet.manifests.scheduling import Placement, Refusal, Scheduler
from dranet.manifests.selectors import Tester
from dranet.manifests.views import World
from dranet.model.errors import InvalidInput
from dranet.topology.machine import DeviceId


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A device and the first rule it failed; an empty rule where it fits by itself."""

    device: str
    rule: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RequestReport:
    """One request on one node."""

    claim: str
    request: str
    needed: int
    devices: tuple[RuledOut, ...]

    @property
    def fitting(self) -> int:
        """Devices that no rule excludes on its own."""
        return sum(not device.rule for device in self.devices)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Why a node does not take the pod, and others like it."""

    nodes: tuple[str, ...]
    requests: tuple[RequestReport, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """All there is to say about one pod."""

    pod: Pod
    reason: str = ""
    """Empty for a pod that was placed."""
    nodes: tuple[NodeReport, ...] = ()
    changes: tuple[Change, ...] = ()
    placed: PlannedPod | None = None
    passed_over: tuple[RequestReport, ...] = ()
    """For a placed pod: what the scheduler passed over before it took these devices."""
    better: tuple[tuple[str, ...], Quality] | None = None
    """For a placed pod: devices that were free and nearer to each other."""


def explain(world: World, hardware: Hardware, kubernetes: tuple[int, int] = (1, 36)) -> list[Explanation]:
    """Explain every pod, each in the state the ones before it left."""
    tester = Tester(kubernetes)
    hardware = with_nodes(world, hardware)
    pods = pods_to_place(world, list(hardware.machines), tester)
    if not pods or not hardware.machines:
        raise InvalidInput("nothing to explain: name manifests with -f, and machines with --shape, --slices or --live")
    scheduler = scheduler_of(world, hardware, kubernetes)
    found = []
    for pod in pods:
        used = scheduler_of(world, hardware, kubernetes) if pod.alone else scheduler
        found.append(_explain(pod, used, hardware))
    return found


def _explain(pod: Pod, scheduler: Scheduler, hardware: Hardware) -> Explanation:
    before = {name: (node.key, node.taken) for name, node in scheduler.nodes.items()}
    alike: dict[object, list[str]] = {}
    for name, (key, _) in before.items():
        alike.setdefault(key, []).append(name)
    reports = {} if pod.problem else {key: _node_report(scheduler, pod, names) for key, names in alike.items()}
    answer = scheduler.place(pod)
    if isinstance(answer, Refusal):
        changes = () if pod.problem else tuple(changes_that_fit(scheduler, pod))
        return Explanation(pod, answer.reason, tuple(reports.values()), changes)
    machine = hardware.machines[answer.node]
    planned = PlannedPod(answer, rate(answer, machine))
    key, taken = before[answer.node]
    free = [part.id for part in (*machine.gpus, *machine.nics) if part.id not in taken]
    passed_over = tuple(_before(reports[key].requests, answer))
    return Explanation(pod, placed=planned, passed_over=passed_over, better=better_devices(planned, machine, free))


def _before(reports: Iterable[RequestReport], placement: Placement) -> Iterator[RequestReport]:
    """What stands before the last device each request got."""
    got = {(r["request"], r["device"]) for group in placement.devices for r in group}
    for report in reports:
        mine = [i for i, d in enumerate(report.devices) if (report.request, d.device.partition("/")[2]) in got]
        if mine:
            passed = tuple(d for i, d in enumerate(report.devices) if i < max(mine) and d.rule and i not in mine)
            yield RequestReport(report.claim, report.request, report.needed, passed)


def _node_report(scheduler: Scheduler, pod: Pod, nodes: list[str]) -> NodeReport:
    node = nodes[0]
    reports = tuple(
        _request_report(scheduler, pod_claim.ref, pod_claim.claim, request, node)
        for index, pod_claim in enumerate(pod.claims)
        for alternatives in read_requests(index, pod_claim.claim)
        for request in alternatives
    )
    return NodeReport(tuple(nodes), reports, _summary(scheduler, pod, node, reports))


def _request_report(
    scheduler: Scheduler, ref: str, claim: Mapping[str, Any], request: Request, node: str
) -> RequestReport:
    constraints = [
        constraint
        for constraint in claim["spec"].get("devices", {}).get("constraints") or ()
        if not constraint.get("requests") or {request.base, request.full_name} & set(constraint["requests"])
    ]
    view = scheduler.cluster.view({"name": node, "labels": dict(scheduler.nodes[node].labels)})
    devices = []
    for pool in view.pools:
        if not pool.usable:
            rule = pool.problem or "the pool is incomplete: its slices are being updated"
            devices.append(RuledOut(f"{pool.id[0]}/(pool {pool.id[1]})", "pool", rule))
    for device in view.candidates:
        rule, detail = _first_rule(scheduler, request, constraints, device)
        devices.append(RuledOut(f"{device.id[0]}/{device.id[2]}", rule, detail))
    return RequestReport(ref, request.full_name, request.count, tuple(devices))


def _first_rule(
    scheduler: Scheduler, request: Request, constraints: list[Mapping[str, Any]], device: Device
) -> tuple[str, str]:
    cluster = scheduler.cluster
    klass = cluster.classes.get(request.class_name)
    if klass is None:
        return "class", f"device class {request.class_name} does not exist"
    class_selectors = (klass.get("spec") or {}).get("selectors") or ()
    refused = _refusing(cluster.selectors, "class selector", class_selectors, device)
    if refused:
        return refused
    if device.id in cluster.state.exclusive and not request.admin:
        return "in use", "held by another claim"
    refused = _refusing(cluster.selectors, "selector", request.selectors, device)
    if refused:
        return refused
    if taint_blocks(device, request):
        return "taint", ", ".join(f"{t.get('key')}:{t.get('effect')}" for t in device.taints)
    for constraint in constraints:
        name = constraint.get("matchAttribute") or constraint.get("distinctAttribute") or ""
        if device.attribute(name) is None:
            return "constraint", f"has no attribute {name}"
    return "", ""


def _refusing(
    compiler: SelectorCompiler, source: str, selectors: Iterable[Mapping[str, Any]], device: Device
) -> tuple[str, str] | None:
    """The first selector that does not match the device, and what it said."""
    for place, selector in enumerate(selectors):
        text = (selector.get("cel") or {}).get("expression", "")
        verdict = compiler.compile(text).evaluate(device.input)
        if verdict.matches is not True:
            said = verdict.error.splitlines()[0] if verdict.error else "is false"
            return f"{source} #{place}", f"{' '.join(text.split())}: {said}"
    return None


def _summary(scheduler: Scheduler, pod: Pod, node: str, reports: tuple[RequestReport, ...]) -> str:
    for resource, wanted in pod.plugin_gpus.items():
        free = scheduler.nodes[node].plugin_free(resource)
        if free is not None and free < wanted:
            return f"Insufficient {resource}: {wanted} wanted, {free} free"
    short = [report for report in reports if report.fitting < report.needed and "/" not in report.request]
    if short:
        first = short[0]
        return f"request {first.request} needs {first.needed}, {first.fitting} fit{_main_reason(first)}"
    names = [
        str(constraint.get("matchAttribute") or constraint.get("distinctAttribute"))
        for pod_claim in pod.claims
        for constraint in pod_claim.claim["spec"].get("devices", {}).get("constraints") or ()
    ]
    if names:
        return f"enough devices for each request, but none together under the constraint on {', '.join(names)}"
    return "enough devices for each request, but not for all together"


def _main_reason(report: RequestReport) -> str:
    """The rule that cost most of the devices which belong to the request's class."""
    counts: dict[tuple[str, str], int] = {}
    for device in report.devices:
        if device.rule and not device.rule.startswith("class selector"):
            counts[(device.rule, device.detail)] = counts.get((device.rule, device.detail), 0) + 1
    if not counts:
        return ": no device here belongs to the class"
    (rule, detail), count = max(counts.items(), key=lambda entry: entry[1])
    return f": {count} ruled out by {rule} ({detail})"


def explain_held(world: World, hardware: Hardware, namespace: str, name: str) -> Explanation:
    """An allocated claim of a cluster: its devices, and better ones that are free now."""
    claim = next(
        (c for c in world.claims if c.owner.kind == "ResourceClaim" and c.owner.name == name
         and namespace in {"", c.owner.namespace}), None,
    )  # fmt: skip
    if claim is None:
        raise InvalidInput(f"no ResourceClaim {name!r} among the objects")
    results = allocated_results(World((claim.owner,)))
    node = next((result["pool"] for result in results if result["pool"] in hardware.machines), None)
    if node is None:
        raise InvalidInput(f"ResourceClaim {name!r} is not allocated on any of these nodes")
    pods = pods_to_place(World((_without_status(claim.owner),)), [], Tester())
    planned_at = Placement(pods[0], node, (tuple(results),), 0)
    machine = hardware.machines[node]
    planned = PlannedPod(planned_at, rate(planned_at, machine))
    held = {(r["driver"], r["device"]) for r in allocated_results(world) if r["pool"] == node}
    own: set[DeviceId] = {(r["driver"], r["device"]) for r in results}
    free = [part.id for part in (*machine.gpus, *machine.nics) if part.id not in held or part.id in own]
    return Explanation(pods[0], placed=planned, better=better_devices(planned, machine, free))


def _without_status(obj: Object) -> Object:
    return replace(obj, data={key: value for key, value in obj.data.items() if key != "status"})
