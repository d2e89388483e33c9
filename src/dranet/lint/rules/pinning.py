"""RDMA pins memory: what a container needs to be allowed to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dranet.lint.rules.base import WARNING, Context, Finding, finding, rule
from dranet.lint.rules.pods import LOCK, NAMED, pod_example, uses_driver
from dranet.manifests.claim_views import Claim
from dranet.manifests.workloads import PodSpec, containers, mapping, sequence
from dranet.model.names import DRIVER_NAME

_USER = "    securityContext: {{runAsUser: {user}, capabilities: {{add: [IPC_LOCK]}}}}"


def _wants_rdma(context: Context, claim: Claim) -> bool:
    texts = [s.text for request in claim.requests for s in request.selectors]
    texts += [repr(context.world.classes.get(request.device_class)) for request in claim.requests]
    return uses_driver(context, claim, DRIVER_NAME) and any("rdma" in text.lower() for text in texts)


def _users(context: Context, pod: PodSpec) -> list[tuple[int, dict[str, Any]]]:
    """The containers that will pin memory: those that name a claim, else all; none where no claim asks for RDMA."""
    if not any(_wants_rdma(context, claim) for claim in context.world.claims_of(pod)):
        return []
    mains = [(i, c) for group, i, c in containers(pod.spec) if group == "containers"]
    return [(i, c) for i, c in mains if _names_claim(c)] or mains


@rule(
    "missing-ipc-lock",
    WARNING,
    "A container that uses RDMA without IPC_LOCK",
    why="RDMA pins memory. Without the capability, registering it fails beyond a few kilobytes.",
    bad=pod_example(NAMED),
    good=pod_example(NAMED, LOCK),
)
def missing_ipc_lock(context: Context) -> Iterator[Finding]:
    for pod in context.world.pods:
        users = [(i, c) for i, c in _users(context, pod) if not _is_other_user(pod, c)]
        if any(_may_lock(container) for _, container in users):
            continue
        for i, container in users[:1]:
            message = f"container {container.get('name', i)!r} gets RDMA cards but not the capability IPC_LOCK"
            fix = "securityContext: {capabilities: {add: [IPC_LOCK]}}"
            yield finding("missing-ipc-lock", pod.source, (*pod.path, "containers", i), message, fix)


def _may_lock(container: dict[str, Any]) -> bool:
    security = mapping(container.get("securityContext"))
    added = sequence(mapping(security.get("capabilities")).get("add"))
    return security.get("privileged") is True or bool({"IPC_LOCK", "CAP_IPC_LOCK", "ALL"} & set(map(str, added)))


def _names_claim(container: dict[str, Any]) -> bool:
    return bool(sequence(mapping(container.get("resources")).get("claims")))


def _is_other_user(pod: PodSpec, container: dict[str, Any]) -> bool:
    """Whether it certainly runs as another user than root; the image decides where the manifest does not say."""
    layers = [mapping(container.get("securityContext")), mapping(pod.spec.get("securityContext"))]
    user = next((layer["runAsUser"] for layer in layers if layer.get("runAsUser") is not None), None)
    if user is not None:
        return bool(user != 0)
    return next((layer["runAsNonRoot"] for layer in layers if layer.get("runAsNonRoot") is not None), False) is True


@rule(
    "memlock-of-non-root",
    WARNING,
    "A container that uses RDMA and does not run as root",
    why="Capabilities of a container reach only root: another user keeps the runtime's limit of locked memory (8 MiB "
    "by default), IPC_LOCK or not. Registering memory fails, and libraries fall back to TCP. Manifests cannot raise "
    "the limit; this driver can (`--lift-memlock`), and so can the runtime's own service.",
    bad=pod_example(NAMED, _USER.format(user=1000)),
    good=pod_example(NAMED, _USER.format(user=0)),
)
def memlock_of_non_root(context: Context) -> Iterator[Finding]:
    for pod in context.world.pods:
        for i, container in _users(context, pod):
            if _is_other_user(pod, container):
                message = f"container {container.get('name', i)!r} is not root: it cannot pin memory beyond the limit"
                fix = "run as root with IPC_LOCK; or start the driver with --lift-memlock and disable this rule"
                yield finding("memlock-of-non-root", pod.source, (*pod.path, "containers", i), message, fix)
