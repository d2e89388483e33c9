"""Why a claim got its devices, or why it gets none and which change would help.

kube-scheduler only reports "cannot allocate all claims". Here every device of a node is checked against every request
in the scheduler's order, and the first rule it fails is named. Then changes to the claim are tried, from small to
large, with the allocator itself, until one fits. Equal nodes are reported once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from dranet.advise.explain.changes import Change, changes_that_fit, groups_that_fit
from dranet.advise.explain.node_reports import NodeReport, RequestReport, node_report
from dranet.advise.explain.nodes_left import excluded_nodes, pod_changes
from dranet.advise.manifests import Claim, Manifests, Object
from dranet.advise.plan.cluster import add_bare_nodes, allocated_devices, build_simulator
from dranet.advise.plan.gangs import gangs_of
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.pending_pods import PendingPod, list_pending_pods, pod_for_claim
from dranet.advise.plan.placement import Placement, Refusal, Simulator
from dranet.advise.plan.quality import PlannedPod, Quality, better_devices, placement_quality
from dranet.advise.plan.selectors import SelectorTester
from dranet.advise.plan.skipped import not_considered
from dranet.core.errors import InvalidInput, NotFound
from dranet.core.untyped import as_dict, as_list
from dranet.machines.machine import DeviceId, Machine


class Explanation(msgspec.Struct, frozen=True):
    """The explanation of one pod."""

    pod: PendingPod
    reason: str = ""
    """Empty for a pod that was placed."""
    reaches_scheduler: bool = True
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
    """What might change the answer and was not considered."""


def explain(manifests: Manifests, hardware: Hardware, kubernetes: tuple[int, int] = (1, 36)) -> list[Explanation]:
    """Explain every pod, each in the state the ones before it left; where there is none, every allocated claim."""
    tester = SelectorTester(kubernetes)
    hardware = add_bare_nodes(manifests, hardware)
    pods = list_pending_pods(manifests, list(hardware.machines), tester)
    simulator = build_simulator(manifests, hardware, kubernetes)
    found = []
    for pod in pods:
        used = build_simulator(manifests, hardware, kubernetes) if pod.standalone else simulator
        found.append(_explain(pod, used, hardware))
    gangs = [
        f"{gang.name}: its pods are explained one by one; plan places them as a whole"
        for gang in gangs_of(manifests, pods)
    ]
    found = [replace(one, not_considered=(*one.not_considered, *gangs)) for one in found]
    held = [] if pods else [claim for claim in manifests.claims if allocated_devices(Manifests((claim.owner,)))]
    found += [_explain_held(manifests, hardware, claim) for claim in held]
    if not found:
        raise InvalidInput("nothing to explain: name manifests with -f, and machines with --shape, --slices or --live")
    return found


def explain_refusals(
    manifests: Manifests, hardware: Hardware, most: int, kubernetes: tuple[int, int] = (1, 36)
) -> list[Explanation]:
    """The first pods that get no node, explained; for a page, where explaining those that do would take too long."""
    hardware = add_bare_nodes(manifests, hardware)
    simulator = build_simulator(manifests, hardware, kubernetes)
    found: list[Explanation] = []
    for pod in list_pending_pods(manifests, list(hardware.machines), SelectorTester(kubernetes)):
        used = build_simulator(manifests, hardware, kubernetes) if pod.standalone else simulator
        if isinstance(used.place(pod), Refusal):
            found.append(_explain(pod, used, hardware))
            if len(found) == most:
                break
    return found


def explain_claim(
    manifests: Manifests, hardware: Hardware, claim: Claim, kubernetes: tuple[int, int] = (1, 36)
) -> Explanation:
    """One claim: why it holds what it holds, or what it would get, or why it waits."""
    if allocated_devices(Manifests((claim.owner,))):
        return _explain_held(manifests, hardware, claim)
    hardware = add_bare_nodes(manifests, hardware)
    simulator = build_simulator(manifests, hardware, kubernetes)
    return _explain(pod_for_claim(claim, SelectorTester(kubernetes)), simulator, hardware)


def explain_held(manifests: Manifests, hardware: Hardware, namespace: str, name: str) -> Explanation:
    """An allocated claim of a cluster: its devices, and better ones that are free now."""
    return _explain_held(manifests, hardware, find_claim(manifests, namespace, name))


def find_claim(manifests: Manifests, namespace: str, name: str) -> Claim:
    """The ResourceClaim of this name; without a namespace, the only one of this name."""
    claims = [claim for claim in manifests.all_claims if claim.owner.kind == "ResourceClaim"]
    named = [c for c in claims if c.owner.name == name and namespace in {"", c.owner.namespace}]
    if len(named) > 1:
        raise InvalidInput(f"{len(named)} claims are named {name!r}: write NAMESPACE/{name}")
    if not named:
        known = ", ".join(sorted(claim.owner.name for claim in claims)[:10]) or "none"
        raise NotFound(f"no ResourceClaim {name!r} in the input; it has: {known}")
    return named[0]


def _explain(pod: PendingPod, simulator: Simulator, hardware: Hardware) -> Explanation:
    if why := simulator.blocked_reason(pod):
        return Explanation(pod, why, reaches_scheduler=False, not_considered=not_considered([pod], simulator))
    before = {name: (node.key, node.taken) for name, node in simulator.nodes.items()}
    refused = excluded_nodes(simulator, pod)
    groups: dict[object, list[str]] = {}
    for name, (key, _) in before.items():
        groups.setdefault((key, refused.get(name, "")), []).append(name)
    reports = {names[0]: node_report(simulator, pod, names, refused.get(names[0], "")) for names in groups.values()}
    answer = simulator.place(pod)
    if isinstance(answer, Refusal):
        changes = _changes(simulator, pod, hardware, refused)
        left = not_considered([pod], simulator)
        nodes = tuple(reports.values())
        return Explanation(pod, answer.reason, nodes=nodes, changes=changes, not_considered=left)
    machine = hardware.machines[answer.node]
    planned = PlannedPod(answer, placement_quality(answer, machine))
    _, taken = before[answer.node]
    there = next(report for report in reports.values() if answer.node in report.nodes)
    free = [part.id for part in (*machine.gpus, *machine.nics) if part.id not in taken]
    passed_over = tuple(_before(there.requests, answer))
    better = better_devices(planned, machine, free)
    left = not_considered([pod], simulator)
    found = Explanation(pod, placed=planned, passed_over=passed_over, better=better, machine=machine)
    return replace(found, not_considered=left)


def _changes(
    simulator: Simulator, pod: PendingPod, hardware: Hardware, refused: Mapping[str, str]
) -> tuple[Change, ...]:
    """What would give the pod a node: first what keeps its sense, then less of the claim, then less of the pod."""
    grouped = tuple(groups_that_fit(simulator, pod, hardware))
    relaxed = tuple(changes_that_fit(simulator, pod))
    return (*grouped, *relaxed) or (tuple(pod_changes(simulator, pod)) if refused else ())


def _before(reports: Iterable[RequestReport], placement: Placement) -> Iterator[RequestReport]:
    """The devices before the last one that each request got."""
    got = {(r.request, r.device) for group in placement.devices for r in group}
    for report in reports:
        mine = [i for i, d in enumerate(report.devices) if (report.request, d.device.partition("/")[2]) in got]
        if mine:
            passed = tuple(d for i, d in enumerate(report.devices) if i < max(mine) and d.rule and i not in mine)
            yield replace(report, devices=passed)


def _explain_held(manifests: Manifests, hardware: Hardware, claim: Claim) -> Explanation:
    name = claim.owner.name
    results = allocated_devices(Manifests((claim.owner,)))
    if not results:
        raise InvalidInput(f"ResourceClaim {name!r} is not allocated")
    node = next((result.pool for result in results if result.pool in hardware.machines), None)
    if node is None:
        pools = ", ".join(dict.fromkeys(result.pool for result in results))
        raise InvalidInput(
            f"ResourceClaim {name!r} has devices of {pools}, which is not in the input: "
            "add its ResourceSlices with --slices"
        )
    pod = pod_for_claim(replace(claim, owner=_without_status(claim.owner)), SelectorTester())
    placement = Placement(pod, node, (tuple(results),), 0)
    machine = hardware.machines[node]
    planned = PlannedPod(placement, placement_quality(placement, machine))
    held = {r.id for r in allocated_devices(manifests) if r.pool == node}
    own: set[DeviceId] = {r.id for r in results}
    free = [part.id for part in (*machine.gpus, *machine.nics) if part.id not in held or part.id in own]
    better = better_devices(planned, machine, free)
    return Explanation(pod, placed=planned, better=better, ending=_ending(claim.owner), machine=machine)


def _ending(claim: Object) -> str:
    """A claim in use outlives its deletion, with its devices."""
    since = as_dict(claim.data.get("metadata")).get("deletionTimestamp")
    if not since:
        return ""
    users = [str(as_dict(user).get("name")) for user in as_list(as_dict(claim.data.get("status")).get("reservedFor"))]
    what = f"until {', '.join(users)} is gone" if users else "until its driver has let go of them"
    return f"deleted at {since}; it keeps its devices {what}"


def _without_status(obj: Object) -> Object:
    return replace(obj, data={key: value for key, value in obj.data.items() if key != "status"})
