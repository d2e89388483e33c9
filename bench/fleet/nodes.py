"""The nodes of a fleet: each has our publisher and our API client with connections of its own, all in one process."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.fleet.ledger import CountingTransport, Ledger
from dranet.basics.http import Request
from dranet.kube.auth import StaticToken
from dranet.kube.client import KubeClient
from dranet.kube.http import Response
from dranet.kube.publisher import ResourceSlicePublisher
from dranet.kube.resources import NODES, RESOURCE_SLICES
from dranet.model.device import Device
from dranet.topology.shape import load_shape
from dranet.topology.shape_devices import nic_devices

SHAPE = "a4-highgpu-8g"
_AT_ONCE = 64


class Server:
    """Where the API server is and who we are there."""

    def __init__(self, url: str, authority: Path, token: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = str(parts.hostname), parts.port or 443
        self.trust = ssl.create_default_context(cafile=str(authority))
        self.token = token

    def client(self, ledger: Ledger, seed: int, trouble: Callable[[Request], Response | None] | None) -> KubeClient:
        transport = CountingTransport(self.host, self.port, self.trust)
        transport.ledger, transport.trouble = ledger, trouble
        return KubeClient(transport, StaticToken(self.token), rng=random.Random(seed), timeout=30.0)


class FleetNode:
    """One node: publishes what its machine has."""

    def __init__(self, server: Server, ledger: Ledger, number: int, fleet: Fleet) -> None:
        self.name = f"fleet-{number:05}"
        self.client = server.client(ledger, number, fleet.trouble)
        self.devices = fleet.devices
        self.publisher = ResourceSlicePublisher(self.client, self.name)
        self.publisher.publish(self.devices)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.publisher.run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.client.close()

    def flap(self, up: bool) -> None:
        """The first card's link changes its state, as the inventory would publish it."""
        first, *rest = self.devices
        state = {**first.attributes, "dra.net/state": "up" if up else "down"}
        self.publisher.publish([msgspec.structs.replace(first, attributes=state), *rest])


class Fleet:
    """All nodes, and what is done to them."""

    def __init__(self, server: Server, size: int) -> None:
        self.ledger = Ledger()
        self.trouble: Callable[[Request], Response | None] | None = None
        self.devices: Sequence[Device] = nic_devices(load_shape(SHAPE))
        self._server = server
        self._admin = server.client(Ledger(), -1, None)
        self.nodes = [FleetNode(server, self.ledger, number, self) for number in range(size)]

    async def register(self) -> None:
        """Node objects, as the kubelets would have made them; not counted."""
        await _many(self._make_node(node.name) for node in self.nodes)

    async def _make_node(self, name: str) -> None:
        await self._admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})

    def start(self, nodes: Iterable[FleetNode] | None = None) -> None:
        for node in nodes if nodes is not None else self.nodes:
            node.start()

    async def published(self, nodes: Iterable[FleetNode] | None = None) -> None:
        """Wait until the server holds what each node has."""
        for node in nodes if nodes is not None else self.nodes:
            await node.publisher.published()

    async def watching(self) -> None:
        """Wait until every node's watch is open."""
        while self.ledger.watches < len(self.nodes):  # noqa: ASYNC110 - a gauge that thousands of tasks move
            await asyncio.sleep(0.05)

    async def slices(self) -> int:
        """How many slices the server has."""
        found, _ = await self._admin.list(RESOURCE_SLICES)
        return len(found)

    async def replace(self, number: int) -> FleetNode:
        """A new driver on a node, as a rolling update brings it."""
        await self.nodes[number].stop()
        self.nodes[number] = FleetNode(self._server, self.ledger, number, self)
        self.nodes[number].start()
        return self.nodes[number]

    async def lose(self, number: int) -> None:
        """A node that is gone: its driver, its object, and its slice, which the garbage collector would remove."""
        node = self.nodes[number]
        await node.stop()
        await self._admin.delete(NODES, node.name)

    async def stop(self) -> None:
        await _many(node.stop() for node in self.nodes)
        await self._admin.close()


async def _many(work: Iterable[object]) -> None:
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(step: object) -> None:
        async with gate:
            await step  # type: ignore[misc]

    await asyncio.gather(*(one(step) for step in work))


def thinned(fleet: Fleet, share: float, seed: int = 1) -> list[FleetNode]:
    """A random share of the nodes."""
    return random.Random(seed).sample(fleet.nodes, max(1, int(len(fleet.nodes) * share)))
