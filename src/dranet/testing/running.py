"""The kubelet's part of a pod's lifecycle: from allocated claims to running containers and back.

The times are those of the runtime, from its call of the hook to the reply: the pod does not start before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dranet.core.names import DRIVER_NAME, ClaimRef
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient
from dranet.testing.cluster import ClusterNode
from dranet.testing.controllers import claim_names, write_status
from dranet.testing.node import ContainerView, SandboxPod

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One device in a claim's allocation."""

    request: str
    driver: str
    pool: str
    device: str


@dataclass(slots=True)
class RunningPod:
    """A running pod with its devices and containers."""

    name: str
    node: ClusterNode
    object: Object
    sandbox: SandboxPod
    devices: tuple[AllocatedDevice, ...]
    containers: Mapping[str, ContainerView]
    attach_ms: float
    detach_ms: float | None = None

    @property
    def nics(self) -> tuple[str, ...]:
        """The pod's devices of our driver."""
        return tuple(item.device for item in self.devices if item.driver == DRIVER_NAME)

    @property
    def char_devices(self) -> list[str]:
        """The paths of device nodes in its containers."""
        return sorted({path for view in self.containers.values() for path in view.devices})


async def start(client: KubeClient, node: ClusterNode, pod: Object) -> RunningPod:
    """Prepare the claims, start the sandbox, create the containers."""
    claims = [await _claim(client, pod, name) for name in claim_names(pod).values()]
    devices = tuple(item for claim in claims for item in allocated_devices(claim))
    ours = [_reference(claim) for claim in claims if any(d.driver == DRIVER_NAME for d in allocated_devices(claim))]
    metadata = pod["metadata"]
    sandbox = SandboxPod(metadata["name"], metadata["uid"], metadata["namespace"], claims=ours)
    await node.node.prepare(sandbox)
    await node.node.run_sandbox(sandbox)
    views = {c["name"]: await node.node.create_container(sandbox, c["name"], names_claims=_names(c)) for c in _all(pod)}
    status = {**(pod.get("status") or {}), "phase": "Running"}
    running = await write_status(client, resources.PODS, pod, status)
    return RunningPod(
        metadata["name"], node, running, sandbox, devices, views, attach_ms=sandbox.hook_seconds["run"] * 1000
    )


async def stop(client: KubeClient, pod: RunningPod) -> None:
    """Stop the sandbox, unprepare the claims, and clear their status in the API server."""
    await pod.node.node.stop_sandbox(pod.sandbox)
    pod.detach_ms = pod.sandbox.hook_seconds["stop"] * 1000
    await pod.node.node.unprepare(pod.sandbox)
    for name in claim_names(pod.object).values():
        claim = await _claim(client, pod.object, name)
        await write_status(client, resources.RESOURCE_CLAIMS, claim, {})


def allocated_devices(claim: Object) -> list[AllocatedDevice]:
    """The devices of an allocated claim, in the order of the results."""
    results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    return [AllocatedDevice(r["request"], r["driver"], r["pool"], r["device"]) for r in results]


async def _claim(client: KubeClient, pod: Object, name: str) -> Object:
    return await client.get(resources.RESOURCE_CLAIMS, name, pod["metadata"]["namespace"])


def _reference(claim: Object) -> ClaimRef:
    metadata = claim["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])


def _all(pod: Object) -> list[Object]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _names(container: Object) -> bool:
    return bool((container.get("resources") or {}).get("claims"))
