"""The scheduler of the sandbox: our prediction of kube-scheduler, put to work.

It looks at the API server's slices, classes and claims, asks the allocator for every machine, and writes the choice
down as kube-scheduler does: allocation and reservation into the claims, the machine's name into the pod. Among machines
that fit it takes the one with the fewest pods of the same owner, then with the fewest pods, then the first by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dranet.kube import resources
from dranet.kube.client import KubeClient
from dranet.sandbox.cluster import SandboxError
from dranet.sandbox.controllers import claim_names, write_status

Object = dict[str, Any]


class Unschedulable(SandboxError):
    """No machine can run the pod; says why for each."""


class Offer:
    """What the allocator may look at: everything the API server knows, read once for a pod."""

    def __init__(self, slices: Sequence[Object], classes: Mapping[str, Object], others: Sequence[Object]) -> None:
        self.slices = slices
        self.classes = classes
        self.others = others
        """Claims that hold devices already."""


Allocate = Callable[[str, Sequence[Object], Offer], "list[Object] | str"]
"""For a machine and claims: one allocation a claim, or the reason why not."""


class Scheduler:
    """Schedules one pod after the other."""

    def __init__(self, client: KubeClient, allocate: Allocate) -> None:
        self._client = client
        self._allocate = allocate

    async def schedule(self, pod: Object) -> Object:
        """Choose devices and machine for a pod and write them down; the pod as it is now."""
        namespace = pod["metadata"]["namespace"]
        claims = [await self._client.get(_CLAIMS, name, namespace) for name in claim_names(pod).values()]
        node, allocations = await self._choose(pod, claims)
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for claim, allocation in zip(claims, allocations, strict=True):
            status = {"allocation": allocation, "reservedFor": [user]}
            await write_status(self._client, _CLAIMS, claim, status)
        binding = {"spec": {"nodeName": node}}
        return await self._client.merge_patch(resources.PODS, pod["metadata"]["name"], binding, namespace)

    async def _choose(self, pod: Object, claims: Sequence[Object]) -> tuple[str, list[Object]]:
        offer = await self._offer()
        reasons: list[str] = []
        for node in await self._by_preference(pod):
            found = self._allocate(node, claims, offer) if claims else []
            if not isinstance(found, str):
                return node, found
            reasons.append(f"{node}: {found}")
        raise Unschedulable(f"pod {pod['metadata']['name']} fits nowhere: {'; '.join(reasons)}")

    async def _offer(self) -> Offer:
        slices, _ = await self._client.list(resources.RESOURCE_SLICES)
        classes, _ = await self._client.list(resources.DEVICE_CLASSES)
        claims, _ = await self._client.list(_CLAIMS)
        held = [claim for claim in claims if (claim.get("status") or {}).get("allocation")]
        return Offer(slices, {item["metadata"]["name"]: item for item in classes}, held)

    async def _by_preference(self, pod: Object) -> list[str]:
        nodes, _ = await self._client.list(resources.NODES)
        pods, _ = await self._client.list(resources.PODS)

        def load(node: str) -> tuple[int, int, str]:
            there = [item for item in pods if item["spec"].get("nodeName") == node]
            alike = [item for item in there if _owner(item) == _owner(pod)]
            return len(alike), len(there), node

        return sorted((item["metadata"]["name"] for item in nodes), key=load)


_CLAIMS = resources.RESOURCE_CLAIMS


def _owner(pod: Object) -> str:
    """Pods of one workload; a pod of its own is like no other."""
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or [{"name": metadata["uid"]}]
    return str(owners[0]["name"])
