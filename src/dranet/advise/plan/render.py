"""A plan as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dranet.advise.plan.gang_placement import GangVerdict
from dranet.advise.plan.jobs import JobPlaces, JobRate, rate_text
from dranet.advise.plan.placement import DeviceResult, Refusal
from dranet.advise.plan.planning import Plan, rated_jobs
from dranet.advise.plan.quality import ADMIN, PlannedPod, Quality
from dranet.advise.plan.rails import rails_lines
from dranet.advise.plan.skipped import skipped_json, skipped_lines
from dranet.advise.plan.summary import PodGroup, groups, refusals, some, table, verdict
from dranet.core.columns import at_most
from dranet.machines.bandwidth import Estimate, short_number
from dranet.machines.machine import Machine

_HINT = "-o wide lists all"
_ROWS, _LINES = 14, 6
"""Rows of the table, and lines of each section below it, before the rest is only counted: a plan of any size is at most
one screen of 60 lines."""
_ALL = 1 << 30


def plan_text(found: Plan, wide: bool = False) -> str:
    """The verdict, a table, details, and what the plan assumes; ``wide`` has every pod and every line."""
    lines = _ALL if wide else _LINES
    blocks = [verdict(found), "\n".join(table(found, _ALL if wide else _ROWS, _HINT))]
    blocks += _section("changes to running pods:", [str(one) for one in found.applied], lines)
    blocks += _section("unschedulable:", [_refusals(group) for group in refusals(found.unschedulable)], lines)
    blocks += _section("unknown:", [_refusals(group) for group in refusals(found.unknown)], lines)
    if wide:
        blocks += [_pod(one, found.machines[one.placement.node]) for one in found.pods]
    else:
        blocks += _section("devices:", [_devices(group, found) for group in groups(found)], lines)
    blocks += _section("jobs:", _jobs(found), lines)
    blocks += _section("left free:", _free(found), lines)
    blocks += _section("not planned:", [line.strip() for line in skipped_lines(found.not_planned)], lines)
    blocks += _section("assumed:", [line.strip() for line in skipped_lines(found.assumed)], lines)
    blocks += _section("not considered:", found.not_considered, lines)
    return "\n\n".join(blocks)


def _section(title: str, texts: Sequence[str], limit: int) -> list[str]:
    """A title and indented lines; no section without any."""
    lines = [line for text in texts for line in text.splitlines()]
    return ["\n".join([title, *(f"  {line}" for line in at_most(lines, limit, _HINT))])] if lines else []


def _devices(group: PodGroup, found: Plan) -> str:
    """The devices of one pod; the other pods of the group have such devices too."""
    one = group.first
    machine = found.machines[one.placement.node]
    pairs = one.quality.alignment.pairs if one.quality.certain else ()
    shown = [f"{pair.gpu.title}-{pair.nic.title} {pair.distance}" for pair in pairs]
    paired = {part.id for pair in pairs for part in (pair.gpu, pair.nic)}
    every = [result for results in one.placement.devices for result in results]
    shown += [_device(result, machine) for result in every if result.id not in paired]
    shown += [f"{count} {resource}, any that are free" for resource, count in one.pod.plugin_gpus.items()]
    return f"{one.pod.name}: {', '.join(shown)}{_risk(one.placement.steps)}"


def _device(result: DeviceResult, machine: Machine) -> str:
    return (machine.display_name(result.id) or result.device) + (f" ({result.share})" if result.share else "")


def _jobs(found: Plan) -> list[str]:
    jobs = [_job(job, found.places.get(job.workload)) for job in rated_jobs(found)]
    return [*map(_gang, found.gangs), *jobs, *rails_lines(found)]


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
    if job.by_size:
        lines.append(f"  all_reduce by size, at best: {', '.join(_by_size(*one) for one in job.by_size)}")
    notes = job.main[0].notes if isinstance(job.main[0], Estimate) else ()
    if isinstance(job.over_nvlink, Estimate):
        where = "all in one NVLink domain" if job.over_nvlink.ranks.pods == 1 else "NVLink inside its domains"
        lines.append(f"  {where}: with a ComputeDomain {rate_text(job.over_nvlink, job.over_nvlink)}")
    lines += [f"  {line}" for line in (places.lines() if places else ())]
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def _by_size(size: int, seconds: float, rate: float) -> str:
    """``8 MiB 0.31 ms (42.7 GB/s)``."""
    unit, divisor = ("KiB", 1 << 10) if size < 1 << 20 else ("MiB", 1 << 20) if size < 1 << 30 else ("GiB", 1 << 30)
    return f"{size // divisor} {unit} {seconds * 1e3:.3g} ms ({short_number(rate)} GB/s)"


def _refusals(group: list[Refusal]) -> str:
    """Pods of one workload with the same reason."""
    refusal = group[0]
    return f"{some([one.pod.name for one in group])}: {refusal.reason}{_risk(refusal.steps)}"


_SECONDS_PER_STEP = 10e-6
_FILTER_TIMEOUT = 10.0
"""kube-scheduler gives up on a node after this many seconds; a step takes it about ten microseconds."""


def timeout_risk(steps: int) -> str:
    """From the number of search steps."""
    seconds = steps * _SECONDS_PER_STEP
    return "likely" if seconds >= _FILTER_TIMEOUT else "possible" if seconds >= _FILTER_TIMEOUT / 10 else "none"


def _steps(steps: int) -> str:
    return f"  scheduler steps: {steps:,}{_risk(steps)}"


def _risk(steps: int) -> str:
    risk = timeout_risk(steps)
    return "" if risk == "none" else f", time-out {risk} ({steps:,} scheduler steps)"


def _free(found: Plan) -> list[str]:
    """What is left, nodes with equal remains together."""
    by_rest: dict[tuple[int, int], list[str]] = {}
    for node, left in found.free.items():
        by_rest.setdefault(left, []).append(node)
    lines = [f"{gpus} GPUs, {nics} NICs on {_nodes(nodes)}" for (gpus, nics), nodes in by_rest.items()]
    return [*lines, *found.left_of_shared]


def _nodes(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else some(names)


def plan_json(found: Plan) -> dict[str, Any]:
    """As `dranet plan -o json` prints it."""
    return {
        "verdict": verdict(found),
        "applied": [msgspec.to_builtins(one) for one in found.applied],
        "pods": [_pod_json(one, found.machines[one.placement.node]) for one in found.pods],
        "unschedulable": [_refusal_json(refusal) for refusal in found.unschedulable],
        "unknown": [_refusal_json(refusal) for refusal in found.unknown],
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
    if refusal.refused:
        made["refused"] = True
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
