"""Sandboxes and containers of the runtime: which sandbox should have a plan's devices, and what a container gets.

A runtime keeps a stopped sandbox in its list until the kubelet removes it, minutes or days later, and its list has no
order. A pod may have several sandboxes, and only one can have its devices. The kernel knows which namespaces still
exist, and the plan which of them got the devices; the list decides only where both leave it open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dranet.kubernetes.nri.messages import (
    Container,
    ContainerAdjustment,
    CreateContainerResponse,
    LinuxContainerAdjustment,
    LinuxDevice,
    PodSandbox,
    POSIXRlimit,
)
from dranet.linux import namespaces
from dranet.node.edits.container_edits import cdi_device_name, claim_variable
from dranet.node.records.plan import ClaimPlan, PodRef

_NO_LIMIT = (1 << 64) - 1


class Sandbox(NamedTuple):
    """One sandbox: its network namespace, empty for the host's, and whether the runtime reports a process."""

    netns: str
    runs: bool = True


SandboxesByPod = Mapping[str, Sequence[Sandbox]]
"""The runtime's list, by pod UID."""


def pod_ref(pod: PodSandbox) -> PodRef:
    return PodRef(uid=pod.uid, name=pod.name, namespace=pod.namespace)


def network_namespace(pod: PodSandbox) -> str:
    """The path of the pod's network namespace; empty for a pod on the host's network."""
    return next((namespace.path for namespace in pod.linux.namespaces if namespace.type == "network"), "")


def may_run(pod: PodSandbox) -> bool:
    """Whether a listed sandbox may be running. CRI-O reports no process for any, so its namespace decides there."""
    netns = network_namespace(pod)
    return pod.pid != 0 or (bool(netns) and namespaces.exists(netns))


def sandboxes_by_pod(pods: Iterable[PodSandbox]) -> dict[str, list[Sandbox]]:
    """Every sandbox under the UID of its pod."""
    found: dict[str, list[Sandbox]] = {}
    for pod in pods:
        # A stopped sandbox has no process. In a runtime that never reports processes, all sandboxes look the same.
        found.setdefault(pod.uid, []).append(Sandbox(network_namespace(pod), runs=pod.pid != 0))
    return found


def target_namespace(plan: ClaimPlan, sandboxes: Sequence[Sandbox]) -> str | None:
    """The namespace that should have the plan's devices; None where no sandbox of the pod is left.

    Among several that exist, a running one comes before a stopped one, and the one that has the devices before any
    other: the list alone never takes a device out of a pod.
    """
    left = [sandbox for sandbox in sandboxes if sandbox.netns and namespaces.exists(sandbox.netns)]
    candidates = [sandbox.netns for sandbox in left if sandbox.runs] or [sandbox.netns for sandbox in left]
    if plan.netns in candidates:
        return plan.netns
    return max(candidates, default=None)


def names_claim(container: Container, plan: ClaimPlan) -> bool:
    """Whether a container names the claim. Not every runtime reports a container's CDI devices, so the variable that
    the claim's CDI spec sets counts too."""
    if any(device.name == cdi_device_name(plan.ref.uid) for device in container.CDI_devices):
        return True
    return any(item.partition("=")[0] == claim_variable(plan.name) for item in container.env)


def container_adjustment(
    plans: Sequence[ClaimPlan], container: Container, *, gates_visible: bool = True, lift_memlock: bool = False
) -> CreateContainerResponse:
    """The reply to CreateContainer for a pod with these claims.

    Where containers name a claim, its CDI spec (the readiness gate) gives the RDMA devices to those containers only.
    Where no container does, as in many manifests that list the claim only for the pod, all containers get them, as with
    the reference driver. A CDI spec cannot set resource limits, so the hook always does.
    """
    nodes = {node.path: node for plan in plans if not (plan.named and gates_visible) for node in plan.char_devices}
    lift = lift_memlock and (bool(nodes) or any(plan.char_devices and names_claim(container, plan) for plan in plans))
    if not nodes and not lift:
        return CreateContainerResponse()
    devices = [
        LinuxDevice(path=path, type="c", major=nodes[path].major, minor=nodes[path].minor) for path in sorted(nodes)
    ]
    limit = POSIXRlimit(type="RLIMIT_MEMLOCK", hard=_NO_LIMIT, soft=_NO_LIMIT)
    return CreateContainerResponse(
        adjust=ContainerAdjustment(
            linux=LinuxContainerAdjustment(devices=devices),
            rlimits=[limit] if lift else [],
        )
    )
