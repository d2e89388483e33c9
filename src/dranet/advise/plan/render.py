"""A plan as text, one block a pod, and as JSON."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import msgspec

from dranet.advise.plan.gang_placement import GangVerdict
from dranet.advise.plan.jobs import JobPlaces, JobRate, rate_text
from dranet.advise.plan.placement import DeviceResult, Refusal
from dranet.advise.plan.planning import Plan, rated_jobs
from dranet.advise.plan.quality import ADMIN, PlannedPod, Quality
from dranet.advise.plan.rails import rails_lines
from dranet.advise.plan.skipped import skipped_json, skipped_lines
from dranet.machines.bandwidth import Estimate
from dranet.machines.machine import Machine


def plan_text(found: Plan) -> str:
    """The whole plan as plain text."""
    blocks = [_pod(one, found.machines[one.placement.node]) for one in found.pods]
    blocks += [_refusals(list(group)) for _, group in groupby(found.unschedulable, lambda one: (one.reason, one.steps))]
    blocks += [_gang(one) for one in found.gangs]
    blocks += [_job(job, found.places.get(job.workload)) for job in rated_jobs(found)]
    blocks += rails_lines(found)
    if found.others:
        blocks.append("\n".join(["also placed, without devices:", *_others(found)]))
    blocks += [_free(found)] if found.free else []
    for title, left in (("not planned:", found.not_planned), ("assumed:", found.assumed)):
        blocks += ["\n".join([title, *skipped_lines(left)])] if left else []
    if found.not_considered:
        blocks.append("\n".join(["not considered:", *(f"  {text}" for text in found.not_considered)]))
    return "\n\n".join(blocks)


def _others(found: Plan) -> list[str]:
    """By node, since there may be many."""
    nodes: dict[str, list[str]] = {}
    for one in found.others:
        nodes.setdefault(one.node, []).append(one.pod.name)
    return [f"  {', '.join(names)} on {node}" for node, names in nodes.items()]


def _pod(one: PlannedPod, machine: Machine) -> str:
    lines = [f"{one.pod.name}  on {one.placement.node}"]
    for pod_claim, results in zip(one.pod.claims, one.placement.devices, strict=True):
        lines.append(f"  claim {pod_claim.ref}")
        for result in results:
            name = machine.display_name(result.id)
            known = f"  ({name})" if name else ""
            share = f", {result.share}" if result.share else ""
            lines.append(f"    {result.request}: {result.driver} {result.device}{known}{share}")
    for resource, count in one.pod.plugin_gpus.items():
        lines.append(f"  {count} {resource} from the device plugin, any that are free")
    return "\n".join(lines + _quality(one))


def _quality(one: PlannedPod) -> list[str]:
    quality, lines = one.quality, []
    if quality.alignment.pairs:
        pairs = ", ".join(f"{p.gpu.title}-{p.nic.title} {p.distance}" for p in quality.alignment.pairs)
        lines.append(f"  pairs: {pairs}")
        choice = "" if quality.certain else f" (at best {quality.luckiest}: the device plugin chooses the GPUs)"
        lines.append(f"  worst pair: {quality.alignment.worst}{choice}")
    if quality.member.gpus or quality.expected is ADMIN:
        figure = rate_text(quality.expected, quality.best) + _worst_case(quality.certain)
        lines.append(f"  bus bandwidth{_among(quality)}: {figure}")
    return [*lines, _steps(one.placement.steps)]


def _among(quality: Quality) -> str:
    """Which traffic a pod's own figure is of."""
    return " among pods like this" if quality.member.nics else " inside the pod" if quality.member.gpus else ""


def _worst_case(certain: bool) -> str:
    """What to add where a device plugin has the last word."""
    return "" if certain else "; the worst case, the device plugin may hand out nearer GPUs"


def _gang(gang: GangVerdict) -> str:
    lines = [f"{gang.name}: {gang.placed} of {gang.wanted} pods placed, {gang.minimum} needed at once"]
    if gang.why_not:
        lines = [f"{gang.name}: does not start, and none of its {gang.wanted} pods is bound"]
    if gang.places:
        lines.append(f"  {gang.key}: {', '.join(gang.places)}" + _others_fit(gang))
    elif gang.equally:
        lines.append(f"  {gang.key}: possibly {' or '.join(gang.equally[:6])}")
    return "\n".join([*lines, *(f"  {line}" for line in (gang.luck, gang.note) if line)])


def _others_fit(gang: GangVerdict) -> str:
    drawn = f", or equally {' or '.join(gang.equally[:6])}" if gang.equally else ""
    return drawn + (f" (as well: {', '.join(gang.others[:6])})" if gang.others else "")


def _job(job: JobRate, places: JobPlaces | None) -> str:
    lines = [f"{job.workload}: {rate_text(*job.main)}{_worst_case(job.certain)}"]
    for expected, best in job.figures[1:]:
        if isinstance(expected, Estimate):
            lines.append(f"  {rate_text(expected, best)}")
    notes = job.main[0].notes if isinstance(job.main[0], Estimate) else ()
    if isinstance(job.over_nvlink, Estimate):
        lines.append(f"  all in one NVLink domain: with a ComputeDomain {rate_text(job.over_nvlink, job.over_nvlink)}")
    lines += [f"  {line}" for line in (places.lines() if places else ())]
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def _refusals(group: list[Refusal]) -> str:
    """Consecutive pods with the same reason."""
    refusal, names = group[0], ", ".join(one.pod.name for one in group[:4])
    more = f" and {len(group) - 4} more" if len(group) > 4 else ""
    lines = [f"{names}{more}  UNSCHEDULABLE", f"  {refusal.reason}"]
    return "\n".join([*lines, _steps(refusal.steps)] if refusal.steps else lines)


_SECONDS_PER_STEP = 10e-6
_FILTER_TIMEOUT = 10.0
"""kube-scheduler gives up on a node after this many seconds; a step takes it about ten microseconds."""


def timeout_risk(steps: int) -> str:
    """From the number of search steps."""
    seconds = steps * _SECONDS_PER_STEP
    return "likely" if seconds >= _FILTER_TIMEOUT else "possible" if seconds >= _FILTER_TIMEOUT / 10 else "none"


def _steps(steps: int) -> str:
    risk = timeout_risk(steps)
    return f"  scheduler steps: {steps:,}" + ("" if risk == "none" else f", time-out {risk}")


def _free(found: Plan) -> str:
    """What is left, nodes with equal remains together."""
    by_rest: dict[tuple[int, int], list[str]] = {}
    for node, left in found.free.items():
        by_rest.setdefault(left, []).append(node)
    lines = ["left free:"]
    for (gpus, nics), nodes in by_rest.items():
        names = ", ".join(nodes) if len(nodes) <= 4 else f"{nodes[0]} and {len(nodes) - 1} more"
        lines.append(f"  {gpus} GPUs, {nics} NICs on {names}")
    return "\n".join(lines + [f"  {text}" for text in found.left_of_shared])


def plan_json(found: Plan) -> dict[str, Any]:
    """As `dranet plan -o json` prints it."""
    return {
        "pods": [_pod_json(one, found.machines[one.placement.node]) for one in found.pods],
        "unschedulable": [_refusal_json(refusal) for refusal in found.unschedulable],
        "jobs": [job.to_json() | _places_json(found, job.workload) for job in rated_jobs(found)],
        "gangs": [msgspec.to_builtins(one) | {"fits": one.fits} for one in found.gangs],
        "free": [{"node": node, "gpus": gpus, "nics": nics} for node, (gpus, nics) in found.free.items()],
        "left_of_shared": list(found.left_of_shared),
        "others": [{"pod": one.pod.name, "namespace": one.pod.namespace, "node": one.node} for one in found.others],
        "not_considered": list(found.not_considered),
        "exact": found.exact,
        "not_planned": skipped_json(found.not_planned),
        "assumed": skipped_json(found.assumed),
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
            "timeout_risk": timeout_risk(one.placement.steps),
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


def _device_json(result: DeviceResult, machine: Machine) -> dict[str, Any]:
    made: dict[str, Any] = result.to_json()
    part = machine.find(result.id)
    if result.raw.get("shareID"):
        made["consumedCapacity"] = result.raw.get("consumedCapacity") or {}
    if part is not None and part.interface:
        made["interface"] = part.interface
    if part is not None and part.rdma:
        made["rdma"] = part.title
    return made
