"""GPU and card: whether the scheduler is told to keep them together, and whether it can."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from dranet.lint.published_names import may_publish, our_domains
from dranet.lint.rules.base import ERROR, WARNING, Context, Finding, content, finding, rule
from dranet.lint.rules.examples import template_example
from dranet.manifests.claim_views import Claim, Request
from dranet.manifests.workloads import containers, gpu_limits, mapping
from dranet.model.attributes import PCIE_ROOT
from dranet.model.names import DRIVER_NAME
from dranet.predict.hardware import Hardware, Unit
from dranet.predict.request_drivers import drivers_of, gpu_requests, nic_requests
from dranet.topology.machine import Part, reads_directly

_PAIR = template_example(
    """
    requests:
    - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}
    - {name: nic, exactly: {deviceClassName: dranet}}
    """,
    name="pair",
)
_ROOT = """      constraints:
      - requests: [gpu, nic]
        matchAttribute: resource.kubernetes.io/pcieRoot
"""
STANDARD = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")


@rule(
    "no-alignment-constraint",
    WARNING,
    "GPUs and cards with nothing that keeps them together",
    why="The scheduler takes the first devices that fit. A GPU and a card on different NUMA nodes lose half of the "
    "bandwidth and more, and nothing says so.",
    bad=_PAIR,
    good=_PAIR + _ROOT,
)
def no_alignment_constraint(context: Context) -> Iterator[Finding]:
    for claim in context.world.claims:
        gpus, nics = gpu_requests(context.world, claim), nic_requests(context.world, claim)
        if not gpus or not nics or _matched(claim, gpus, nics):
            continue
        if not (_pinned(context, gpus, nics) if _named_by_place([*gpus, *nics]) else _near_anyway(context, gpus, nics)):
            message = f"nothing aligns {_names(nics)} with {_names(gpus)}: the scheduler takes the first that fit"
            yield finding(
                "no-alignment-constraint", claim.owner, nics[0].path, message, _constraint_hint(context, gpus, nics)
            )
    for pod in context.world.pods:
        claims = context.world.claims_of(pod)
        gpu_claims = [c for c in claims if gpu_requests(context.world, c) and not nic_requests(context.world, c)]
        nic_claims = [c for c in claims if nic_requests(context.world, c) and not gpu_requests(context.world, c)]
        if gpu_claims and nic_claims:
            message = (
                f"GPUs come from claim {gpu_claims[0].owner.name!r} and cards from claim {nic_claims[0].owner.name!r}: "
                "a constraint never reaches over two claims, so nothing aligns them"
            )
            fix = "put both requests into one claim with a matchAttribute constraint"
            yield finding("no-alignment-constraint", pod.source, (*pod.path, "resourceClaims"), message, fix)


def _matched(claim: Claim, gpus: list[Request], nics: list[Request]) -> bool:
    return any(
        constraint.get("matchAttribute")
        and any(claim.constrained(request, constraint) for request in gpus)
        and any(claim.constrained(request, constraint) for request in nics)
        for constraint in claim.constraints
    )


_PLACES = re.compile(r"\b(pci\w+|numaNode|rdmaDevice|ifName|uuid|index|minor)\b")


def _named_by_place(requests: list[Request]) -> bool:
    """Whether every request says which devices it means: somebody has aligned them by hand."""
    return all(any(_PLACES.search(selector.text) for selector in request.selectors) for request in requests)


def _pinned(context: Context, gpus: list[Request], nics: list[Request]) -> bool:
    """Whether devices that were chosen by hand are near, as far as the machines tell: each request for cards has one
    for GPUs that is near, or no pair of these machines is."""
    if context.hardware is None:
        return True
    machines = context.hardware.machines.values()
    if not any(reads_directly(gpu, nic) for machine in machines for gpu in machine.gpus for nic in machine.nics):
        return True
    gpu_parts = [_parts(context, [gpu]) for gpu in gpus]
    return all(any(_all_pairs_near(found, _parts(context, [nic])) for found in gpu_parts) for nic in nics)


def _all_pairs_near(gpus: dict[str, list[Part]], nics: dict[str, list[Part]]) -> bool:
    pairs = [(g, n) for node, found in gpus.items() for g in found for n in nics.get(node, ())]
    return bool(pairs) and all(reads_directly(g, n) for g, n in pairs)


def _names(requests: list[Request]) -> str:
    return ", ".join(repr(request.name) for request in requests)


def _parts(context: Context, requests: list[Request]) -> dict[str, list[Part]]:
    """By node, the parts these requests may get on the given hardware."""
    found: dict[str, list[Part]] = {}
    assert context.hardware is not None
    for request in requests:
        for unit in context.candidates(request):
            machine = context.hardware.machines.get(unit.node)
            part = machine.find((unit.driver, unit.name)) if machine else None
            if part is not None:
                found.setdefault(unit.node, []).append(part)
    return found


def _near_anyway(context: Context, gpus: list[Request], nics: list[Request]) -> bool:
    """Whether, on the given hardware, these requests take everything, or whatever they may get is near."""
    if context.hardware is None:
        return False
    key = ("near", *(tuple((content(r), r.count) for r in group) for group in (gpus, nics)))
    return context.once(key, lambda: _all_near(context, gpus, nics))


def _all_near(context: Context, gpus: list[Request], nics: list[Request]) -> bool:
    assert context.hardware is not None
    gpu_parts, nic_parts = _parts(context, gpus), _parts(context, nics)
    machines = context.hardware.machines.values()
    if machines and all(_takes_all(gpus, len(m.gpus)) and _takes_all(nics, len(m.nics)) for m in machines):
        return True
    return _all_pairs_near(gpu_parts, nic_parts)


def _takes_all(requests: list[Request], offered: int) -> bool:
    """Whether the requests want everything a node has: then there is nothing to choose."""
    wanted = sum(request.count for request in requests)
    return offered > 0 and wanted >= offered


def _constraint_hint(context: Context, gpus: list[Request], nics: list[Request]) -> str:
    """A constraint where it is known to fit on these machines; else the way to a claim that does."""
    counts = [sum(request.count for request in group) for group in (gpus, nics)]
    command = f"dranet suggest --gpus {counts[0]} --nics {counts[1]}"
    if context.hardware is None:
        return (
            f"{command} --shape YOUR-MACHINE writes a claim that aligns there, and proves it. Where GPUs and cards "
            f"share PCIe roots it is matchAttribute: {PCIE_ROOT}; on others that constraint can never be met"
        )
    requests = [*gpus, *nics]
    usable = [name for name in STANDARD if _roomy(context, name, requests)]
    if not usable:
        return f"no attribute of these machines holds so many together: `{command}` for them writes the claim"
    names = ", ".join(dict.fromkeys(request.parent for request in requests))
    return f"add to devices:\nconstraints:\n- requests: [{names}]\n  matchAttribute: {usable[0]}"


def _roomy(context: Context, name: str, requests: list[Request]) -> bool:
    """Whether some node has enough devices for all these requests with one value of the attribute."""
    assert context.hardware is not None
    wanted: dict[tuple[str, ...], list[Request]] = {}
    for request in requests:
        wanted.setdefault(content(request), []).append(request)
    offers = [(sum(r.count for r in alike), _values(context, name, alike[0])) for alike in wanted.values()]
    return any(
        all(values.get(node, Counter())[value] >= count for count, values in offers)
        for node in context.hardware.machines
        for value in offers[0][1].get(node, ())
    )


@rule(
    "gpus-not-alignable",
    WARNING,
    "GPUs from a device plugin beside cards from a claim",
    why="GPUs counted in limits are chosen by the kubelet, cards of a claim by the scheduler; neither looks at the "
    "other. Only a pod that takes all GPUs and all cards of its node is safe.",
    bad="""
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  resourceClaims: [{name: nic, resourceClaimTemplateName: nic}]
  containers:
  - name: worker
    image: example
    resources: {limits: {nvidia.com/gpu: 1}, claims: [{name: nic}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: nic}
spec:
  spec:
    devices:
      requests: [{name: nic, exactly: {deviceClassName: dranet}}]
""",
    good="""
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  resourceClaims: [{name: pair, resourceClaimTemplateName: pair}]
  containers:
  - name: worker
    image: example
    resources: {claims: [{name: pair}]}
---
"""
    + _PAIR
    + _ROOT,
)
def gpus_not_alignable(context: Context) -> Iterator[Finding]:
    for pod in context.world.pods:
        known = context.world.claims_of(pod)
        if not pod.claims or (len(known) == len(pod.claims) and not any(nic_requests(context.world, c) for c in known)):
            continue
        for group, i, container in containers(pod.spec):
            asked = gpu_limits({group: [container]})
            for name, count in asked.items():
                limits = mapping(mapping(container.get("resources")).get("limits"))
                key = "limits" if name in limits else "requests"
                message = (
                    f"{count} GPU(s) by {name} come from the device plugin: they cannot be aligned with claimed cards"
                    + _whole_machine(context, count)
                )
                fix = "request the GPUs in the claim too (class gpu.nvidia.com), with a matchAttribute constraint"
                where = (*pod.path, group, i, "resources", key, name)
                yield finding("gpus-not-alignable", pod.source, where, message, fix)


def _whole_machine(context: Context, count: int) -> str:
    machines = context.hardware.machines.values() if context.hardware else []
    if machines and all(len(machine.gpus) == count for machine in machines):
        return " (harmless while the pod takes all of them)"
    return ""


@rule(
    "constraint-attribute-missing",
    ERROR,
    "A constraint over an attribute that one of its drivers does not publish",
    why="A device without the attribute never satisfies the constraint, so the claim can never be allocated.",
    bad=_PAIR + _ROOT.replace("resource.kubernetes.io/pcieRoot", "dra.net/numaNode"),
    good=_PAIR + _ROOT,
)
def constraint_attribute_missing(context: Context) -> Iterator[Finding]:
    for claim, index, key, name, covered in _constraints(context):
        for request in covered:
            for driver in sorted(drivers_of(context.world, request)):
                if not _publishes(context, driver, name) and not (name == PCIE_ROOT and context.hardware):
                    where = (*claim.base, "devices", "constraints", index, key)
                    message = (
                        f"driver {driver!r} (request {request.name!r}) publishes no {name}: nothing can satisfy this"
                    )
                    fix = f"match on an attribute both drivers have, such as {' or '.join(STANDARD)}"
                    yield finding("constraint-attribute-missing", claim.owner, where, message, fix)


def _constraints(context: Context) -> Iterator[tuple[Claim, int, str, str, list[Request]]]:
    for claim in context.world.claims:
        for i, constraint in enumerate(claim.constraints):
            for key in ("matchAttribute", "distinctAttribute"):
                name = constraint.get(key)
                if isinstance(name, str) and "/" in name:
                    covered = [request for request in claim.requests if claim.constrained(request, constraint)]
                    yield claim, i, key, name, covered


def _publishes(context: Context, driver: str, name: str) -> bool:
    """What the hardware shows; else what is known of our driver, and that a driver's own domain is its own."""
    if context.hardware is not None and driver in context.hardware.published:
        return name in context.hardware.published[driver]
    if driver == DRIVER_NAME:
        return may_publish(name)
    domain = name.partition("/")[0]
    return domain == driver or name in STANDARD or domain not in our_domains()


@rule(
    "pcie-root-cannot-match",
    ERROR,
    "A PCIe root that GPUs and cards do not share on these machines",
    why="Behind Hyper-V a card shows no PCIe root, and on GB300 every GPU has a root of its own: matching on it can "
    "never succeed there.",
    bad=_PAIR + _ROOT,
    good=template_example(
        """
        requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.nvidia.com
            selectors:
            - cel:
                expression: device.attributes["resource.kubernetes.io"].pciBusID in ["0008:06:00.0", "0009:06:00.0"]
        - name: nic
          exactly:
            deviceClassName: dranet
            selectors:
            - cel:
                expression: device.attributes["dra.net"].numaNode == 0
        """,
        name="pair",
    ),
    shape="nd-gb300-v6",
)
def pcie_root_cannot_match(context: Context) -> Iterator[Finding]:
    hardware = context.hardware
    if hardware is None:
        return
    for claim, index, key, name, covered in _constraints(context):
        if key == "matchAttribute" and name == PCIE_ROOT and not _can_match(hardware, name, covered, context):
            where = (*claim.base, "devices", "constraints", index, key)
            message = f"on these machines no {_names(covered)} share a PCIe root{_why(hardware)}"
            fix = "constrain by NUMA node instead; `dranet suggest` writes the claim for these machines"
            yield finding("pcie-root-cannot-match", claim.owner, where, message, fix)


def _why(hardware: Hardware) -> str:
    missing = [d for d in sorted(hardware.published) if PCIE_ROOT not in hardware.published[d]]
    return f": {', '.join(missing)} publishes none there" if missing else ""


def _can_match(hardware: Hardware, name: str, requests: list[Request], context: Context) -> bool:
    """Whether some node has, for every request, a device with one common value."""
    if not requests:
        return True
    by_request = [_values(context, name, request) for request in requests]
    return any(set.intersection(*(set(values.get(node, ())) for values in by_request)) for node in hardware.machines)


def _values(context: Context, name: str, request: Request) -> dict[str, Counter[str]]:
    """By node, the values an attribute has among the devices the request may get, and how many have each."""

    units = context.candidates(request)

    def gather() -> dict[str, Counter[str]]:
        found: dict[str, Counter[str]] = {}
        for unit in units:
            found.setdefault(unit.node, Counter()).update(_attribute(unit, name))
        return found

    return context.once(("values", name, id(units)), gather)


def _attribute(unit: Unit, name: str) -> Iterator[str]:
    attributes = mapping(unit.raw.get("attributes"))
    domain, _, bare = name.partition("/")
    value = attributes.get(name) or (attributes.get(bare) if domain == unit.driver else None)
    if isinstance(value, dict) and value:
        yield repr(sorted(value.items(), key=repr))
