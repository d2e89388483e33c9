"""What the daemon learns from the cluster about the node it must not cut off."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ConnectionLost
from dranet.kubernetes.api.http import Transport
from dranet.kubernetes.api.resources import NODES
from dranet.node.inventory.uplinks import UplinkTargets
from dranet.node.server.discovery import NodeUplinks
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.faults import LocalTransport

ADDRESSES = [
    {"type": "InternalIP", "address": "10.0.0.5"},
    {"type": "InternalIP", "address": "fd00:0::5"},
    {"type": "Hostname", "address": "node-a"},
    {"type": "ExternalIP", "address": "192.0.2.9"},
]


async def learnt(api: SandboxApiServer, host: str = "10.96.0.1", transport: Transport | None = None) -> UplinkTargets:
    uplinks = NodeUplinks(KubeClient(transport or cast("Transport", LocalTransport(api))), "node-a", host)
    await asyncio.wait_for(uplinks.discover(), 60)
    return uplinks.targets


async def test_node_and_api_server_addresses_are_targets() -> None:
    api = SandboxApiServer()
    api.put(NODES, {"metadata": {"name": "node-a"}, "status": {"addresses": ADDRESSES}})
    assert await learnt(api) == UplinkTargets(node_addresses=("10.0.0.5", "fd00::5"), api_servers=("10.96.0.1",))


async def test_api_server_name_is_resolved() -> None:
    found = (await learnt(SandboxApiServer(), "localhost")).api_servers
    assert found and set(found) <= {"127.0.0.1", "::1"}


async def test_unreadable_node_and_unknown_name_do_not_block(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await learnt(SandboxApiServer(), "no.such.host.invalid") == UplinkTargets()
    assert "Cannot read the Node's addresses; the link that has them may be published" in caplog.text
    assert "no.such.host.invalid" in caplog.text


async def test_discovery_waits_for_the_api_server() -> None:
    api = SandboxApiServer()
    api.put(NODES, {"metadata": {"name": "node-a"}, "status": {"addresses": ADDRESSES}})
    transport = LocalTransport(api)
    uplinks = NodeUplinks(KubeClient(Away(transport, 2)), "node-a", "10.96.0.1")
    await asyncio.wait_for(uplinks.discover(), 60)
    assert uplinks.targets.node_addresses == ("10.0.0.5", "fd00::5")


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
