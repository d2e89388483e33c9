"""The scheduler of the sandbox: our prediction of kube-scheduler, put to work.

It reads slices, classes and claims from the API server, asks the allocator about every machine, and writes the choice
down as kube-scheduler does: allocation and reservation into the claims, the machine's name into the pod. Among machines
that fit, devices do not decide; it takes the one with the fewest pods of the same workload, then the fewest pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dranet.allocation.allocator import ClusterDevices
from dranet.allocation.outcome import Allocation
from dranet.kube import resources
from dranet.kube.client import KubeClient
from dranet.sandbox.cluster import SandboxError
from dranet.sandbox.controllers import claim_names, write_status

Object = dict[str, Any]
_CLAIMS = resources.RESOURCE_CLAIMS


class Unschedulable(SandboxError):
    """No machine can run the pod; says why for each."""


class Scheduler:
    """Schedules one pod after the other."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def schedule(self, pod: Object) -> Object:
        """Choose devices and machine for a pod and write them down; the pod as it is now."""
        namespace = pod["metadata"]["namespace"]
        claims = [await self._client.get(_CLAIMS, name, namespace) for name in claim_names(pod).values()]
        node, allocations = await self._choose(pod, claims)
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for claim, allocation in zip(claims, allocations, strict=True):
            await write_status(self._client, _CLAIMS, claim, {"allocation": allocation, "reservedFor": [user]})
        binding = {"spec": {"nodeName": node}}
        return await self._client.merge_patch(resources.PODS, pod["metadata"]["name"], binding, namespace)

    async def _choose(self, pod: Object, claims: Sequence[Object]) -> tuple[str, list[Object]]:
        offer = await self._offer()
        reasons: list[str] = []
        for node in await self._by_preference(pod):
            found = offer.allocate({"name": node}, claims)
            if isinstance(found, Allocation):
                return node, found.results
            reasons.append(f"{node}: {found.message}")
        raise Unschedulable(f"pod {pod['metadata']['name']} fits on no machine ({'; '.join(reasons)})")

    async def _offer(self) -> ClusterDevices:
        """Everything there is, and what of it is taken."""
        slices, _ = await self._client.list(resources.RESOURCE_SLICES)
        classes, _ = await self._client.list(resources.DEVICE_CLASSES)
        claims, _ = await self._client.list(_CLAIMS)
        allocations = ((claim.get("status") or {}).get("allocation") or {} for claim in claims)
        taken = [result for one in allocations for result in (one.get("devices") or {}).get("results") or ()]
        return ClusterDevices(slices, classes, allocated=taken)

    async def _by_preference(self, pod: Object) -> list[str]:
        nodes, _ = await self._client.list(resources.NODES)
        pods, _ = await self._client.list(resources.PODS)

        def load(node: str) -> tuple[int, int, str]:
            there = [item for item in pods if item["spec"].get("nodeName") == node]
            alike = [item for item in there if _workload(item) == _workload(pod)]
            return len(alike), len(there), node

        return sorted((item["metadata"]["name"] for item in nodes), key=load)


def _workload(pod: Object) -> str:
    """What the pod belongs to; a pod of its own is like no other."""
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or [{"name": metadata["uid"]}]
    return str(owners[0]["name"])
