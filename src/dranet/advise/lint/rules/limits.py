"""Objects that the API server rejects, and claims that cannot be scheduled in any cluster."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.advise.lint.rules.base import (
    ERROR,
    WARNING,
    Context,
    Finding,
    claim_example,
    finding,
    request_example,
    rule,
)
from dranet.advise.manifests import Claim, Request, empty_selectors, parse_slice
from dranet.advise.plan.claim_validation import NO_EXPRESSION, WRITE_EXPRESSION, claim_problems
from dranet.core.untyped import as_dict, as_list, get_path

_DEVICES_PER_CLAIM = 32
_SAME_ROOT = "- requests: [gpu, nic]\n  matchAttribute: resource.kubernetes.io/pcieRoot\n"
_SLICE = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: node-1-nics}
spec:
  driver: dra.net
  nodeName: node-1
"""


@rule(
    "count-over-32",
    ERROR,
    "A claim for more than 32 devices",
    why="The API accepts any count, but the scheduler allocates at most 32 devices to a claim: the pod stays pending.",
    bad=claim_example(request_example("nics", count=40), name="nics"),
    good=claim_example(request_example("nics", count=32), name="nics"),
)
def count_over_32(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        least: dict[str, tuple[int, Request]] = {}
        for request in claim.requests:
            asked = 1 if request.mode == "All" else request.count
            if request.parent not in least or asked < least[request.parent][0]:
                least[request.parent] = (asked, request)
        total = sum(count for count, _ in least.values())
        if total > _DEVICES_PER_CLAIM:
            largest = max(least.values(), key=lambda entry: entry[0])[1]
            message = (
                f"the claim requests {total} devices; the scheduler allocates at most {_DEVICES_PER_CLAIM} to a claim"
            )
            where = (*largest.path, "count")
            yield finding(claim.owner, where, message, "split them over several claims of the pod")


@rule(
    "api-limits",
    ERROR,
    "An object that the API server rejects",
    why="The API server validates names, references and list lengths when an object is created.",
    bad=claim_example(request_example("gpu", "gpu.nvidia.com"), constraints=_SAME_ROOT, name="pair"),
    good=claim_example(
        request_example("gpu", "gpu.nvidia.com"), request_example(), constraints=_SAME_ROOT, name="pair"
    ),
)
def api_limits(context: Context) -> Iterator[Finding]:
    for obj in context.manifests.objects:
        for where in empty_selectors(obj, ("spec",)) if obj.kind == "DeviceClass" else ():
            yield finding(obj, where, NO_EXPRESSION, WRITE_EXPRESSION)
    for claim in context.manifests.claims:
        for path, message, fix in claim_problems(claim):
            yield finding(claim.owner, path, message, fix)


@rule(
    "broken-slice",
    ERROR,
    "An incomplete ResourceSlice",
    why="A slice needs a driver and a pool, a device a name, and an attribute exactly one value.",
    bad=_SLICE + "  devices:\n  - attributes: {dra.net/rdma: {bool: true}}\n",
    good=_SLICE
    + "  pool: {name: node-1, generation: 1, resourceSliceCount: 1}\n"
    + "  devices:\n  - name: pci-0000-91-00-0\n    attributes: {dra.net/rdma: {bool: true}}\n",
)
def broken_slice(context: Context) -> Iterator[Finding]:
    for obj in context.manifests.objects:
        if obj.kind == "ResourceSlice":
            for path, message in parse_slice(obj)[1]:
                yield finding(obj, path, message, "export it again: kubectl get resourceslices -o yaml")


@rule(
    "requests-instead-of-count",
    WARNING,
    "Several equal requests instead of one with a count",
    why="The scheduler tries combinations for one request with a count, but permutations for several requests. If they "
    "do not fit, it tries every order and may reach its timeout.",
    bad=claim_example(request_example("nic-0"), request_example("nic-1"), name="nics"),
    good=claim_example(request_example("nics", count=2), name="nics"),
)
def requests_instead_of_count(context: Context) -> Iterator[Finding]:
    for claim in context.manifests.claims:
        equal: dict[str, list[Request]] = {}
        for request in claim.requests:
            if "/" not in request.name and request.mode == "ExactCount" and not _is_named(claim, request):
                body = as_dict(get_path(claim.owner.data, *request.path))
                key = repr(sorted((k, repr(v)) for k, v in body.items() if k not in {"name", "count"}))
                equal.setdefault(key, []).append(request)
        for group in equal.values():
            if len(group) > 1:
                total = sum(request.count for request in group)
                names = ", ".join(request.name for request in group)
                message = f"requests {names} are equal: the scheduler may try {len(group)}! orders of them"
                fix = f"write one request with count: {total}"
                yield finding(claim.owner, group[1].path, message, fix)


def _is_named(claim: Claim, request: Request) -> bool:
    """Whether a constraint or config names this request: then it cannot simply be merged."""
    lists = [as_list(entry.get("requests")) for entry in (*claim.constraints, *claim.configs)]
    return any(request.name in names for names in lists)
