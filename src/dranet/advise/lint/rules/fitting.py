"""Whether a claim fits on any of the machines, tried with the scheduler on empty ones."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dranet.advise.explain import explain
from dranet.advise.lint.rules.alignment import constrained_in_vain
from dranet.advise.lint.rules.base import ERROR, Context, Finding, finding, request_example, rule, template_example
from dranet.advise.manifests import Claim, Manifests
from dranet.advise.plan.cluster import build_simulator
from dranet.advise.plan.hardware import Hardware
from dranet.advise.plan.pending_pods import pod_for_claim
from dranet.advise.plan.placement import Refusal, Simulator

_ROOT = "- requests: [gpu, nic]\n  matchAttribute: resource.kubernetes.io/pcieRoot\n"


def _pair(count: int) -> str:
    gpus, nics = request_example("gpu", "gpu.nvidia.com", count=count), request_example(count=count)
    return template_example(gpus, nics, name="pair", constraints=_ROOT)


@rule(
    "claim-never-fits",
    ERROR,
    "A claim that fits on none of these machines, not even on empty ones",
    why="Each request alone has enough devices, but not all of them together: its pods stay pending.",
    bad=_pair(4),
    good=_pair(2),
    shape="a4-highgpu-8g",
)
def claim_never_fits(context: Context) -> Iterator[Finding]:
    hardware = context.hardware
    if hardware is None:
        return
    reported = {id(claim) for claim in constrained_in_vain(context)}
    for claim in context.manifests.claims:
        if claim.requests and id(claim) not in reported and not _has_own_finding(context, claim):
            work = partial(_refused, context, hardware, claim)
            if found := context.cached(("fits", repr(claim.v1["spec"])), work):
                where = (*claim.base, "devices", "constraints" if claim.constraints else "requests")
                yield finding(claim.owner, where, *found)


def _has_own_finding(context: Context, claim: Claim) -> bool:
    """Whether the devices of a request are unknown, or none at all: another rule reports that."""
    return any(context.unknown(claim, request) or not context.candidates(request) for request in claim.requests)


def _refused(context: Context, hardware: Hardware, claim: Claim) -> tuple[str, str] | None:
    """Message and fix for a claim that no empty machine has the devices for."""
    simulator: Simulator = context.cached("empty", lambda: _empty_cluster(context, hardware))
    start, pod = simulator.checkpoint(), pod_for_claim(claim, context.tester)
    refused = not pod.problem and isinstance(simulator.place(pod), Refusal)
    simulator.rollback(start)
    if not refused:
        return None
    classes = context.manifests.by_kind.get("DeviceClass", ())
    why = explain(Manifests((claim.owner,), classes), hardware, context.kubernetes)[0]
    message = why.nodes[0].summary if why.nodes else why.reason
    fix = why.changes[0].text if why.changes else "request fewer devices, or use other machines"
    return f"fits on none of these machines: {message}", fix


def _empty_cluster(context: Context, hardware: Hardware) -> Simulator:
    return build_simulator(Manifests(context.manifests.by_kind.get("DeviceClass", ())), hardware, context.kubernetes)
