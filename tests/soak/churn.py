"""Pods that come and go on one node: objects in the real API server, NICs moved by the real driver.

The scheduler's part is played: a claim is stored with its allocation. So are the kubelet's and the runtime's, by the
sandbox; like the kubelet they try again while the API server is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dranet.core.names import DRIVER_NAME, ClaimRef
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import KubeError
from dranet.kubernetes.api.resources import PODS, RESOURCE_CLAIMS
from dranet.kubernetes.kubelet.handler import PrepareError
from dranet.kubernetes.nri.errors import PluginRejected
from dranet.testing.node import ContainerRefused, SandboxPod
from dranet.testing.waiting import WaitTimeout, until
from tests.node.driver.daemon_bench import Bench

AGAIN_SECONDS = 1.0
HOME_SECONDS = 30.0
STATUS_SECONDS = 120.0


class Churn:
    """One after the other, pods that use some of these NICs."""

    def __init__(self, bench: Bench, admin: KubeClient, nics: Sequence[str], seed: int) -> None:
        self._bench, self._admin, self._nics = bench, admin, nics
        self._random = random.Random(seed)
        self._prefix = f"soak-{seed}"
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []

    async def run(self, until: Callable[[], bool]) -> None:
        """Pod after pod."""
        while not until():
            self.counts["pods"] += 1
            await self._one_pod(f"{self._prefix}-{self.counts['pods']}")

    async def _one_pod(self, name: str) -> None:
        nics = self._random.sample(self._nics, self._random.randint(1, len(self._nics)))
        before = {nic: self._bench.picture(nic) for nic in nics}
        pod = await self._again(lambda: self._store(name, nics))
        await self._again(lambda: self._bench.node.prepare(pod))
        await self._again(lambda: self._bench.node.run_sandbox(pod))
        # A runtime that lost its patience with the driver starts the pod without it: its containers wait.
        await self._again(lambda: self._bench.node.create_container(pod))
        inside = self._bench.names(pod.netns)
        if inside != set(nics):
            self.problems.append(f"{name} should have {nics} and has {sorted(inside)}")
        await self._ready(pod)
        await asyncio.sleep(self._random.random() * 0.5)
        await self._bench.node.stop_pod(pod)
        await self._forget(pod)
        await self._compare(name, before)

    async def _compare(self, name: str, before: dict[str, tuple[Any, ...]]) -> None:
        """NICs are on the host after the pod, or soon after if the runtime did not wait for the driver. A link that
        flaps meanwhile is no difference: its carrier is not in the picture."""
        with contextlib.suppress(WaitTimeout):
            await until(lambda: all(self._bench.picture(c) == was for c, was in before.items()), limit=HOME_SECONDS)
        for nic, picture in before.items():
            if self._bench.picture(nic) != picture:
                self.problems.append(f"after {name} {nic} is {self._bench.picture(nic)}, it was {picture}")

    async def _again(self, step: Callable[[], Awaitable[Any]]) -> Any:
        """As the kubelet does: until it works."""
        while True:
            try:
                return await step()
            except (KubeError, PrepareError, PluginRejected, ContainerRefused):
                self.counts["tried_again"] += 1
                await asyncio.sleep(AGAIN_SECONDS)

    async def _store(self, name: str, nics: Sequence[str]) -> SandboxPod:
        """The pod, and its claim as the scheduler leaves it. What an interrupted attempt left is used."""
        with contextlib.suppress(KubeError):
            await self._admin.create(PODS, _pod(self._bench.node.name, name), "default")
        with contextlib.suppress(KubeError):
            await self._admin.create(RESOURCE_CLAIMS, _claim(name, len(nics)), "default")
        pod = await self._admin.get(PODS, name, "default")
        claim = await self._admin.get(RESOURCE_CLAIMS, name, "default")
        path = RESOURCE_CLAIMS.path(await self._admin.resource_version(), "default", name, "status")
        status = _status(self._bench.node.name, name, pod["metadata"]["uid"], nics)
        await self._admin.request("PUT", path, body={**claim, "status": status})
        return SandboxPod(name, pod["metadata"]["uid"], claims=[ClaimRef("default", name, claim["metadata"]["uid"])])

    async def _ready(self, pod: SandboxPod) -> None:
        """The claim says so, however long the API server was away meanwhile."""
        try:
            async with asyncio.timeout(STATUS_SECONDS):
                while not await self._again(lambda: self._said(pod)):  # noqa: ASYNC110 - the driver tells the server
                    await asyncio.sleep(0.1)
        except TimeoutError:
            self.problems.append(f"the claim of {pod.name} does not say after {STATUS_SECONDS:g} s that it is ready")

    async def _said(self, pod: SandboxPod) -> bool:
        found = await self._admin.get(RESOURCE_CLAIMS, pod.name, "default")
        entries = (found.get("status") or {}).get("devices") or ()
        return bool(entries) and all(c["status"] == "True" for entry in entries for c in entry["conditions"])

    async def _forget(self, pod: SandboxPod) -> None:
        await self._again(lambda: self._admin.delete(PODS, pod.name, "default", uid=pod.uid))
        await self._again(lambda: self._admin.delete(RESOURCE_CLAIMS, pod.name, "default", uid=pod.claims[0].uid))


def _pod(node: str, name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "nics"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
            "resourceClaims": [{"name": "nics", "resourceClaimName": name}],
        },
    }


def _claim(name: str, count: int) -> dict[str, Any]:
    requests = [{"name": f"nic-{index}", "exactly": {"deviceClassName": "any"}} for index in range(count)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": requests}},
    }


def _status(node: str, name: str, uid: str, nics: Sequence[str]) -> dict[str, Any]:
    results = [
        {"request": f"nic-{index}", "driver": DRIVER_NAME, "pool": node, "device": nic}
        for index, nic in enumerate(nics)
    ]
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [here]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }
