"""The scheduler of the sandbox: it applies the model of kube-scheduler in `dranet.scheduler` to the sandbox's objects.

As kube-scheduler does, it writes allocation and reservation into the claims and the node's name into the pod. Among
equally good nodes it takes the one with the fewest pods of the same workload, then the fewest pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dranet.core.untyped import as_strings, get_path, name_of
from dranet.kubernetes.api import resources
from dranet.kubernetes.api.client import KubeClient
from dranet.scheduler import PodInfoReader, device_signatures, read_node
from dranet.scheduler import Scheduler as Predicted
from dranet.scheduler.claims import claim_key
from dranet.testing.cluster import SandboxError
from dranet.testing.controllers import claim_names, write_status

Object = dict[str, Any]
_CLAIMS = resources.RESOURCE_CLAIMS


class Unschedulable(SandboxError):
    """No machine can run the pod; the message is kube-scheduler's."""


class Scheduler:
    """Schedules one pod after the other."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def schedule(self, pod: Object) -> Object:
        """Choose a node and devices for a pod, and write them; returns the updated pod."""
        namespace = pod["metadata"]["namespace"]
        claims = [await self._client.get(_CLAIMS, name, namespace) for name in claim_names(pod).values()]
        node, allocations = await self._choose(pod, claims)
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for claim, allocation in zip(claims, allocations, strict=True):
            await write_status(self._client, _CLAIMS, claim, {"allocation": allocation, "reservedFor": [user]})
        binding = {"spec": {"nodeName": node}}
        return await self._client.merge_patch(resources.PODS, pod["metadata"]["name"], binding, namespace)

    async def _choose(self, pod: Object, claims: Sequence[Object]) -> tuple[str, list[Object]]:
        reader = PodInfoReader()
        predicted = await self._cluster(reader)
        asked = reader.read_pod(pod, claims)
        verdict = predicted.decide(asked)
        best = set(verdict.best_nodes)
        node = next((name for name in await self._by_preference(pod) if name in best), None)
        if node is None:
            raise Unschedulable(f"pod {pod['metadata']['name']} does not fit on any machine: {verdict.message}")
        waiting, outcome = predicted.find_devices(asked, node)
        new = dict(zip(map(claim_key, waiting), outcome.results, strict=True))
        return node, [new.get(claim_key(claim)) or get_path(claim, "status", "allocation") for claim in claims]

    async def _cluster(self, reader: PodInfoReader) -> Predicted:
        """The scheduler with the current objects of the cluster."""
        kinds = (resources.NODES, resources.RESOURCE_SLICES, resources.DEVICE_CLASSES, _CLAIMS, resources.PODS)
        nodes, slices, classes, claims, pods = [(await self._client.list(kind))[0] for kind in kinds]
        labels = {name_of(node): as_strings(get_path(node, "metadata", "labels")) for node in nodes}
        signatures = device_signatures(slices, labels, [str(claims), str(classes)])
        found = Predicted(
            [read_node(node, device_signature=signatures[name_of(node)]) for node in nodes],
            slices=slices,
            classes=classes,
            allocated={
                claim_key(one): get_path(one, "status", "allocation")
                for one in claims
                if get_path(one, "status", "allocation")
            },
        )
        for item in pods:
            if node := item["spec"].get("nodeName"):
                found.add_running_pod(node, reader.read_pod(item).info)
        return found

    async def _by_preference(self, pod: Object) -> list[str]:
        nodes, _ = await self._client.list(resources.NODES)
        pods, _ = await self._client.list(resources.PODS)

        def load(node: str) -> tuple[int, int, str]:
            there = [item for item in pods if item["spec"].get("nodeName") == node]
            siblings = [item for item in there if _workload(item) == _workload(pod)]
            return len(siblings), len(there), node

        return sorted((item["metadata"]["name"] for item in nodes), key=load)


def _workload(pod: Object) -> str:
    """The name of the pod's owner, else its own UID."""
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or [{"name": metadata["uid"]}]
    return str(owners[0]["name"])
