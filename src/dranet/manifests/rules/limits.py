"""What the API refuses by number or by name, and what cannot be scheduled whatever the cluster has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dranet.manifests.rules.base import ERROR, WARNING, Context, Finding, finding, rule
from dranet.manifests.versions import to_v1, version_of
from dranet.manifests.views import Claim, Request, empty_selectors, is_quantity, slice_problems
from dranet.manifests.workloads import mapping, reach, sequence
from dranet.manifests.yaml_nodes import FieldPath
from dranet.model.names import is_dns_label

DEVICES_PER_CLAIM = 32
REQUESTS, SELECTORS, CONSTRAINTS, CONFIGS, ALTERNATIVES = 32, 32, 32, 32, 8
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"[^/]+/[A-Za-z_][A-Za-z0-9_]{0,31}")


@rule(
    "count-over-32",
    ERROR,
    "A claim for more than 32 devices",
    why="The API takes any count, but the scheduler never gives a claim more than 32 devices: the pod stays pending "
    "with an error on every attempt.",
    bad="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: nics}
spec:
  devices:
    requests:
    - name: nics
      exactly: {deviceClassName: dranet, count: 40}
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: nics}
spec:
  devices:
    requests:
    - name: nics
      exactly: {deviceClassName: dranet, count: 32}
""",
)
def count_over_32(context: Context) -> Iterator[Finding]:
    for claim in context.world.claims:
        least: dict[str, tuple[int, Request]] = {}
        for request in claim.requests:
            asked = 1 if request.mode == "All" else request.count
            if request.parent not in least or asked < least[request.parent][0]:
                least[request.parent] = (asked, request)
        total = sum(count for count, _ in least.values())
        if total > DEVICES_PER_CLAIM:
            largest = max(least.values(), key=lambda entry: entry[0])[1]
            message = f"the claim asks for {total} devices; the scheduler gives a claim at most {DEVICES_PER_CLAIM}"
            where = (*largest.path, "count")
            yield finding("count-over-32", claim.owner, where, message, "spread them over several claims of the pod")


@rule(
    "api-limits",
    ERROR,
    "The API server would refuse this",
    why="Names, references and list lengths the API checks when the object is created.",
    bad="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: pair}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu.nvidia.com}
    constraints:
    - requests: [gpu, nic]
      matchAttribute: resource.kubernetes.io/pcieRoot
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: pair}
spec:
  devices:
    requests:
    - name: gpu
      exactly: {deviceClassName: gpu.nvidia.com}
    - name: nic
      exactly: {deviceClassName: dranet}
    constraints:
    - requests: [gpu, nic]
      matchAttribute: resource.kubernetes.io/pcieRoot
""",
)
def api_limits(context: Context) -> Iterator[Finding]:
    for obj in context.world.objects:
        for where in empty_selectors(obj, ("spec",)) if obj.kind == "DeviceClass" else ():
            yield finding("api-limits", obj, where, _NO_EXPRESSION, _WRITE_EXPRESSION)
    for claim in context.world.claims:
        for path, message, fix in claim_problems(claim):
            yield finding("api-limits", claim.owner, path, message, fix)


Found = tuple[FieldPath, str, str]
_NO_EXPRESSION, _WRITE_EXPRESSION = "a selector needs cel.expression", "write cel: {expression: ...}"


def claim_problems(claim: Claim) -> Iterator[Found]:
    """Place, message and fix of everything in a claim that the API server checks and refuses."""
    yield from _request_problems(claim)
    yield from _constraint_problems(claim)
    yield from _config_problems(claim)


def _devices(claim: Claim) -> FieldPath:
    return (*claim.base, "devices")


def _request_problems(claim: Claim) -> Iterator[Found]:
    base = (*_devices(claim), "requests")
    raw = sequence(reach(claim.owner.data, base))
    if len(raw) > REQUESTS:
        yield base, f"{len(raw)} requests, at most {REQUESTS} are allowed", "use count, or several claims"
    seen: set[str] = set()
    stored = stored_requests(claim)
    for i, entry in enumerate(raw):
        name = str(mapping(entry).get("name", ""))
        if i < len(stored) and ("exactly" in stored[i]) == bool(stored[i].get("firstAvailable")):
            yield (*base, i), f"request {name!r} must have one of exactly and firstAvailable", _shape_hint(claim)
        if not is_dns_label(name):
            yield (*base, i), f"request name {name!r} is not a DNS label", "use lower-case letters, digits and '-'"
        if name in seen:
            yield (*base, i, "name"), f"two requests are called {name!r}", "give each its own name"
        seen.add(name)
        if len(sequence(mapping(entry).get("firstAvailable"))) > ALTERNATIVES:
            where = (*base, i, "firstAvailable")
            yield where, f"more than {ALTERNATIVES} alternatives", f"keep at most {ALTERNATIVES}"
    for request in claim.requests:
        yield from _one_request(request)
        for where in empty_selectors(claim.owner, request.path):
            yield where, _NO_EXPRESSION, _WRITE_EXPRESSION


def stored_requests(claim: Claim) -> list[dict[str, Any]]:
    """The requests as a server would store them, in v1 shape."""
    made = to_v1(claim.owner.data)["spec"]
    inner = made.get("spec") or {} if claim.owner.kind == "ResourceClaimTemplate" else made
    return sequence(mapping(inner.get("devices")).get("requests"))


def _shape_hint(claim: Claim) -> str:
    flat = version_of(claim.owner.api_version) == "v1beta1"
    return "write deviceClassName beside the name" if flat else "write exactly: {deviceClassName: ...}"


def _one_request(request: Request) -> Iterator[Found]:
    if not request.device_class:
        yield request.path, f"request {request.name!r} names no deviceClassName", "write deviceClassName"
    elif not _SUBDOMAIN.fullmatch(request.device_class):
        where = (*request.path, "deviceClassName")
        yield where, f"{request.device_class!r} is not a class name", "use lower-case letters, digits, '-' and '.'"
    if request.mode not in {"ExactCount", "All"}:
        where = (*request.path, "allocationMode")
        yield where, f"allocationMode {request.mode!r} does not exist", "use ExactCount or All"
    if request.mode == "ExactCount" and request.count <= 0:
        yield (*request.path, "count"), f"count is {request.count}, it must be at least 1", "write a positive count"
    for key, amount in mapping(mapping(request.fields.get("capacity")).get("requests")).items():
        if not is_quantity(amount):
            yield (*request.path, "capacity"), f"{key}: {amount!r} is no quantity", "write a quantity such as 10Gi"
    if len(request.selectors) > SELECTORS:
        yield (*request.path, "selectors"), f"more than {SELECTORS} selectors", "join them with &&"


def _constraint_problems(claim: Claim) -> Iterator[Found]:
    base = (*_devices(claim), "constraints")
    if len(claim.constraints) > CONSTRAINTS:
        yield base, f"more than {CONSTRAINTS} constraints", f"keep at most {CONSTRAINTS}"
    for i, constraint in enumerate(claim.constraints):
        given = [constraint.get("matchAttribute"), constraint.get("distinctAttribute")]
        if not any(given):
            yield (*base, i), "a constraint needs matchAttribute or distinctAttribute", "name the attribute to compare"
        for key in ("matchAttribute", "distinctAttribute"):
            name = constraint.get(key)
            if isinstance(name, str) and not _QUALIFIED.fullmatch(name):
                fix = f"write its domain too, such as resource.kubernetes.io/{name.rpartition('/')[2] or 'pcieRoot'}"
                yield (*base, i, key), f"{name!r} is not a fully qualified attribute name", fix
        yield from _references(claim, (*base, i), constraint)


def _config_problems(claim: Claim) -> Iterator[Found]:
    base = (*_devices(claim), "config")
    if len(claim.configs) > CONFIGS:
        yield base, f"more than {CONFIGS} configs", f"keep at most {CONFIGS}"
    for i, config in enumerate(claim.configs):
        opaque = mapping(config.get("opaque"))
        if not opaque.get("driver"):
            yield (*base, i), "a config needs opaque.driver", "write opaque: {driver: dra.net, parameters: ...}"
        if not isinstance(opaque.get("parameters"), dict):
            yield (*base, i), "a config needs opaque.parameters, an object", "write the driver's parameters"
        yield from _references(claim, (*base, i), config)


def _references(claim: Claim, path: FieldPath, entry: dict[str, object]) -> Iterator[Found]:
    known = {request.name for request in claim.requests} | {request.parent for request in claim.requests}
    for i, name in enumerate(sequence(entry.get("requests"))):
        if name not in known:
            shown = ", ".join(sorted(known)) or "none"
            yield (*path, "requests", i), f"no request is called {name!r}", f"requests of this claim: {shown}"


@rule(
    "broken-slice",
    ERROR,
    "A ResourceSlice that cannot be used",
    why="Every slice names its driver and its pool, every device has a name, every attribute one value.",
    bad="""
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-cards}
spec:
  driver: dra.net
  nodeName: node-1
  devices:
  - attributes: {dra.net/rdma: {bool: true}}
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-cards}
spec:
  driver: dra.net
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: pci-0000-91-00-0
    attributes: {dra.net/rdma: {bool: true}}
""",
)
def broken_slice(context: Context) -> Iterator[Finding]:
    for obj in context.world.objects:
        if obj.kind == "ResourceSlice":
            for path, message in slice_problems(obj):
                yield finding("broken-slice", obj, path, message, "record it again: kubectl get resourceslices -o yaml")


@rule(
    "requests-instead-of-count",
    WARNING,
    "Several alike requests instead of one count",
    why="One request with a count is searched in combinations, k requests in permutations: where they do not fit, "
    "the scheduler tries every order and may run into its time-out.",
    bad="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: nics}
spec:
  devices:
    requests:
    - {name: nic-0, exactly: {deviceClassName: dranet}}
    - {name: nic-1, exactly: {deviceClassName: dranet}}
""",
    good="""
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: nics}
spec:
  devices:
    requests:
    - {name: nics, exactly: {deviceClassName: dranet, count: 2}}
""",
)
def requests_instead_of_count(context: Context) -> Iterator[Finding]:
    for claim in context.world.claims:
        alike: dict[str, list[Request]] = {}
        for request in claim.requests:
            if "/" not in request.name and request.mode == "ExactCount" and not _named(claim, request):
                body = mapping(reach(claim.owner.data, request.path))
                key = repr(sorted((k, repr(v)) for k, v in body.items() if k not in {"name", "count"}))
                alike.setdefault(key, []).append(request)
        for group in alike.values():
            if len(group) > 1:
                total = sum(request.count for request in group)
                names = ", ".join(request.name for request in group)
                message = (
                    f"requests {names} are alike: {len(group)} requests cost the scheduler up to {len(group)}! orders"
                )
                fix = f"write one request with count: {total}"
                yield finding("requests-instead-of-count", claim.owner, group[1].path, message, fix)


def _named(claim: Claim, request: Request) -> bool:
    """Whether a constraint or config speaks of this request alone: then it cannot simply be joined."""
    lists = [sequence(entry.get("requests")) for entry in (*claim.constraints, *claim.configs)]
    return any(request.name in names for names in lists)
