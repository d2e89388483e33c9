"""What the API refuses, and what cannot be scheduled whatever the cluster has."""

from __future__ import annotations

from collections.abc import Iterator

from dranet.lint.rules.base import ERROR, WARNING, Context, Finding, finding, rule
from dranet.lint.rules.examples import claim_example
from dranet.manifests.claim_views import Claim, Request, empty_selectors, slice_problems
from dranet.manifests.workloads import mapping, reach, sequence
from dranet.predict.api_checks import NO_EXPRESSION, WRITE_EXPRESSION, claim_problems

DEVICES_PER_CLAIM = 32


@rule(
    "count-over-32",
    ERROR,
    "A claim for more than 32 devices",
    why="The API takes any count, but the scheduler never gives a claim more than 32 devices: the pod stays pending "
    "with an error on every attempt.",
    bad=claim_example(
        """
        requests:
        - name: nics
          exactly: {deviceClassName: dranet, count: 40}
        """,
        name="nics",
    ),
    good=claim_example(
        """
        requests:
        - name: nics
          exactly: {deviceClassName: dranet, count: 32}
        """,
        name="nics",
    ),
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
    bad=claim_example(
        """
        requests:
        - name: gpu
          exactly: {deviceClassName: gpu.nvidia.com}
        constraints:
        - requests: [gpu, nic]
          matchAttribute: resource.kubernetes.io/pcieRoot
        """,
        name="pair",
    ),
    good=claim_example(
        """
        requests:
        - name: gpu
          exactly: {deviceClassName: gpu.nvidia.com}
        - name: nic
          exactly: {deviceClassName: dranet}
        constraints:
        - requests: [gpu, nic]
          matchAttribute: resource.kubernetes.io/pcieRoot
        """,
        name="pair",
    ),
)
def api_limits(context: Context) -> Iterator[Finding]:
    for obj in context.world.objects:
        for where in empty_selectors(obj, ("spec",)) if obj.kind == "DeviceClass" else ():
            yield finding("api-limits", obj, where, NO_EXPRESSION, WRITE_EXPRESSION)
    for claim in context.world.claims:
        for path, message, fix in claim_problems(claim):
            yield finding("api-limits", claim.owner, path, message, fix)


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
    bad=claim_example(
        """
        requests:
        - {name: nic-0, exactly: {deviceClassName: dranet}}
        - {name: nic-1, exactly: {deviceClassName: dranet}}
        """,
        name="nics",
    ),
    good=claim_example(
        """
        requests:
        - {name: nics, exactly: {deviceClassName: dranet, count: 2}}
        """,
        name="nics",
    ),
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
