"""Worlds played for real: an API server and a scheduler, nodes that are objects and nothing else.

What comes out are lines as `make golden` reads them. No controller runs, so nothing changes but what the scheduler
does. A refused pod is deleted before the next one comes: it would be tried again at a moment of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import from_kubeconfig
from dranet.kubernetes.api.errors import ApiError, Conflict
from dranet.kubernetes.api.resources import Resource
from tests.cluster.objects import Object
from tests.cluster.random_worlds import NAMESPACES, fixed_objects, random_world
from tests.golden.clusters import device_row

GROUP = "resource.k8s.io"
RESOURCES = {
    "Node": Resource("nodes", "Node"),
    "Pod": Resource("pods", "Pod", namespaced=True),
    "Service": Resource("services", "Service", namespaced=True),
    "ServiceAccount": Resource("serviceaccounts", "ServiceAccount", namespaced=True),
    "Namespace": Resource("namespaces", "Namespace"),
    "PriorityClass": Resource("priorityclasses", "PriorityClass", "scheduling.k8s.io"),
    "RuntimeClass": Resource("runtimeclasses", "RuntimeClass", "node.k8s.io"),
    "DeviceClass": Resource("deviceclasses", "DeviceClass", GROUP),
    "ResourceSlice": Resource("resourceslices", "ResourceSlice", GROUP),
    "ResourceClaim": Resource("resourceclaims", "ResourceClaim", GROUP, namespaced=True),
}
PODS = RESOURCES["Pod"]
SEEN = 0.4
"""Seconds in which the scheduler hears of new nodes and slices; they come on connections of their own."""
SEEN_SHARE = 3
"""And so many times as long as the API server took to write them: where that one is slow, so are the connections."""
PATIENCE = 12.0


Before = Callable[[Object], Awaitable[None]]
"""Called with every pod before the cluster gets it."""


World = Callable[[int, int], tuple[list[Object], list[Object]]]
"""From a seed and a number: the objects of a cluster, and pods for it."""


async def play(
    kubeconfig: Path, seed: int, numbers: range, before: Before | None = None, world: World = random_world
) -> AsyncIterator[Object]:
    """Random worlds, one after the other, with what the scheduler said."""
    async with KubeClient.from_config(from_kubeconfig(kubeconfig)) as client:
        fixed = await _prepare(client)
        for number in numbers:
            objects, pods = world(seed, number)
            try:
                steps = await _play(client, objects, pods, before)
            finally:
                await clear(client, objects)
            yield {"id": f"{seed}/{number}", "refused": "deleted", "objects": [*fixed, *objects], "steps": steps}


async def prepare(kubeconfig: Path) -> None:
    """What all worlds have in common is there."""
    async with KubeClient.from_config(from_kubeconfig(kubeconfig)) as client:
        await _prepare(client)


async def _prepare(client: KubeClient) -> list[Object]:
    fixed = fixed_objects()
    for obj in fixed:
        await create(client, obj)
    for namespace in NAMESPACES:
        await create(client, {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}})
    return fixed


async def _play(client: KubeClient, objects: list[Object], pods: list[Object], before: Before | None) -> list[Object]:
    await create_seen(client, objects)
    steps: list[Object] = []
    for pod in pods:
        if before is not None:
            await before(pod)
        with contextlib.suppress(ApiError):  # a pod the API server does not take is no question for a scheduler
            await create(client, pod)
            steps.append({"pod": pod, "verdict": await _verdict(client, pod, steps)})
    return steps


async def create_seen(client: KubeClient, objects: Iterable[Object]) -> None:
    """Returns when the scheduler knows of them."""
    began = time.monotonic()
    for obj in objects:
        await create(client, obj)
    await asyncio.sleep(max(SEEN, SEEN_SHARE * (time.monotonic() - began)))


async def create(client: KubeClient, obj: Object) -> None:
    resource = RESOURCES[obj["kind"]]
    namespace = obj["metadata"].get("namespace")
    version = {"apiVersion": f"{resource.group}/{resource.version}" if resource.group else "v1"}
    try:
        await client.create(resource, {**obj, **version}, namespace)
    except Conflict:  # of an earlier run, or the namespace that every cluster has
        labels = {"metadata": {"labels": obj["metadata"].get("labels")}}
        await client.merge_patch(resource, obj["metadata"]["name"], labels, namespace)
    if obj["kind"] == "Node":
        # The API server taints every new node as not ready, and only a kubelet would take that away.
        await client.merge_patch(resource, obj["metadata"]["name"], {"spec": {"taints": obj["spec"]["taints"] or None}})


async def _verdict(client: KubeClient, pod: Object, steps: list[Object]) -> Object:
    """Where the pod went with which devices and whom it drove away, or what the scheduler wrote into its status."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    first, deadline = "", time.monotonic() + PATIENCE
    while True:
        found = await client.get(PODS, name, namespace)
        if found["spec"].get("nodeName"):
            return await _placed(client, pod, found["spec"]["nodeName"], first, steps)
        first = first or _message(found)
        # A pod that others make room for has a node in mind, and no reason why no node fits.
        if first and not found["status"].get("nominatedNodeName") and "preemption:" in first + _ended(first):
            await client.delete(PODS, name, namespace)
            return {"message": first}
        if time.monotonic() > deadline:
            await client.delete(PODS, name, namespace)
            if nominated := found["status"].get("nominatedNodeName"):
                # Others have left for it, and the scheduler does not notice that this helps: it looks again much later.
                return {"nominated": nominated, "preempted": await _gone(client, steps), "first": first}
            return {"message": f"(nothing within {PATIENCE:g} s, at first {first!r}, at last {found['status']})"}
        await asyncio.sleep(0.01)


def _message(pod: Object) -> str:
    conditions = pod["status"].get("conditions") or []
    return next((c.get("message") or "" for c in conditions if c["type"] == "PodScheduled"), "")


def _ended(message: str) -> str:
    """Errors say nothing of preemption, and neither do refusals that come before any node is looked at."""
    return "preemption:" if message.startswith("running") or message.endswith("not found") else ""


async def _placed(client: KubeClient, pod: Object, node: str, first: str, steps: list[Object]) -> Object:
    devices = {}
    for raw in pod["spec"].get("resourceClaims") or ():
        claim = await client.get(RESOURCES["ResourceClaim"], raw["resourceClaimName"], pod["metadata"]["namespace"])
        results = claim["status"]["allocation"]["devices"].get("results") or []
        devices[raw["resourceClaimName"]] = [device_row(result) for result in results]
    gone = await _gone(client, steps)
    return {"node": node, "devices": devices} | ({"preempted": gone, "first": first} if gone or first else {})


async def _gone(client: KubeClient, steps: list[Object]) -> list[str]:
    """Pods that were placed and are no more."""
    listed, _ = await client.list(PODS)
    there = {one["metadata"]["name"] for one in listed}
    before = [step["pod"]["metadata"]["name"] for step in steps if _stays(step, steps)]
    return [name for name in before if name not in there]


def _stays(step: Object, steps: list[Object]) -> bool:
    name = step["pod"]["metadata"]["name"]
    return "node" in step["verdict"] and not any(name in one["verdict"].get("preempted", ()) for one in steps)


async def clear(client: KubeClient, objects: list[Object]) -> None:
    for namespace in NAMESPACES:
        await client.request("DELETE", f"/api/v1/namespaces/{namespace}/pods", query={"gracePeriodSeconds": "0"})
    claims, _ = await client.list(RESOURCES["ResourceClaim"])
    for claim in claims:  # those of the world, and the scheduler's own for extended resources
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        # The finalizer is otherwise taken away by a controller, which does not run.
        patch: dict[str, Any] = {"metadata": {"finalizers": None}}
        await client.merge_patch(RESOURCES["ResourceClaim"], name, patch, namespace)
        await client.delete(RESOURCES["ResourceClaim"], name, namespace)
    for obj in objects:
        if obj["kind"] != "ResourceClaim":
            metadata = obj["metadata"]
            await client.delete(RESOURCES[obj["kind"]], metadata["name"], metadata.get("namespace"))
