"""Gangs played for real: an API server and a scheduler with the gates on, nodes that are objects and nothing else.

The group comes last. Without it its pods wait, so the scheduler sees all of them at once and not however many the API
server happens to have sent it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import from_kubeconfig
from dranet.kubernetes.api.resources import Resource
from tests.cluster.live_worlds import PODS, RESOURCES, clear, create, create_seen
from tests.cluster.random_gangs import GROUP, Question

Object = dict[str, Any]
GATES = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling")
POD_GROUPS = Resource("podgroups", "PodGroup", GROUP, "v1alpha2", namespaced=True)
RESOURCES["PodGroup"] = POD_GROUPS
PATIENCE = 20.0
LOOK_EVERY = 0.1
QUIET = 1.0
"""Seconds in which nothing may happen to pods that are fewer than their group needs, and after which another pod of a
gang that starts would be bound."""


async def play_gang(kubeconfig: Path, question: Question) -> dict[str, tuple[str, list[str]]]:
    """By pod, the node it went to and the devices it got; an empty name where it got none."""
    async with KubeClient.from_config(from_kubeconfig(kubeconfig)) as client:
        try:
            await create_seen(client, (*question.objects, *question.pods))
            await create(client, question.group)
            pods = await _settled(client, question)
            return {pod["metadata"]["name"]: await _placed(client, pod) for pod in pods}
        finally:
            # Otherwise a controller takes this finalizer away, and none runs.
            name = question.group["metadata"]["name"]
            await client.merge_patch(POD_GROUPS, name, {"metadata": {"finalizers": None}}, "default")
            await clear(client, [one for one in (*question.objects, question.group) if one["kind"] != "Pod"])


async def _settled(client: KubeClient, question: Question) -> list[Object]:
    """The gang's pods once the scheduler has decided about each of them."""
    names = {pod["metadata"]["name"] for pod in question.pods}
    if len(names) < question.minimum:
        await asyncio.sleep(QUIET)
    deadline = time.monotonic() + PATIENCE
    before, since = set[str](), time.monotonic()
    while True:
        listed, _ = await client.list(PODS)
        pods = [pod for pod in listed if pod["metadata"]["name"] in names]
        group = await client.get(POD_GROUPS, question.group["metadata"]["name"], "default")
        # A gang that was refused may be tried again and start, and is then bound one pod after the other.
        bound = {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}
        if bound != before:
            before, since = bound, time.monotonic()
        enough = len(bound) >= question.minimum and time.monotonic() - since > QUIET
        whole = not bound or bound == names or enough
        if len(names) < question.minimum or (_decided(group) and all(map(_answered, pods)) and whole):
            return pods
        if time.monotonic() > deadline:
            raise AssertionError(f"no decision within {PATIENCE:g} s: {group.get('status')}, {pods}")
        await asyncio.sleep(LOOK_EVERY)


def _decided(group: Object) -> bool:
    conditions = (group.get("status") or {}).get("conditions") or []
    return any(one["type"] == "PodGroupScheduled" and one["status"] in ("True", "False") for one in conditions)


def _answered(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return bool(pod["spec"].get("nodeName")) or any(one["type"] == "PodScheduled" for one in conditions)


async def _placed(client: KubeClient, pod: Object) -> tuple[str, list[str]]:
    node = pod["spec"].get("nodeName") or ""
    if not node or not pod["spec"].get("resourceClaims"):
        return node, []
    claim = await client.get(RESOURCES["ResourceClaim"], pod["metadata"]["name"], "default")
    return node, [result["device"] for result in claim["status"]["allocation"]["devices"]["results"]]
