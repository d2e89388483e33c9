"""Pods: what their containers need to use a card, and names that must agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dranet.lint.rules.base import ERROR, WARNING, Context, Finding, finding, rule
from dranet.lint.rules.parameters import interface_name
from dranet.manifests.claim_views import Claim
from dranet.manifests.workloads import PodSpec, containers, mapping, sequence
from dranet.manifests.yaml_nodes import FieldPath
from dranet.model.names import DRIVER_NAME
from dranet.model.several_pods import serves_several_pods

_POD_WITH_NIC = """
apiVersion: v1
kind: Pod
metadata: {{name: worker}}
spec:
  resourceClaims:
  - {{name: nic, resourceClaimTemplateName: nic}}
  containers:
  - name: worker
    image: example
{container}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: nic}}
spec:
  spec:
    devices:
      requests:
      - name: nic
        exactly:
          deviceClassName: dranet
          selectors: [{{cel: {{expression: 'device.attributes["dra.net"].rdma == true'}}}}]
{config}"""
NAMED = "    resources: {claims: [{name: nic}]}"
LOCK = "    securityContext: {capabilities: {add: [IPC_LOCK]}}"
_RENAMED = """      config:
      - opaque: {driver: dra.net, parameters: {interface: {name: dranet0}}}
"""


_SHARED = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: worker}}
spec:
  replicas: {replicas}
  template:
    spec:
      resourceClaims: [{{name: nic, resourceClaimName: nic}}]
      containers: [{{name: worker, image: example, resources: {{claims: [{{name: nic}}]}}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: nic}}
spec:
  devices:
    requests: [{{name: nic, exactly: {{deviceClassName: dranet}}}}]
"""


def pod_example(*container: str, config: str = "") -> str:
    return _POD_WITH_NIC.format(container="\n".join(container), config=config)


def uses_driver(context: Context, claim: Claim, driver: str) -> bool:
    """Whether a request of the claim has a class or selector that speaks of this driver's devices."""
    for request in claim.requests:
        spec = mapping(context.world.classes.get(request.device_class, {}).get("spec"))
        texts = [repr(spec.get("selectors")), request.device_class, *(s.text for s in request.selectors)]
        if any(driver in text for text in texts):
            return True
    return False


@rule(
    "claim-not-named",
    WARNING,
    "No container names the claim",
    why="A container gets a claim's GPUs only if it names the claim. Network cards are in the pod anyway, but only a "
    "container that names the claim is kept from starting without them, and gets exactly the claim's RDMA devices.",
    bad=pod_example(LOCK),
    good=pod_example(LOCK, NAMED),
)
def claim_not_named(context: Context) -> Iterator[Finding]:
    for pod in context.world.pods:
        named = set(_named_claims(pod))
        for i, ref in enumerate(pod.claims):
            if ref.name not in named:
                message = f"no container names the claim {ref.name!r} in resources.claims"
                fix = f"resources: {{claims: [{{name: {ref.name}}}]}}"
                yield finding("claim-not-named", pod.source, (*pod.path, "resourceClaims", i), message, fix)


def _named_claims(pod: PodSpec) -> Iterator[str]:
    for _, _, container in containers(pod.spec):
        for entry in sequence(mapping(container.get("resources")).get("claims")):
            yield str(mapping(entry).get("name", ""))


@rule(
    "unknown-claim-name",
    ERROR,
    "A container names a claim the pod does not have",
    why="The API server refuses the pod.",
    bad=pod_example(LOCK, "    resources: {claims: [{name: nics}]}"),
    good=pod_example(LOCK, NAMED),
)
def unknown_claim_name(context: Context) -> Iterator[Finding]:
    for pod in context.world.pods:
        known = {ref.name for ref in pod.claims}
        for group, i, container in containers(pod.spec):
            for j, entry in enumerate(sequence(mapping(container.get("resources")).get("claims"))):
                name = str(mapping(entry).get("name", ""))
                if name not in known:
                    where = (*pod.path, group, i, "resources", "claims", j)
                    fix = f"claims of this pod: {', '.join(sorted(known)) or 'none'}"
                    yield finding("unknown-claim-name", pod.source, where, f"the pod has no claim {name!r}", fix)


_VARIABLES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
_RDMA_VARIABLES = ("NCCL_IB_HCA", "UCX_NET_DEVICES")
_IN_TEXT = re.compile(
    r"(?:(?:NCCL_SOCKET_IFNAME|GLOO_SOCKET_IFNAME|TP_SOCKET_IFNAME)[=\s]+"
    r"|(?:btl_tcp_if_include|oob_tcp_if_include)[=\s]+)([\w.:,=^-]+)"
)
_ALWAYS = {"lo", "eth0"}


@rule(
    "interface-name-mismatch",
    WARNING,
    "MPI or NCCL is told to use an interface the pod does not have",
    why="NCCL and MPI fall back to eth0, or hang, when the interface they are told to use is not there.",
    bad=pod_example(NAMED, LOCK, "    env: [{name: NCCL_SOCKET_IFNAME, value: net1}]", config=_RENAMED),
    good=pod_example(NAMED, LOCK, "    env: [{name: NCCL_SOCKET_IFNAME, value: dranet0}]", config=_RENAMED),
)
def interface_name_mismatch(context: Context) -> Iterator[Finding]:
    for pods in _by_owner(context.world.pods):
        names = _interfaces(context, pods)
        if names is None:
            continue
        for pod in pods:
            for path, value in _wanted(pod):
                for name in _missing(value, names):
                    message = f"{name!r} is no interface of these pods, which have {', '.join(sorted(names))}"
                    fix = "name one of them, or rename the card: config interface.name in the claim"
                    yield finding("interface-name-mismatch", pod.source, path, message, fix)
    rdma = _values(context, "dra.net/rdmaDevice")
    for pod in context.world.pods if rdma else ():
        for path, value in _environment(pod, _RDMA_VARIABLES):
            for name in _missing(value, rdma):
                message = f"{name!r} is no RDMA device of these machines, which have {', '.join(sorted(rdma))}"
                yield finding("interface-name-mismatch", pod.source, path, message, "name one of them, or none")


def _by_owner(pods: list[PodSpec]) -> Iterable[list[PodSpec]]:
    """Pods of one workload talk to each other: an interface of one of them is meant by all."""
    groups: dict[int, list[PodSpec]] = {}
    for pod in pods:
        groups.setdefault(id(pod.owner), []).append(pod)
    return groups.values()


def _interfaces(context: Context, pods: list[PodSpec]) -> set[str] | None:
    """Names of the interfaces these pods get; None where a card keeps a name that is not known here."""
    found = set(_ALWAYS)
    claims = [claim for pod in pods for claim in context.world.claims_of(pod)]
    cards = [claim for claim in claims if uses_driver(context, claim, DRIVER_NAME)]
    if not cards or any(context.world.claim_of(pod, ref) is None for pod in pods for ref in pod.claims):
        return None
    for claim in cards:
        renamed = {name for config in claim.configs if (name := interface_name(config))}
        if not renamed and context.hardware is None:
            return None
        found |= renamed or _values(context, "dra.net/ifName")
    return found


def _values(context: Context, attribute: str) -> set[str]:
    """The texts an attribute has on these machines; none where no machines are given."""

    def gather() -> set[str]:
        units = context.hardware.units if context.hardware else []
        values = (mapping(mapping(unit.raw.get("attributes")).get(attribute)).get("string") for unit in units)
        return {value for value in values if isinstance(value, str)}

    return context.once(("texts", attribute), gather)


def _environment(pod: PodSpec, names: tuple[str, ...]) -> Iterator[tuple[FieldPath, str]]:
    for group, i, container in containers(pod.spec):
        for j, entry in enumerate(sequence(container.get("env"))):
            one = mapping(entry)
            if one.get("name") in names and isinstance(one.get("value"), str):
                yield (*pod.path, group, i, "env", j, "value"), one["value"]


def _wanted(pod: PodSpec) -> Iterator[tuple[FieldPath, str]]:
    yield from _environment(pod, _VARIABLES)
    for group, i, container in containers(pod.spec):
        base: FieldPath = (*pod.path, group, i)
        for key in ("command", "args"):
            for j, text in enumerate(sequence(container.get(key))):
                for match in _IN_TEXT.finditer(str(text)):
                    yield (*base, key, j), match[1]
            words = [str(word) for word in sequence(container.get(key))]
            for j in range(len(words) - 1):
                if words[j] in {"btl_tcp_if_include", "oob_tcp_if_include"}:
                    yield (*base, key, j + 1), words[j + 1]


def _missing(value: str, names: set[str]) -> list[str]:
    """Names in an interface list that match nothing; NCCL takes prefixes, ``=`` for exact and ``^`` for exclusion."""
    if value.startswith("^") or re.fullmatch(r"[\d./,]+", value):
        return []
    exact = value.startswith("=")
    wanted = [part.partition(":")[0] for part in value.lstrip("=").split(",") if part]
    return [w for w in wanted if not any(name == w or (not exact and name.startswith(w)) for name in names)]


@rule(
    "claim-shared-by-pods",
    ERROR,
    "Several pods name one claim for network cards",
    why="The scheduler reserves a claim for all pods that name it, but a network card can be in one pod only: the "
    "others wait until it has ended. Only of children without an address of their own (`SLAAC`, `DHCP` or "
    "`Unnumbered`) each pod gets one.",
    bad=_SHARED.format(replicas=2),
    good=_SHARED.format(replicas=1),
)
def claim_shared_by_pods(context: Context) -> Iterator[Finding]:
    users: dict[int, list[tuple[PodSpec, int, Claim]]] = {}
    for pod in context.world.pods:
        for i, ref in enumerate(pod.claims):
            claim = context.world.claim_of(pod, ref) if ref.claim else None
            if (
                claim is not None
                and uses_driver(context, claim, DRIVER_NAME)
                and not serves_several_pods(claim.configs)
            ):
                users.setdefault(id(claim), []).append((pod, i, claim))
    for found in users.values():
        pods = sum(2 if pod.per_node else len(pod.names) for pod, _, _ in found)
        if pods > 1:
            pod, i, claim = found[-1]
            where = (*pod.path, "resourceClaims", i)
            several = "every pod of the DaemonSet" if pod.per_node else f"{pods} pods"
            message = f"{several} would use the claim {claim.owner.name!r}: its cards go into one of them only"
            fix = "use resourceClaimTemplateName: a template makes a claim for each pod"
            yield finding("claim-shared-by-pods", pod.source, where, message, fix)
