"""Why a claim got its devices, or why it gets none and what would change that.

Kubernetes says "cannot allocate all claims" and no more. Here every device of a node is held against every request in
the order the scheduler does it, and the first rule it fails is named. Then changes to the claim are tried, from small
to large, until one makes it fit; those are tried with the allocator itself, so what is promised holds. Nodes that are
alike are reported once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from dranet.manifests.claim_views import Claim, World
from dranet.manifests.reading import Object
from dranet.manifests.workloads import mapping, sequence
from dranet.model.errors import InvalidInput, NotFound
from dranet.predict.cluster_now import allocated_results, scheduler_of, with_nodes
from dranet.predict.explain.grouping import groups_that_fit
from dranet.predict.explain.nodes_left import pod_changes, ruled_out_nodes
from dranet.predict.explain.relaxing import Change, changes_that_fit
from dranet.predict.explain.ruling_out import NodeReport, RequestReport, node_report
from dranet.predict.hardware import Hardware
from dranet.predict.jobs.gangs import gangs_of
from dranet.predict.matching import Tester
from dranet.predict.nearer_devices import better_devices
from dranet.predict.not_planned import not_considered
from dranet.predict.placement_quality import rate
from dranet.predict.placing import Placement, Refusal, Scheduler
from dranet.predict.planning import PlannedPod
from dranet.predict.pods_to_place import Pod, lone_pod, pods_to_place
from dranet.predict.quality import Quality
from dranet.topology.machine import DeviceId, Machine


class Explanation(msgspec.Struct, frozen=True):
    """All there is to say about one pod."""

    pod: Pod
    reason: str = ""
    """Empty for a pod that was placed."""
    asked: bool = True
    """Whether any scheduler decides about it; the server, a quota or the pod itself may come before."""
    nodes: tuple[NodeReport, ...] = ()
    changes: tuple[Change, ...] = ()
    placed: PlannedPod | None = None
    passed_over: tuple[RequestReport, ...] = ()
    """For a placed pod: what the scheduler passed over before it took these devices."""
    better: tuple[tuple[str, ...], Quality] | None = None
    """For a placed pod: devices that were free and nearer to each other."""
    ending: str = ""
    """For a claim that is being deleted: since when, and what it waits for."""
    machine: Machine | None = None
    """For a placed pod: where it is."""
    not_considered: tuple[str, ...] = ()
    """What might change the answer and was not looked at."""


def explain(world: World, hardware: Hardware, kubernetes: tuple[int, int] = (1, 36)) -> list[Explanation]:
    """Explain every pod, each in the state the ones before it left; where there is none, every allocated claim."""
    tester = Tester(kubernetes)
    hardware = with_nodes(world, hardware)
    pods = pods_to_place(world, list(hardware.machines), tester)
    scheduler = scheduler_of(world, hardware, kubernetes)
    found = []
    for pod in pods:
        used = scheduler_of(world, hardware, kubernetes) if pod.alone else scheduler
        found.append(_explain(pod, used, hardware))
    gangs = [
        f"{gang.name}: its pods are explained one by one; plan places them as a whole" for gang in gangs_of(world, pods)
    ]
    found = [replace(one, not_considered=(*one.not_considered, *gangs)) for one in found]
    held = [] if pods else [claim for claim in world.claims if allocated_results(World((claim.owner,)))]
    found += [_explain_held(world, hardware, claim) for claim in held]
    if not found:
        raise InvalidInput("nothing to explain: name manifests with -f, and machines with --shape, --slices or --live")
    return found


def explain_refusals(
    world: World, hardware: Hardware, most: int, kubernetes: tuple[int, int] = (1, 36)
) -> list[Explanation]:
    """The first pods that get no node, explained; for a page, where explaining those that do would take too long."""
    hardware = with_nodes(world, hardware)
    scheduler = scheduler_of(world, hardware, kubernetes)
    found: list[Explanation] = []
    for pod in pods_to_place(world, list(hardware.machines), Tester(kubernetes)):
        used = scheduler_of(world, hardware, kubernetes) if pod.alone else scheduler
        if isinstance(used.place(pod), Refusal):
            found.append(_explain(pod, used, hardware))
            if len(found) == most:
                break
    return found


def explain_claim(world: World, hardware: Hardware, claim: Claim, kubernetes: tuple[int, int] = (1, 36)) -> Explanation:
    """One claim: why it holds what it holds, or what it would get, or why it waits."""
    if allocated_results(World((claim.owner,))):
        return _explain_held(world, hardware, claim)
    hardware = with_nodes(world, hardware)
    scheduler = scheduler_of(world, hardware, kubernetes)
    return _explain(lone_pod(claim, Tester(kubernetes)), scheduler, hardware)


def explain_held(world: World, hardware: Hardware, namespace: str, name: str) -> Explanation:
    """An allocated claim of a cluster: its devices, and better ones that are free now."""
    return _explain_held(world, hardware, find_claim(world, namespace, name))


def find_claim(world: World, namespace: str, name: str) -> Claim:
    """The ResourceClaim of this name; without a namespace, the only one of this name."""
    claims = [claim for claim in world.all_claims if claim.owner.kind == "ResourceClaim"]
    named = [c for c in claims if c.owner.name == name and namespace in {"", c.owner.namespace}]
    if len(named) > 1:
        raise InvalidInput(f"{len(named)} claims are called {name!r}: write NAMESPACE/{name}")
    if not named:
        known = ", ".join(sorted(claim.owner.name for claim in claims)[:10]) or "none"
        raise NotFound(f"no ResourceClaim {name!r} among the objects; there are: {known}")
    return named[0]


def _explain(pod: Pod, scheduler: Scheduler, hardware: Hardware) -> Explanation:
    if why := scheduler.never_asked(pod):
        return Explanation(pod, why, asked=False, not_considered=not_considered([pod], scheduler))
    before = {name: (node.key, node.taken) for name, node in scheduler.nodes.items()}
    refused = ruled_out_nodes(scheduler, pod)
    alike: dict[object, list[str]] = {}
    for name, (key, _) in before.items():
        alike.setdefault((key, refused.get(name, "")), []).append(name)
    reports = {names[0]: node_report(scheduler, pod, names, refused.get(names[0], "")) for names in alike.values()}
    answer = scheduler.place(pod)
    if isinstance(answer, Refusal):
        changes = _changes(scheduler, pod, hardware, refused)
        left = not_considered([pod], scheduler)
        nodes = tuple(reports.values())
        return Explanation(pod, answer.reason, nodes=nodes, changes=changes, not_considered=left)
    machine = hardware.machines[answer.node]
    planned = PlannedPod(answer, rate(answer, machine))
    _, taken = before[answer.node]
    there = next(report for report in reports.values() if answer.node in report.nodes)
    free = [part.id for part in (*machine.gpus, *machine.nics) if part.id not in taken]
    passed_over = tuple(_before(there.requests, answer))
    better = better_devices(planned, machine, free)
    left = not_considered([pod], scheduler)
    found = Explanation(pod, placed=planned, passed_over=passed_over, better=better, machine=machine)
    return replace(found, not_considered=left)


def _changes(scheduler: Scheduler, pod: Pod, hardware: Hardware, refused: Mapping[str, str]) -> tuple[Change, ...]:
    """What would give the pod a node: first what keeps its sense, then less of the claim, then less of the pod."""
    grouped = tuple(groups_that_fit(scheduler, pod, hardware))
    relaxed = tuple(changes_that_fit(scheduler, pod))
    return (*grouped, *relaxed) or (tuple(pod_changes(scheduler, pod)) if refused else ())


def _before(reports: Iterable[RequestReport], placement: Placement) -> Iterator[RequestReport]:
    """What stands before the last device each request got."""
    got = {(r["request"], r["device"]) for group in placement.devices for r in group}
    for report in reports:
        mine = [i for i, d in enumerate(report.devices) if (report.request, d.device.partition("/")[2]) in got]
        if mine:
            passed = tuple(d for i, d in enumerate(report.devices) if i < max(mine) and d.rule and i not in mine)
            yield replace(report, devices=passed)


def _explain_held(world: World, hardware: Hardware, claim: Claim) -> Explanation:
    name = claim.owner.name
    results = allocated_results(World((claim.owner,)))
    if not results:
        raise InvalidInput(f"ResourceClaim {name!r} is not allocated")
    node = next((result["pool"] for result in results if result["pool"] in hardware.machines), None)
    if node is None:
        pools = ", ".join(dict.fromkeys(result["pool"] for result in results))
        raise InvalidInput(
            f"ResourceClaim {name!r} holds devices of {pools}, and no machine of that name is known: "
            "add its ResourceSlices with --slices"
        )
    pod = lone_pod(replace(claim, owner=_without_status(claim.owner)), Tester())
    placement = Placement(pod, node, (tuple(results),), 0)
    machine = hardware.machines[node]
    planned = PlannedPod(placement, rate(placement, machine))
    held = {(r["driver"], r["device"]) for r in allocated_results(world) if r["pool"] == node}
    own: set[DeviceId] = {(r["driver"], r["device"]) for r in results}
    free = [part.id for part in (*machine.gpus, *machine.nics) if part.id not in held or part.id in own]
    better = better_devices(planned, machine, free)
    return Explanation(pod, placed=planned, better=better, ending=_ending(claim.owner), machine=machine)


def _ending(claim: Object) -> str:
    """A claim in use outlives its deletion, with its devices."""
    since = mapping(claim.data.get("metadata")).get("deletionTimestamp")
    if not since:
        return ""
    users = [str(mapping(user).get("name")) for user in sequence(mapping(claim.data.get("status")).get("reservedFor"))]
    what = f"until {', '.join(users)} is gone" if users else "until its driver has let go of them"
    return f"deleted at {since}; it keeps its devices {what}"


def _without_status(obj: Object) -> Object:
    return replace(obj, data={key: value for key, value in obj.data.items() if key != "status"})
