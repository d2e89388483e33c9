"""The nodes of a fleet: each has a publisher and an API client with connections of its own, all in one process."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from bench.fleet.ledger import CountingTransport, Ledger, Trouble
from dranet.core.device import Device
from dranet.kubernetes.api.auth import StaticToken
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.resources import NODES, RESOURCE_SLICES
from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import nic_devices

SHAPE = "a4-highgpu-8g"
AT_ONCE = 250
"""How many pods the DaemonSet controller makes before it looks again: more never start in the same moment."""
BETWEEN_SHARE = 0.002
"""Watches live some minutes; of ten thousand nodes a few have none at any moment, because the next one begins."""


class Publisher(Protocol):
    """Ours, or the stand-in for the reference."""

    def publish(self, devices: Sequence[Device]) -> None: ...

    async def published(self) -> None: ...

    async def run(self) -> None: ...


class Server:
    """Where the API server is and who asks there."""

    def __init__(self, url: str, authority: Path, token: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = str(parts.hostname), parts.port or 443
        self.trust = ssl.create_default_context(cafile=str(authority))
        self.token = token

    def client(self, ledger: Ledger, seed: int) -> KubeClient:
        transport = CountingTransport(self.host, self.port, self.trust)
        transport.ledger = ledger
        return KubeClient(transport, StaticToken(self.token), rng=random.Random(seed))


class FleetNode:
    """One node: publishes what its machine has."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.name = f"{fleet.prefix}-{number:05}"
        self.client = fleet.server.client(fleet.ledger, number)
        self.devices = fleet.devices
        self.publisher = fleet.publisher(self.client, self.name)
        self.publisher.publish(self.devices)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self.publisher.run())
        await self.publisher.published()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.client.close()

    def flap(self, up: bool) -> None:
        """The first NIC's link changes its state, as the inventory would publish it."""
        first, *rest = self.devices
        state = {**first.attributes, "dra.net/state": "up" if up else "down"}
        self.publisher.publish([msgspec.structs.replace(first, attributes=state), *rest])

    def meet(self, trouble: Trouble | None) -> None:
        """Every request of this node passes `trouble` first."""
        self.client._transport.trouble = trouble  # type: ignore[attr-defined]


class Fleet:
    """All nodes, and what is done to them."""

    def __init__(
        self, server: Server, admin: Server, size: int, publisher: Callable[[KubeClient, str], Publisher], prefix: str
    ) -> None:
        self.ledger = Ledger()
        self.server, self.publisher, self.prefix = server, publisher, prefix
        self.devices: Sequence[Device] = nic_devices(load_shape(SHAPE))
        self._admin = admin.client(Ledger(), -1)
        self.nodes = [FleetNode(self, number) for number in range(size)]

    async def register(self) -> None:
        """Node objects, as the kubelets would have made them; not counted."""
        await many(self._make_node(node.name) for node in self.nodes)

    async def _make_node(self, name: str) -> None:
        await self._admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    async def start(self) -> None:
        """Until the server holds what every node has."""
        await many(node.start() for node in self.nodes)

    async def published(self, nodes: Iterable[FleetNode]) -> None:
        """Wait until the server holds what each of them has."""
        for node in nodes:
            await node.publisher.published()

    async def watching(self) -> None:
        """Wait until every node's watch is open, but for those that have ended in their time and are about to be."""
        enough = len(self.nodes) - int(len(self.nodes) * BETWEEN_SHARE)
        while self.ledger.watches < enough:  # noqa: ASYNC110 - a gauge that thousands of tasks move
            await asyncio.sleep(0.05)

    async def _slice_names(self) -> list[str]:
        slices, _ = await self._admin.list(RESOURCE_SLICES)
        return [one["metadata"]["name"] for one in slices]

    async def slices(self) -> int:
        """How many slices the server has, without reading them."""
        path = RESOURCE_SLICES.path(await self._admin.resource_version())
        page = await self._admin.request("GET", path, query={"limit": "1"})
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount") or 0)

    async def replace(self, number: int) -> None:
        """A new driver on a node, as a rolling update brings it."""
        await self.nodes[number].stop()
        self.nodes[number] = FleetNode(self, number)
        await self.nodes[number].start()

    async def lose(self, count: int) -> None:
        """Nodes that are gone, driver and object; their slices are the garbage collector's."""
        lost, self.nodes = self.nodes[-count:], self.nodes[:-count]
        for node in lost:
            await node.stop()
            await self._admin.delete(NODES, node.name)

    async def remove(self) -> None:
        """All of it, also what the garbage collector would take a while for."""
        for node in self.nodes:
            await node.stop()
        await many(self._admin.delete(RESOURCE_SLICES, name) for name in await self._slice_names())
        await many(self._admin.delete(NODES, node.name) for node in self.nodes)
        await self._admin.close()


async def many(work: Iterable[Awaitable[None]]) -> None:
    """As many at once as a DaemonSet controller would start."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(step: Awaitable[None]) -> None:
        async with gate:
            await step

    await asyncio.gather(*(one(step) for step in work))


def thinned(fleet: Fleet, share: float, seed: int = 1) -> list[FleetNode]:
    """A random share of the nodes."""
    return random.Random(seed).sample(fleet.nodes, max(1, int(len(fleet.nodes) * share)))
