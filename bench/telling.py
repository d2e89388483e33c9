"""What writing settings for pods costs pods that ask for none: the same hooks of two drivers, in turns.

One driver has everything on (metadata files, a lifted memlock), one everything off, and a third is as the second: its
ratio is the noise of the run. All are real processes with a NIC in a pod. Calls go round in an order that chance
makes, so that other work of the machine meets all of them. The time that a runtime waits is next to the time that the
driver's thread has a processor, which a busy machine changes least.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from dranet.core.names import ClaimRef
from dranet.kubernetes.api import resources
from dranet.linux import virtual_links
from dranet.linux.namespaces import Namespace, NamespaceError
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.node import SandboxNode, SandboxPod

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
        pods = {name: await _pod_with_a_nic(node) for name, node in nodes.items()}
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


async def _pod_with_a_nic(node: SandboxNode) -> SandboxPod:
    with node.route() as route:
        route.request(virtual_links.create_veth("nic0", "peer0"))
    await node.start_driver()
    results = [{"driver": "dra.net", "pool": node.name, "device": "nic0", "request": "nic"}]
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
    waited: dict[str, list[float]] = {name: [] for name in nodes}
    before, order, chance = _on_processor(nodes), list(nodes), random.Random(21)
    for _ in range(ROUNDS):
        chance.shuffle(order)
        for name in order:
            start = time.perf_counter()
            await call(nodes[name], pods[name])
            waited[name].append(time.perf_counter() - start)
    after = _on_processor(nodes)
    worked = {name: (after[name] - before[name]) / ROUNDS for name in nodes}
    median = {name: statistics.median(times) * 1e6 for name, times in waited.items()}
    return {"waited_us_p50": _compared(median), "processor_us": _compared(worked)}


def _compared(figures: dict[str, float]) -> dict[str, float]:
    ratio, noise = (round(figures[name] / figures["off"], 3) for name in ("on", "off_again"))
    return {**{name: round(value) for name, value in figures.items()}, "ratio": ratio, "noise": noise}


def _on_processor(nodes: dict[str, SandboxNode]) -> dict[str, float]:
    """Microseconds that each driver's main thread, which answers the hooks, has been running."""
    drivers = {name: node.driver for name, node in nodes.items()}
    return {
        name: int(Path(f"/proc/{child.pid}/schedstat").read_text().split()[0]) / 1000
        for name, child in drivers.items()
        if child is not None
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
