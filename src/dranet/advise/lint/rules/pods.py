"""Pods: what their containers need to use a NIC, and names that must agree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dranet.advise.lint.rules.base import (
    ERROR,
    WARNING,
    Context,
    Finding,
    claim_example,
    config_example,
    finding,
    request_example,
    rule,
    selectors_example,
    template_example,
)
from dranet.advise.lint.rules.parameters import interface_name
from dranet.advise.manifests import Claim, FieldPath, PodSet, containers
from dranet.core.names import DRIVER_NAME
from dranet.core.netconfig import CHILD_TYPES
from dranet.core.netconfig_merge import supports_multiple_pods
from dranet.core.untyped import as_dict, as_list

_POD_WITH_NIC = """
apiVersion: v1
kind: Pod
metadata: {name: worker}
spec:
  resourceClaims:
  - {name: nic, resourceClaimTemplateName: nic}
  containers:
  - name: worker
    image: example
"""
_NAMED = "    resources: {claims: [{name: nic}]}\n"
_LOCK = "    securityContext: {capabilities: {add: [IPC_LOCK]}}\n"
_RENAMED = config_example(name="dranet0")
_RDMA_NIC = request_example(selectors=selectors_example('device.attributes["dra.net"].rdma == true'))
_DEPLOYMENT = """
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
"""


def _pod_example(*container: str, **lists: str) -> str:
    return _POD_WITH_NIC + "".join(container) + "---\n" + template_example(_RDMA_NIC, **lists)


def _uses_driver(context: Context, claim: Claim, driver: str) -> bool:
    """Whether the class or a selector of a request names this driver."""
    for request in claim.requests:
        spec = as_dict(context.manifests.classes.get(request.device_class, {}).get("spec"))
        texts = [repr(spec.get("selectors")), request.device_class, *(s.text for s in request.selectors)]
        if any(driver in text for text in texts):
            return True
    return False


@rule(
    "claim-not-named",
    WARNING,
    "A claim that no container names",
    why="A container gets the GPUs of a claim only if it names the claim. NICs are in the pod in any case, but only a "
    "container that names the claim waits for them, and gets exactly the RDMA devices of the claim.",
    bad=_pod_example(_LOCK),
    good=_pod_example(_LOCK, _NAMED),
)
def claim_not_named(context: Context) -> Iterator[Finding]:
    for pod in context.manifests.pods:
        named = set(_named_claims(pod))
        for i, ref in enumerate(pod.claims):
            if ref.name not in named:
                message = f"no container has the claim {ref.name!r} in resources.claims"
                fix = f"add to a container: resources: {{claims: [{{name: {ref.name}}}]}}"
                yield finding(pod.source, (*pod.path, "resourceClaims", i), message, fix)


def _named_claims(pod: PodSet) -> Iterator[str]:
    for _, _, container in containers(pod.spec):
        for entry in as_list(as_dict(container.get("resources")).get("claims")):
            yield str(as_dict(entry).get("name", ""))


@rule(
    "unknown-claim-name",
    ERROR,
    "A container that names a claim which the pod does not have",
    why="The API server rejects the pod.",
    bad=_pod_example(_LOCK, "    resources: {claims: [{name: nics}]}\n"),
    good=_pod_example(_LOCK, _NAMED),
)
def unknown_claim_name(context: Context) -> Iterator[Finding]:
    for pod in context.manifests.pods:
        known = {ref.name for ref in pod.claims}
        for group, i, container in containers(pod.spec):
            for j, entry in enumerate(as_list(as_dict(container.get("resources")).get("claims"))):
                name = str(as_dict(entry).get("name", ""))
                if name not in known:
                    where = (*pod.path, group, i, "resources", "claims", j)
                    fix = f"claims of this pod: {', '.join(sorted(known)) or 'none'}"
                    yield finding(pod.source, where, f"the pod has no claim {name!r}", fix)


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
    "MPI or NCCL is configured for an interface that the pod does not have",
    why="NCCL and MPI fall back to eth0, or hang, if the configured interface does not exist.",
    bad=_pod_example(_NAMED, _LOCK, "    env: [{name: NCCL_SOCKET_IFNAME, value: net1}]\n", config=_RENAMED),
    good=_pod_example(_NAMED, _LOCK, "    env: [{name: NCCL_SOCKET_IFNAME, value: dranet0}]\n", config=_RENAMED),
)
def interface_name_mismatch(context: Context) -> Iterator[Finding]:
    for pods in _by_owner(context.manifests.pods):
        names = _interfaces(context, pods)
        if names is None:
            continue
        for pod in pods:
            for path, value in _configured_interfaces(pod):
                for name in _missing(value, names):
                    message = f"{name!r} is not an interface of these pods; they have {', '.join(sorted(names))}"
                    fix = "use one of them, or set interface.name in the config of the claim"
                    yield finding(pod.source, path, message, fix)
    rdma = _values(context, "dra.net/rdmaDevice")
    for pod in context.manifests.pods if rdma else ():
        for path, value in _environment(pod, _RDMA_VARIABLES):
            for name in _missing(value, rdma):
                message = f"{name!r} is not an RDMA device of these machines; they have {', '.join(sorted(rdma))}"
                yield finding(pod.source, path, message, "use one of them, or remove the variable")


def _by_owner(pods: list[PodSet]) -> Iterable[list[PodSet]]:
    """Pods of one workload, which communicate: a variable may name an interface of any of them."""
    groups: dict[int, list[PodSet]] = {}
    for pod in pods:
        groups.setdefault(id(pod.owner), []).append(pod)
    return groups.values()


def _interfaces(context: Context, pods: list[PodSet]) -> set[str] | None:
    """Interface names in these pods; None if a NIC keeps a name that is not known here."""
    found = set(_ALWAYS)
    claims = [claim for pod in pods for claim in context.manifests.claims_of(pod)]
    nic_claims = [claim for claim in claims if _uses_driver(context, claim, DRIVER_NAME)]
    if not nic_claims or any(context.manifests.claim_of(pod, ref) is None for pod in pods for ref in pod.claims):
        return None
    for claim in nic_claims:
        renamed = {name for config in claim.configs if (name := interface_name(config))}
        if not renamed and context.hardware is None:
            return None
        found |= renamed or _values(context, "dra.net/ifName")
    return found


def _values(context: Context, attribute: str) -> set[str]:
    """String values of an attribute on these machines; empty without hardware."""

    def gather() -> set[str]:
        units = context.hardware.devices if context.hardware else []
        values = (as_dict(as_dict(unit.raw.get("attributes")).get(attribute)).get("string") for unit in units)
        return {value for value in values if isinstance(value, str)}

    return context.cached(("texts", attribute), gather)


def _environment(pod: PodSet, names: tuple[str, ...]) -> Iterator[tuple[FieldPath, str]]:
    for group, i, container in containers(pod.spec):
        for j, entry in enumerate(as_list(container.get("env"))):
            one = as_dict(entry)
            if one.get("name") in names and isinstance(one.get("value"), str):
                yield (*pod.path, group, i, "env", j, "value"), one["value"]


def _configured_interfaces(pod: PodSet) -> Iterator[tuple[FieldPath, str]]:
    yield from _environment(pod, _VARIABLES)
    for group, i, container in containers(pod.spec):
        base: FieldPath = (*pod.path, group, i)
        for key in ("command", "args"):
            for j, text in enumerate(as_list(container.get(key))):
                for match in _IN_TEXT.finditer(str(text)):
                    yield (*base, key, j), match[1]
            words = [str(word) for word in as_list(container.get(key))]
            for j in range(len(words) - 1):
                if words[j] in {"btl_tcp_if_include", "oob_tcp_if_include"}:
                    yield (*base, key, j + 1), words[j + 1]


def _missing(value: str, names: set[str]) -> list[str]:
    """Names in an interface list that match nothing. NCCL accepts prefixes, ``=`` for exact and ``^`` for exclusion."""
    if value.startswith("^") or re.fullmatch(r"[\d./,]+", value):
        return []
    exact = value.startswith("=")
    wanted = [part.partition(":")[0] for part in value.lstrip("=").split(",") if part]
    return [w for w in wanted if not any(name == w or (not exact and name.startswith(w)) for name in names)]


@rule(
    "claim-shared-by-pods",
    ERROR,
    "Several pods with one claim for NICs",
    why="The scheduler reserves a claim for all pods that name it, but a NIC can be in one pod only: the others wait "
    "until it terminates. Only child interfaces without a fixed address (`SLAAC`, `DHCP` or `Unnumbered`) are created "
    "for each pod.",
    bad=_DEPLOYMENT.format(replicas=2) + claim_example(request_example()),
    good=_DEPLOYMENT.format(replicas=1) + claim_example(request_example()),
)
def claim_shared_by_pods(context: Context) -> Iterator[Finding]:
    users: dict[int, list[tuple[PodSet, int, Claim]]] = {}
    for pod in context.manifests.pods:
        for i, ref in enumerate(pod.claims):
            claim = context.manifests.claim_of(pod, ref) if ref.claim else None
            if (
                claim is not None
                and _uses_driver(context, claim, DRIVER_NAME)
                and not supports_multiple_pods(claim.configs)
            ):
                users.setdefault(id(claim), []).append((pod, i, claim))
    for found in users.values():
        pods = sum(2 if pod.per_node else len(pod.names) for pod, _, _ in found)
        if pods > 1:
            pod, i, claim = found[-1]
            where = (*pod.path, "resourceClaims", i)
            several = "every pod of the DaemonSet" if pod.per_node else f"{pods} pods"
            message = f"{several} use the claim {claim.owner.name!r}, but its NICs can be in one pod only"
            fix = "use resourceClaimTemplateName: Kubernetes then creates a claim for each pod"
            yield finding(pod.source, where, message, fix)


_USER = "    securityContext: {{runAsUser: {user}, capabilities: {{add: [IPC_LOCK]}}}}\n"


def _requests_rdma(context: Context, claim: Claim) -> bool:
    texts = [s.text for request in claim.requests for s in request.selectors]
    texts += [repr(context.manifests.classes.get(request.device_class)) for request in claim.requests]
    return _uses_driver(context, claim, DRIVER_NAME) and any("rdma" in text.lower() for text in texts)


def _rdma_containers(context: Context, pod: PodSet) -> list[tuple[int, dict[str, Any]]]:
    """Containers that use RDMA: those that name a claim, else all; none without a claim for RDMA."""
    if not any(_requests_rdma(context, claim) for claim in context.manifests.claims_of(pod)):
        return []
    mains = [(i, c) for group, i, c in containers(pod.spec) if group == "containers"]
    return [(i, c) for i, c in mains if _names_claim(c)] or mains


@rule(
    "missing-ipc-lock",
    WARNING,
    "A container that uses RDMA without IPC_LOCK",
    why="RDMA pins memory. Without the capability, registering more than a few kilobytes fails.",
    bad=_pod_example(_NAMED),
    good=_pod_example(_NAMED, _LOCK),
)
def missing_ipc_lock(context: Context) -> Iterator[Finding]:
    for pod in context.manifests.pods:
        users = [(i, c) for i, c in _rdma_containers(context, pod) if not _runs_as_non_root(pod, c)]
        if any(_may_lock(container) for _, container in users):
            continue
        for i, container in users[:1]:
            message = f"container {container.get('name', i)!r} uses RDMA without the capability IPC_LOCK"
            fix = "add securityContext: {capabilities: {add: [IPC_LOCK]}}"
            yield finding(pod.source, (*pod.path, "containers", i), message, fix)


def _may_lock(container: dict[str, Any]) -> bool:
    return _has_capability(container, "IPC_LOCK")


def _names_claim(container: dict[str, Any]) -> bool:
    return bool(as_list(as_dict(container.get("resources")).get("claims")))


def _runs_as_non_root(pod: PodSet, container: dict[str, Any]) -> bool:
    """Whether the manifest sets a user other than root. If it sets none, the image decides."""
    layers = [as_dict(container.get("securityContext")), as_dict(pod.spec.get("securityContext"))]
    user = next((layer["runAsUser"] for layer in layers if layer.get("runAsUser") is not None), None)
    if user is not None:
        return bool(user != 0)
    return next((layer["runAsNonRoot"] for layer in layers if layer.get("runAsNonRoot") is not None), False) is True


@rule(
    "memlock-of-non-root",
    WARNING,
    "A container that uses RDMA without running as root",
    why="Only root gets the capabilities of a container. Other users keep the runtime's limit of locked memory (8 MiB "
    "by default) even with IPC_LOCK: registering memory fails, and libraries fall back to TCP. Manifests cannot raise "
    "the limit; this driver (`--lift-memlock`) and the service of the runtime can.",
    bad=_pod_example(_NAMED, _USER.format(user=1000)),
    good=_pod_example(_NAMED, _USER.format(user=0)),
)
def memlock_of_non_root(context: Context) -> Iterator[Finding]:
    for pod in context.manifests.pods:
        for i, container in _rdma_containers(context, pod):
            if _runs_as_non_root(pod, container):
                message = f"container {container.get('name', i)!r} is not root and cannot pin memory beyond the limit"
                fix = "run as root with IPC_LOCK; or start the driver with --lift-memlock and disable this rule"
                yield finding(pod.source, (*pod.path, "containers", i), message, fix)


_ADMIN = "    securityContext: {capabilities: {add: [NET_ADMIN, IPC_LOCK]}}\n"
_CHILD = config_example(type="Macvlan", addresses=["10.1.0.5/24"])


@rule(
    "child-with-net-admin",
    WARNING,
    "A pod that may reconfigure its child of a NIC",
    why="The kernel lets a pod with NET_ADMIN change its IPVLAN or Macvlan child so that it receives packets of other "
    "pods and of the node, or disturbs all children of the NIC. Children are for pods that trust each other.",
    bad=_pod_example(_ADMIN, _NAMED, config=_CHILD),
    good=_pod_example(_LOCK, _NAMED, config=_CHILD),
)
def child_with_net_admin(context: Context) -> Iterator[Finding]:
    for pod in context.manifests.pods:
        kinds = {kind for claim in context.manifests.claims_of(pod) for kind in _child_types(claim)}
        for group, i, container in containers(pod.spec) if kinds else ():
            if _has_capability(container, "NET_ADMIN"):
                where = (*pod.path, group, i, "securityContext")
                own = " and ".join(sorted(kinds))
                message = f"the container may reconfigure its {own} interface and receive packets of others"
                fix = "remove NET_ADMIN and privileged, or request a virtual function or a whole NIC"
                yield finding(pod.source, where, message, fix)


def _child_types(claim: Claim) -> Iterator[str]:
    for config in claim.configs:
        opaque = as_dict(config.get("opaque"))
        kind = as_dict(as_dict(opaque.get("parameters")).get("interface")).get("type")
        if opaque.get("driver") == DRIVER_NAME and kind in CHILD_TYPES:
            yield str(kind)


def _has_capability(container: dict[str, Any], capability: str) -> bool:
    security = as_dict(container.get("securityContext"))
    added = {str(one).removeprefix("CAP_") for one in as_list(as_dict(security.get("capabilities")).get("add"))}
    return security.get("privileged") is True or bool(added & {capability, "ALL"})
