"""What the daemon learns from the cluster about the node it must not cut off."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dranet.driver.serving.lifelines import NodeLifelines
from dranet.inventory.uplinks import Lifelines
from dranet.kube.client import KubeClient
from dranet.kube.errors import ConnectionLost
from dranet.kube.resources import NODES
from dranet.sandbox.apiserver import SandboxApiServer
from dranet.sandbox.faults import LocalTransport

ADDRESSES = [
    {"type": "InternalIP", "address": "10.0.0.5"},
    {"type": "InternalIP", "address": "fd00:0::5"},
    {"type": "Hostname", "address": "node-a"},
    {"type": "ExternalIP", "address": "192.0.2.9"},
]


async def learnt(api: SandboxApiServer, host: str = "10.96.0.1", transport: Any = None) -> Lifelines:
    lifelines = NodeLifelines(KubeClient(transport or LocalTransport(api)), "node-a", host)
    await asyncio.wait_for(lifelines.learn(), 60)
    return lifelines.known


async def test_the_internal_addresses_and_the_api_servers_count() -> None:
    api = SandboxApiServer()
    api.put(NODES, {"metadata": {"name": "node-a"}, "status": {"addresses": ADDRESSES}})
    assert await learnt(api) == Lifelines(node_addresses=("10.0.0.5", "fd00::5"), api_servers=("10.96.0.1",))


async def test_an_api_server_by_name_counts_by_its_addresses() -> None:
    found = (await learnt(SandboxApiServer(), "localhost")).api_servers
    assert found and set(found) <= {"127.0.0.1", "::1"}


async def test_a_node_that_cannot_be_read_and_a_name_that_nobody_knows_hold_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await learnt(SandboxApiServer(), "no.such.host.invalid") == Lifelines()
    assert "the node's own addresses cannot be read, so the link that has them may be offered" in caplog.text
    assert "no.such.host.invalid" in caplog.text


async def test_an_api_server_that_is_away_is_waited_for() -> None:
    api = SandboxApiServer()
    api.put(NODES, {"metadata": {"name": "node-a"}, "status": {"addresses": ADDRESSES}})
    transport = LocalTransport(api)
    lifelines = NodeLifelines(KubeClient(Away(transport, 2)), "node-a", "10.96.0.1")
    await asyncio.wait_for(lifelines.learn(), 60)
    assert lifelines.known.node_addresses == ("10.0.0.5", "fd00::5")


class Away:
    """A way to the server that fails the first few times."""

    def __init__(self, transport: LocalTransport, failures: int) -> None:
        self._transport, self._left = transport, failures

    async def open(self, request: Any) -> Any:
        if self._left:
            self._left -= 1
            raise ConnectionLost(f"{request}: connection refused")
        return await self._transport.open(request)

    async def close(self) -> None:
        await self._transport.close()
