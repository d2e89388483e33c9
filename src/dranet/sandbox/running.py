"""A pod's life on a sandbox machine: the kubelet's part, from allocated claims to running containers and back.

The times are those the runtime sees, from its call of the hook to the answer: while it waits, the pod does not start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dranet.kube import resources
from dranet.kube.client import KubeClient
from dranet.model.names import DRIVER_NAME, ClaimRef
from dranet.sandbox.cluster import ClusterNode
from dranet.sandbox.controllers import claim_names, write_status
from dranet.sandbox.node import ContainerView, SandboxPod

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Allotted:
    """One device of a claim, as the scheduler wrote it."""

    request: str
    driver: str
    pool: str
    device: str


@dataclass(slots=True)
class RunningPod:
    """A pod that runs, with all one may ask about it."""

    name: str
    node: ClusterNode
    object: Object
    sandbox: SandboxPod
    devices: tuple[Allotted, ...]
    containers: Mapping[str, ContainerView]
    attach_ms: float
    detach_ms: float | None = None

    @property
    def cards(self) -> tuple[str, ...]:
        """The devices our driver gave it."""
        return tuple(item.device for item in self.devices if item.driver == DRIVER_NAME)

    @property
    def char_devices(self) -> list[str]:
        """Device nodes its containers see, by path."""
        return sorted({path for view in self.containers.values() for path in view.devices})


async def start(client: KubeClient, node: ClusterNode, pod: Object) -> RunningPod:
    """Prepare the claims, start the sandbox, create the containers."""
    claims = [await _claim(client, pod, name) for name in claim_names(pod).values()]
    devices = tuple(item for claim in claims for item in allotted(claim))
    ours = [_reference(claim) for claim in claims if any(d.driver == DRIVER_NAME for d in allotted(claim))]
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
    """Stop the sandbox, let the claims go, and say so in the API server."""
    await pod.node.node.stop_sandbox(pod.sandbox)
    pod.detach_ms = pod.sandbox.hook_seconds["stop"] * 1000
    await pod.node.node.unprepare(pod.sandbox)
    for name in claim_names(pod.object).values():
        claim = await _claim(client, pod.object, name)
        await write_status(client, resources.RESOURCE_CLAIMS, claim, {})


def allotted(claim: Object) -> list[Allotted]:
    """What an allocated claim holds, in the order of its results."""
    results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    return [Allotted(r["request"], r["driver"], r["pool"], r["device"]) for r in results]


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
