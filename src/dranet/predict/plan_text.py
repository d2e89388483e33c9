"""A plan for people: one block a pod, then what is left."""

from __future__ import annotations

from itertools import groupby

from dranet.allocation.shares import share_text
from dranet.predict.jobs.gang_placing import GangVerdict
from dranet.predict.jobs.places import JobPlaces
from dranet.predict.jobs.rails import rails_lines
from dranet.predict.jobs.rates import JobRate, sentence
from dranet.predict.not_planned import left_out_lines
from dranet.predict.placing import Refusal
from dranet.predict.planning import Plan, PlannedPod, jobs, timeout_risk
from dranet.predict.quality import ADMIN, Quality
from dranet.topology.bandwidth import Estimate
from dranet.topology.machine import Machine


def plan_text(found: Plan) -> str:
    """The whole plan as plain text."""
    blocks = [_pod(one, found.machines[one.placement.node]) for one in found.pods]
    blocks += [_refusals(list(alike)) for _, alike in groupby(found.unschedulable, lambda one: (one.reason, one.steps))]
    blocks += [_gang(one) for one in found.gangs]
    blocks += [_job(job, found.places.get(job.workload)) for job in jobs(found)]
    blocks += rails_lines(found)
    if found.others:
        blocks.append("\n".join(["also placed, without devices:", *_others(found)]))
    blocks += [_free(found)] if found.free else []
    for title, left in (("not planned:", found.not_planned), ("assumed:", found.assumed)):
        blocks += ["\n".join([title, *left_out_lines(left)])] if left else []
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
            name = machine.nickname((result["driver"], result["device"]))
            known = f"  ({name})" if name else ""
            share = f", {text}" if (text := share_text(result)) else ""
            lines.append(f"    {result['request']}: {result['driver']} {result['device']}{known}{share}")
    for resource, count in one.pod.plugin_gpus.items():
        lines.append(f"  {count} {resource} from the device plugin, any that are free")
    return "\n".join(lines + _quality(one))


def _quality(one: PlannedPod) -> list[str]:
    quality, lines = one.quality, []
    if quality.alignment.pairs:
        pairs = ", ".join(f"{p.gpu.title}-{p.nic.title} {p.distance}" for p in quality.alignment.pairs)
        lines.append(f"  pairs: {pairs}")
        choice = "" if quality.certain else f" (with luck {quality.luckiest}: the choice of GPUs is open)"
        lines.append(f"  worst pair: {quality.alignment.worst}{choice}")
    if quality.member.gpus or quality.expected is ADMIN:
        figure = sentence(quality.expected, quality.best) + _worst_case(quality.certain)
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
        lines.append(f"  {gang.key}: with luck {' or '.join(gang.equally[:6])}")
    return "\n".join([*lines, *(f"  {line}" for line in (gang.luck, gang.note) if line)])


def _others_fit(gang: GangVerdict) -> str:
    drawn = f", or by lot {' or '.join(gang.equally[:6])}" if gang.equally else ""
    return drawn + (f" (as well: {', '.join(gang.others[:6])})" if gang.others else "")


def _job(job: JobRate, places: JobPlaces | None) -> str:
    lines = [f"{job.workload}: {sentence(*job.main)}{_worst_case(job.certain)}"]
    for expected, best in job.figures[1:]:
        if isinstance(expected, Estimate):
            lines.append(f"  {sentence(expected, best)}")
    notes = job.main[0].notes if isinstance(job.main[0], Estimate) else ()
    if isinstance(job.over_nvlink, Estimate):
        lines.append(f"  all in one NVLink domain: with a ComputeDomain {sentence(job.over_nvlink, job.over_nvlink)}")
    lines += [f"  {line}" for line in (places.lines() if places else ())]
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def _refusals(alike: list[Refusal]) -> str:
    """Pods that follow each other and are refused in the same words."""
    refusal, names = alike[0], ", ".join(one.pod.name for one in alike[:4])
    more = f" and {len(alike) - 4} more" if len(alike) > 4 else ""
    lines = [f"{names}{more}  UNSCHEDULABLE", f"  {refusal.reason}"]
    return "\n".join([*lines, _steps(refusal.steps)] if refusal.steps else lines)


def _steps(steps: int) -> str:
    risk = timeout_risk(steps)
    return f"  scheduler steps: {steps:,}" + ("" if risk == "none" else f", time-out {risk}")


def _free(found: Plan) -> str:
    """What is left, nodes with equal remains together."""
    alike: dict[tuple[int, int], list[str]] = {}
    for node, left in found.free.items():
        alike.setdefault(left, []).append(node)
    lines = ["left free:"]
    for (gpus, nics), nodes in alike.items():
        names = ", ".join(nodes) if len(nodes) <= 4 else f"{nodes[0]} and {len(nodes) - 1} more"
        lines.append(f"  {gpus} GPUs, {nics} cards on {names}")
    return "\n".join(lines + [f"  {text}" for text in found.left_of_shared])
