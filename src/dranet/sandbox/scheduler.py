"""The scheduler of the sandbox: our prediction of kube-scheduler, put to work.

It reads nodes, pods, slices, classes and claims from the API server, asks `dranet.scheduling`, and writes the choice
down as kube-scheduler does: allocation and reservation into the claims, the machine's name into the pod. Where machines
are equally good it takes the one with the fewest pods of the same workload, then the fewest pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dranet.kube import resources
from dranet.kube.client import KubeClient
from dranet.model.untyped import at, name_of, texts
from dranet.sandbox.cluster import SandboxError
from dranet.sandbox.controllers import claim_names, write_status
from dranet.scheduling import Scheduler as Predicted
from dranet.scheduling import TraitsReader, device_kinds, read_node
from dranet.scheduling.claims import key_of

Object = dict[str, Any]
_CLAIMS = resources.RESOURCE_CLAIMS


class Unschedulable(SandboxError):
    """No machine can run the pod; says why, as kube-scheduler does."""


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
        reader = TraitsReader()
        predicted = await self._cluster(reader)
        asked = reader.read_pod(pod, claims)
        verdict = predicted.decide(asked)
        best = set(verdict.best_nodes)
        node = next((name for name in await self._by_preference(pod) if name in best), None)
        if node is None:
            raise Unschedulable(f"pod {pod['metadata']['name']} fits on no machine: {verdict.message}")
        waiting, outcome = predicted.devices(asked, node)
        new = dict(zip(map(key_of, waiting), outcome.results, strict=True))
        return node, [new.get(key_of(claim)) or at(claim, "status", "allocation") for claim in claims]

    async def _cluster(self, reader: TraitsReader) -> Predicted:
        """Everything there is, and what of it is taken."""
        kinds = (resources.NODES, resources.RESOURCE_SLICES, resources.DEVICE_CLASSES, _CLAIMS, resources.PODS)
        nodes, slices, classes, claims, pods = [(await self._client.list(kind))[0] for kind in kinds]
        labels = {name_of(node): texts(at(node, "metadata", "labels")) for node in nodes}
        alike = device_kinds(slices, labels, [str(claims), str(classes)])
        found = Predicted(
            [read_node(node, devices=alike[name_of(node)]) for node in nodes],
            slices=slices,
            classes=classes,
            allocated={
                key_of(one): at(one, "status", "allocation") for one in claims if at(one, "status", "allocation")
            },
        )
        for item in pods:
            if node := item["spec"].get("nodeName"):
                found.running(node, reader.read_pod(item).traits)
        return found

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
