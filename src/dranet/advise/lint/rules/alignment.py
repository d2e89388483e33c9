"""Alignment of GPUs and NICs: whether a claim asks for it, and whether these machines can provide it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from dranet.advise.lint.known_attributes import may_publish, our_domains
from dranet.advise.lint.rules.base import (
    ERROR,
    WARNING,
    Context,
    Finding,
    finding,
    request_example,
    rule,
    selectors_example,
    signature,
    template_example,
)
from dranet.advise.manifests import Claim, Request, containers, gpu_limits
from dranet.advise.plan.claim_validation import is_attribute_name
from dranet.advise.plan.hardware import Hardware, PublishedDevice
from dranet.advise.plan.selectors import gpu_requests, nic_requests, request_drivers
from dranet.core.attributes import PCIE_ROOT
from dranet.core.names import DRIVER_NAME
from dranet.core.untyped import as_dict, as_dicts
from dranet.machines.machine import MachineDevice, reads_directly

_GPU = request_example("gpu", "gpu.nvidia.com")
_PAIR = template_example(_GPU, request_example(), name="pair")


def _matched_pair(attribute: str) -> str:
    constraint = f"- requests: [gpu, nic]\n  matchAttribute: {attribute}\n"
    return template_example(_GPU, request_example(), constraints=constraint, name="pair")


_ALIGNED_PAIR = _matched_pair(PCIE_ROOT)
_STANDARD = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")


@rule(
    "no-alignment-constraint",
    WARNING,
    "GPUs and NICs without an alignment constraint",
    why="The scheduler takes the first devices that fit. A GPU and a NIC on different NUMA nodes lose half of the "
    "bandwidth or more, without an error.",
    bad=_PAIR,
    good=_ALIGNED_PAIR,
)
def no_alignment_constraint(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        gpus, nics = gpu_requests(context.manifests, claim), nic_requests(context.manifests, claim)
        if not gpus or not nics or _matched(claim, gpus, nics):
            continue
        if not (
            _chosen_are_near(context, gpus, nics)
            if _chosen_by_hand([*gpus, *nics])
            else _always_near(context, gpus, nics)
        ):
            message = f"no constraint aligns {_names(nics)} with {_names(gpus)}: the scheduler takes the first that fit"
            known = not any(context.unknown(claim, request) for request in (*gpus, *nics))
            yield finding(claim.owner, nics[0].path, message, _constraint_hint(context, gpus, nics, known))
    for pod in context.manifests.pods:
        claims = context.manifests.claims_of(pod)
        gpu_claims = [
            c for c in claims if gpu_requests(context.manifests, c) and not nic_requests(context.manifests, c)
        ]
        nic_claims = [
            c for c in claims if nic_requests(context.manifests, c) and not gpu_requests(context.manifests, c)
        ]
        if gpu_claims and nic_claims:
            message = (
                f"GPUs are in claim {gpu_claims[0].owner.name!r} and NICs in claim {nic_claims[0].owner.name!r}: "
                "a constraint cannot span two claims, so they are not aligned"
            )
            fix = "put both requests into one claim with a matchAttribute constraint"
            yield finding(pod.source, (*pod.path, "resourceClaims"), message, fix)


def _matched(claim: Claim, gpus: list[Request], nics: list[Request]) -> bool:
    return any(
        constraint.get("matchAttribute")
        and any(claim.constrained(request, constraint) for request in gpus)
        and any(claim.constrained(request, constraint) for request in nics)
        for constraint in claim.constraints
    )


_POSITIONS = re.compile(r"\b(pci\w+|numaNode|rdmaDevice|ifName|uuid|index|minor)\b")


def _chosen_by_hand(requests: list[Request]) -> bool:
    """Whether a selector of every request names a position: the author aligned the devices by hand."""
    return all(any(_POSITIONS.search(selector.text) for selector in request.selectors) for request in requests)


def _chosen_are_near(context: Context, gpus: list[Request], nics: list[Request]) -> bool:
    """Whether devices that were chosen by hand are aligned: each NIC request is near a GPU request, or no NIC of these
    machines is near a GPU."""
    if context.hardware is None:
        return True
    machines = context.hardware.machines.values()
    if not any(reads_directly(gpu, nic) for machine in machines for gpu in machine.gpus for nic in machine.nics):
        return True
    gpu_parts = [_parts(context, [gpu]) for gpu in gpus]
    return all(any(_all_pairs_near(found, _parts(context, [nic])) for found in gpu_parts) for nic in nics)


def _all_pairs_near(gpus: dict[str, list[MachineDevice]], nics: dict[str, list[MachineDevice]]) -> bool:
    pairs = [(g, n) for node, found in gpus.items() for g in found for n in nics.get(node, ())]
    return bool(pairs) and all(reads_directly(g, n) for g, n in pairs)


def _names(requests: list[Request]) -> str:
    return ", ".join(repr(request.name) for request in requests)


def _parts(context: Context, requests: list[Request]) -> dict[str, list[MachineDevice]]:
    """By node, the devices that these requests may get."""
    found: dict[str, list[MachineDevice]] = {}
    assert context.hardware is not None
    for request in requests:
        for unit in context.candidates(request):
            machine = context.hardware.machines.get(unit.node)
            part = machine.find((unit.driver, unit.name)) if machine else None
            if part is not None:
                found.setdefault(unit.node, []).append(part)
    return found


def _always_near(context: Context, gpus: list[Request], nics: list[Request]) -> bool:
    """Whether these requests take all devices of a node, or all their candidates are near each other."""
    if context.hardware is None:
        return False
    key = ("near", *(tuple((signature(r), r.count) for r in group) for group in (gpus, nics)))
    return context.cached(key, lambda: _all_near(context, gpus, nics))


def _all_near(context: Context, gpus: list[Request], nics: list[Request]) -> bool:
    assert context.hardware is not None
    gpu_parts, nic_parts = _parts(context, gpus), _parts(context, nics)
    machines = context.hardware.machines.values()
    if machines and all(_takes_all(gpus, len(m.gpus)) and _takes_all(nics, len(m.nics)) for m in machines):
        return True
    return _all_pairs_near(gpu_parts, nic_parts)


def _takes_all(requests: list[Request], offered: int) -> bool:
    """Whether the requests take all devices of a node."""
    wanted = sum(request.count for request in requests)
    return offered > 0 and wanted >= offered


def _constraint_hint(context: Context, gpus: list[Request], nics: list[Request], known: bool) -> str:
    """A constraint that fits these machines, else the command that writes such a claim."""
    counts = [sum(request.count for request in group) for group in (gpus, nics)]
    command = f"dranet suggest --gpus {counts[0]} --nics {counts[1]}"
    if context.hardware is None or not known:
        return (
            f"`{command} --shape YOUR-MACHINE` writes an aligned claim. If GPUs and NICs share PCIe roots, it is "
            f"matchAttribute: {PCIE_ROOT}; on other machines that constraint cannot be satisfied"
        )
    requests = [*gpus, *nics]
    usable = [name for name in _STANDARD if _fits(context, name, requests)]
    if not usable:
        return f"no attribute aligns so many devices on these machines; `{command}` writes a claim for them"
    names = ", ".join(dict.fromkeys(request.parent for request in requests))
    return f"add to devices:\nconstraints:\n- requests: [{names}]\n  matchAttribute: {usable[0]}"


def _fits(context: Context, name: str, requests: list[Request]) -> bool:
    """Whether a node has enough devices for all these requests with the same value of the attribute."""
    assert context.hardware is not None
    wanted: dict[tuple[str, ...], list[Request]] = {}
    for request in requests:
        wanted.setdefault(signature(request), []).append(request)
    offers = [(sum(r.count for r in group), _values(context, name, group[0])) for group in wanted.values()]
    return any(
        all(values.get(node, Counter())[value] >= count for count, values in offers)
        for node in context.hardware.machines
        for value in offers[0][1].get(node, ())
    )


_POD = """
apiVersion: v1
kind: Pod
metadata: {{name: worker}}
spec:
  resourceClaims: [{{name: {claim}, resourceClaimTemplateName: {claim}}}]
  containers:
  - name: worker
    image: example
    resources: {{{limits}claims: [{{name: {claim}}}]}}
---
"""


@rule(
    "gpus-not-alignable",
    WARNING,
    "GPUs from a device plugin together with NICs from a claim",
    why="The kubelet chooses GPUs in limits, the scheduler chooses NICs of a claim, and neither considers the other. "
    "Only a pod with all GPUs and all NICs of its node is aligned.",
    bad=_POD.format(claim="nic", limits="limits: {nvidia.com/gpu: 1}, ") + template_example(request_example()),
    good=_POD.format(claim="pair", limits="") + _ALIGNED_PAIR,
)
def gpus_not_alignable(context: Context) -> Iterator[Finding]:
    for pod in context.manifests.pods:
        if not any(nic_requests(context.manifests, claim) for claim in context.manifests.claims_of(pod)):
            continue
        for group, i, container in containers(pod.spec):
            asked = gpu_limits({group: [container]})
            for name, count in asked.items():
                limits = as_dict(as_dict(container.get("resources")).get("limits"))
                key = "limits" if name in limits else "requests"
                message = (
                    f"{count} GPU(s) of {name} come from a device plugin: they cannot be aligned with NICs of a claim"
                    + _whole_machine(context, count)
                )
                fix = "request the GPUs in the claim too (class gpu.nvidia.com), with a matchAttribute constraint"
                where = (*pod.path, group, i, "resources", key, name)
                yield finding(pod.source, where, message, fix)


def _whole_machine(context: Context, count: int) -> str:
    machines = context.hardware.machines.values() if context.hardware else []
    if machines and all(len(machine.gpus) == count for machine in machines):
        return " (harmless if the pod uses all of them)"
    return ""


@rule(
    "constraint-attribute-missing",
    ERROR,
    "A constraint on an attribute that a driver does not publish",
    why="A device without the attribute does not satisfy the constraint, so the claim cannot be allocated.",
    bad=_matched_pair("dra.net/numaNode"),
    good=_ALIGNED_PAIR,
)
def constraint_attribute_missing(context: Context) -> Iterator[Finding]:
    yield from (found for _, found in _missing_attributes(context))


def constrained_in_vain(context: Context) -> list[Claim]:
    """Claims with a finding about an attribute of a constraint."""
    return [claim for claim, _ in (*_missing_attributes(context), *_unmatched_roots(context))]


def _missing_attributes(context: Context) -> Iterator[tuple[Claim, Finding]]:
    for claim, index, key, name, covered in _constraints(context):
        for request in covered:
            derived = {one.get("name") for one in as_dicts(request.fields.get("derivedAttributes"))}
            if context.unknown(claim, request) or name in derived:
                continue
            for driver in sorted(request_drivers(context.manifests, request)):
                if not _publishes(context, driver, name) and not (name == PCIE_ROOT and context.hardware):
                    where = (*claim.base, "devices", "constraints", index, key)
                    message = f"driver {driver!r} (request {request.name!r}) does not publish {name}: it cannot match"
                    fix = f"match on an attribute of both drivers, such as {' or '.join(_STANDARD)}"
                    yield claim, finding(claim.owner, where, message, fix)


def _constraints(context: Context) -> Iterator[tuple[Claim, int, str, str, list[Request]]]:
    for claim in context.manifests.claims:
        for i, constraint in enumerate(claim.constraints):
            for key in ("matchAttribute", "distinctAttribute"):
                name = constraint.get(key)
                if isinstance(name, str) and is_attribute_name(name):
                    covered = [request for request in claim.requests if claim.constrained(request, constraint)]
                    yield claim, i, key, name, covered


def _publishes(context: Context, driver: str, name: str) -> bool:
    """By the hardware; else by the known attributes of our driver, and by the domain of another driver."""
    if context.hardware is not None and driver in context.hardware.published:
        return name in context.hardware.published[driver]
    if driver == DRIVER_NAME:
        return may_publish(name)
    domain = name.partition("/")[0]
    return domain == driver or name in _STANDARD or domain not in our_domains()


@rule(
    "pcie-root-cannot-match",
    ERROR,
    "A constraint on the PCIe root on machines where GPUs and NICs do not share one",
    why="On Hyper-V a NIC has no PCIe root, and on GB300 every GPU has a separate root: there the constraint cannot be "
    "satisfied.",
    bad=_ALIGNED_PAIR,
    good=template_example(
        request_example(
            "gpu",
            "gpu.nvidia.com",
            selectors=selectors_example(
                'device.attributes["resource.kubernetes.io"].pciBusID in ["0008:06:00.0", "0009:06:00.0"]'
            ),
        ),
        request_example(selectors=selectors_example('device.attributes["dra.net"].numaNode == 0')),
        name="pair",
    ),
    shape="nd-gb300-v6",
)
def pcie_root_cannot_match(context: Context) -> Iterator[Finding]:
    yield from (found for _, found in _unmatched_roots(context))


def _unmatched_roots(context: Context) -> Iterator[tuple[Claim, Finding]]:
    hardware = context.hardware
    if hardware is None:
        return
    for claim, index, key, name, covered in _constraints(context):
        # A request without candidates has a finding of its own: the PCIe root is not the reason.
        if any(context.unknown(claim, request) or not context.candidates(request) for request in covered):
            continue
        if key == "matchAttribute" and name == PCIE_ROOT and not _can_match(hardware, name, covered, context):
            where = (*claim.base, "devices", "constraints", index, key)
            message = f"on these machines {_names(covered)} never share a PCIe root{_missing_drivers(hardware)}"
            fix = "use the NUMA node instead; `dranet suggest` writes the claim for these machines"
            yield claim, finding(claim.owner, where, message, fix)


def _missing_drivers(hardware: Hardware) -> str:
    missing = [d for d in sorted(hardware.published) if PCIE_ROOT not in hardware.published[d]]
    return f": {', '.join(missing)} does not publish it there" if missing else ""


def _can_match(hardware: Hardware, name: str, requests: list[Request], context: Context) -> bool:
    """Whether a node has a device with a common value for every request."""
    if not requests:
        return True
    by_request = [_values(context, name, request) for request in requests]
    return any(set.intersection(*(set(values.get(node, ())) for values in by_request)) for node in hardware.machines)


def _values(context: Context, name: str, request: Request) -> dict[str, Counter[str]]:
    """By node, how many candidates of the request have each value of the attribute."""

    units = context.candidates(request)

    def gather() -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        for unit in units:
            found.setdefault(unit.node, Counter()).update(_attribute(unit, name))
        return found

    return context.cached(("values", name, id(units)), gather)


def _attribute(unit: PublishedDevice, name: str) -> Iterator[str]:
    attributes = as_dict(unit.raw.get("attributes"))
    domain, _, bare = name.partition("/")
    value = attributes.get(name) or (attributes.get(bare) if domain == unit.driver else None)
    if isinstance(value, dict) and value:
        yield repr(sorted(value.items(), key=repr))
