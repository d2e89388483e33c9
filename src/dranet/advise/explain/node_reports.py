"""What excludes each device of a node for each request of a pod, and one sentence that sums it up.

`scheduler.allocation.diagnosis` gives the verdicts; here they become text, once for all nodes that are equal.
"""

from __future__ import annotations

import msgspec

from dranet.advise.plan.pending_pods import PendingPod
from dranet.advise.plan.placement import Simulator
from dranet.scheduler.allocation import diagnosis
from dranet.scheduler.allocation.requests import claim_name

_RULES = {
    diagnosis.USABLE: "",
    diagnosis.POOL_INCOMPLETE: "pool",
    diagnosis.POOL_INVALID: "pool",
    diagnosis.NO_CLASS: "class",
    diagnosis.CLASS_SELECTOR: "class selector",
    diagnosis.REQUEST_SELECTOR: "selector",
    diagnosis.SELECTOR_ERROR: "selector error",
    diagnosis.IN_USE: "in use",
    diagnosis.BINDING: "binding conditions",
    diagnosis.OTHER_NODE: "other node",
}
_NUMBERED = {diagnosis.CLASS_SELECTOR, diagnosis.REQUEST_SELECTOR}
_UNAVAILABLE = {"in use", "taint", "counters", "constraint"}
"""Rules that exclude a device of the request's class: one such device, and a request for all devices fails."""


class ExcludedDevice(msgspec.Struct, frozen=True):
    """A device and the first rule it failed; an empty rule where it fits by itself."""

    device: str
    rule: str
    detail: str = ""

    @property
    def of_another_class(self) -> bool:
        """Whether it was never an option: other drivers' devices mostly."""
        return self.rule.startswith("class selector")


class RequestReport(msgspec.Struct, frozen=True):
    """One request, or one alternative of a request, on one node."""

    claim: str
    request: str
    needed: int
    wants_all: bool
    devices: tuple[ExcludedDevice, ...]

    @property
    def fitting(self) -> int:
        """Devices that no rule excludes on its own."""
        return sum(not device.rule for device in self.devices)

    @property
    def short(self) -> bool:
        """Whether the node cannot serve this request even alone."""
        if self.wants_all:
            return not self.fitting or any(device.rule in _UNAVAILABLE for device in self.devices)
        return self.fitting < self.needed

    @property
    def wanted(self) -> str:
        """How many it asks for."""
        return "all" if self.wants_all else str(self.needed)


class NodeReport(msgspec.Struct, frozen=True):
    """Why a node does not take the pod, and others like it."""

    nodes: tuple[str, ...]
    requests: tuple[RequestReport, ...]
    summary: str


def node_report(simulator: Simulator, pod: PendingPod, nodes: list[str], refused: str = "") -> NodeReport:
    """The report of equivalent nodes, computed on the first; without devices if the node itself refuses the pod."""
    if refused:
        return NodeReport(tuple(nodes), (), refused)
    state = simulator.nodes[nodes[0]]
    claims = simulator.waiting_claims(pod)
    names = {claim_name(pod_claim.claim): pod_claim.ref for pod_claim in pod.claims}
    found = diagnosis.diagnose(simulator.cluster, {"name": state.name, "labels": dict(state.labels)}, claims)
    reports = tuple(
        RequestReport(
            names.get(one.claim, one.claim), one.request, one.count, one.all_devices,
            tuple(_ruled_out(verdict) for verdict in one.devices),
        )
        for one in found
    )  # fmt: skip
    return NodeReport(tuple(nodes), reports, _summary(pod, reports))


def _ruled_out(verdict: diagnosis.DeviceDiagnosis) -> ExcludedDevice:
    rule = _RULES.get(verdict.rule, verdict.rule)
    if verdict.rule in _NUMBERED:
        rule = f"{rule} #{verdict.index}"
    detail = verdict.detail.splitlines()[0] if verdict.detail else ""
    return ExcludedDevice(f"{verdict.device[0]}/{verdict.device[2]}", rule, detail)


def _summary(pod: PendingPod, reports: tuple[RequestReport, ...]) -> str:
    by_request: dict[tuple[str, str], list[RequestReport]] = {}
    for report in reports:
        by_request.setdefault((report.claim, report.request.partition("/")[0]), []).append(report)
    for alternatives in by_request.values():
        if all(report.short for report in alternatives):
            return "; ".join(_shortage(report) for report in alternatives)
    names = [
        str(constraint.get("matchAttribute") or constraint.get("distinctAttribute"))
        for pod_claim in pod.claims
        for constraint in pod_claim.claim["spec"].get("devices", {}).get("constraints") or ()
    ]
    if names:
        return f"enough devices for each request, but none together under the constraint on {', '.join(names)}"
    return "enough devices for each request, but not for all together"


def _shortage(report: RequestReport) -> str:
    """In one sentence, with the rule that cost most of the devices which belong to the request's class."""
    head = f"request {report.request} needs {report.wanted}, {report.fitting} fit"
    counts: dict[tuple[str, str], int] = {}
    for device in report.devices:
        if device.rule and not device.of_another_class:
            counts[(device.rule, device.detail)] = counts.get((device.rule, device.detail), 0) + 1
    if not counts:
        return f"{head}: no device here belongs to the class" if not report.fitting else head
    (rule, detail), count = max(counts.items(), key=lambda entry: entry[1])
    return f"{head}: {count} ruled out by {rule} ({detail})"
