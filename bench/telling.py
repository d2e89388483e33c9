"""What telling pods of their cards costs those that are told nothing: the same hooks of two drivers, in turns.

One driver has everything on (metadata files, a lifted memlock), one everything off, and a third is as the second: its
ratio is the noise of the run. All are real processes with a card in a pod. Calls go round, in either direction, so that
whatever else the machine does meets all alike. The lowest tenth is what the work itself takes, without waiting.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from dranet.kernel import virtual_links
from dranet.kernel.namespaces import Namespace, NamespaceError
from dranet.kube import resources
from dranet.model.names import ClaimRef
from dranet.sandbox.apiserver import SandboxApiServer
from dranet.sandbox.node import SandboxNode, SandboxPod

ROUNDS = 2000
OFF = ["--enable-device-metadata=false"]
FLAGS = {"on": ["--lift-memlock"], "off": OFF, "off_again": OFF}
Call = Callable[[SandboxNode, SandboxPod], Awaitable[object]]


def measure() -> dict[str, Any]:
    try:
        Namespace.create().close()
    except NamespaceError as error:
        return {"skipped": str(error)}
    return asyncio.run(_measure())


async def _measure() -> dict[str, Any]:
    stranger = SandboxPod("stranger", "stranger")
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        nodes = {name: await stack.enter_async_context(_node(name, folder)) for name in FLAGS}
        pods = {name: await _pod_with_a_card(node) for name, node in nodes.items()}
        strangers = dict.fromkeys(FLAGS, stranger)
        return {
            "rounds": ROUNDS,
            "sandbox_without_claim": await _in_turns(nodes, strangers, _sandbox),
            "container_without_claim": await _in_turns(nodes, strangers, _container),
            "container_beside_a_claim": await _in_turns(nodes, pods, _container),
        }


def _node(name: str, folder: str) -> SandboxNode:
    api = SandboxApiServer()
    api.put(resources.NODES, {"metadata": {"name": name}})
    return SandboxNode(name, api, Path(folder, name), flags=FLAGS[name])


async def _pod_with_a_card(node: SandboxNode) -> SandboxPod:
    with node.route() as route:
        route.request(virtual_links.create_veth("card0", "peer0"))
    await node.start_driver()
    results = [{"driver": "dra.net", "pool": node.name, "device": "card0", "request": "nic"}]
    user = {"resource": "pods", "name": "p", "uid": "p"}
    status = {"reservedFor": [user], "allocation": {"devices": {"results": results}}}
    claim = {"metadata": {"name": "c", "namespace": "default", "uid": "u"}, "spec": {}, "status": status}
    node.api.put(resources.RESOURCE_CLAIMS, claim)
    pod = SandboxPod("p", "p", claims=[ClaimRef("default", "c", "u")])
    await node.start_pod(pod)
    return pod


async def _sandbox(node: SandboxNode, pod: SandboxPod) -> None:
    await node.runtime.run_pod_sandbox(pod.message())


async def _container(node: SandboxNode, pod: SandboxPod) -> None:
    await node.create_container(pod, names_claims=False)


async def _in_turns(nodes: dict[str, SandboxNode], pods: dict[str, SandboxPod], call: Call) -> dict[str, Any]:
    times: dict[str, list[float]] = {name: [] for name in nodes}
    for number in range(ROUNDS):
        for name in sorted(nodes, reverse=bool(number % 2)):
            start = time.perf_counter()
            await call(nodes[name], pods[name])
            times[name].append(time.perf_counter() - start)
    figures: dict[str, Any] = {}
    for quantile, name in ((0.5, "p50"), (0.1, "p10")):
        found = {node: _quantile(values, quantile) for node, values in times.items()}
        figures |= {f"{node}_us_{name}": round(value * 1e6) for node, value in found.items()}
        figures[f"ratio_{name}"] = round(found["on"] / found["off"], 3)
        figures[f"noise_{name}"] = round(found["off_again"] / found["off"], 3)
    return figures


def _quantile(values: list[float], quantile: float) -> float:
    return sorted(values)[int(len(values) * quantile)]


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
