"""What a claim's status says, when it is written, and when writing stops."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from dranet.core.http import Request
from dranet.core.names import ClaimRef
from dranet.kubernetes.api.claims import (
    NETWORK_READY,
    READY,
    ClaimStatusWriter,
    Condition,
    DeviceStatus,
    NetworkData,
    get_claim,
)
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ObjectNotFound
from dranet.kubernetes.api.resources import RESOURCE_CLAIMS
from dranet.testing.apiserver import Response, SandboxApiServer
from dranet.testing.faults import FaultyTransport, LocalTransport, instantly

UP = Condition(READY, True, "NetworkDeviceReady")
DOWN = Condition(READY, False, "AttachFailed", "eth1 is taken: rename one of the two")


class Clock:
    def __init__(self) -> None:
        self.second = 0

    def __call__(self) -> datetime:
        self.second += 1
        return datetime(2026, 1, 1, 0, 0, self.second, tzinfo=UTC)


def a_claim(server: SandboxApiServer, name: str = "c", devices: tuple[str, ...] = ("a", "b")) -> ClaimRef:
    results = [{"driver": "dra.net", "pool": "n", "device": device, "request": "nic"} for device in devices]
    results.append({"driver": "gpu.example.com", "pool": "n", "device": "gpu0", "request": "gpu"})
    stored = server.put(
        RESOURCE_CLAIMS,
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": [{"name": "nic", "exactly": {"deviceClassName": "x"}}]}},
            "status": {"allocation": {"devices": {"results": results}}},
        },
    )
    return ClaimRef("default", name, stored["metadata"]["uid"])


def status(*conditions: Condition, device: str = "a", network: NetworkData | None = None) -> DeviceStatus:
    return DeviceStatus(pool="n", device=device, conditions=conditions, network=network)


@contextlib.asynccontextmanager
async def writing(server: SandboxApiServer) -> AsyncIterator[ClaimStatusWriter]:
    writer = ClaimStatusWriter(KubeClient(LocalTransport(server), rng=random.Random(1)), now=Clock())
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def said(server: SandboxApiServer, name: str = "c") -> list[dict[str, Any]]:
    claim = server.find(RESOURCE_CLAIMS, name, "default")
    assert claim is not None
    return list(claim["status"].get("devices") or [])


async def test_conditions_and_network_data_stand_in_the_reference_names() -> None:
    server = SandboxApiServer()
    claim = a_claim(server)
    network = NetworkData(interface_name="eth1", hardware_address="00:11:22:33:44:55", ips=("10.0.0.1/24",))
    async with writing(server) as writer:
        writer.set(claim, [status(UP, Condition(NETWORK_READY, True, "NetworkReady"), network=network)])
        await writer.idle()
    [entry] = said(server)
    assert entry["networkData"] == {
        "interfaceName": "eth1",
        "hardwareAddress": "00:11:22:33:44:55",
        "ips": ["10.0.0.1/24"],
    }
    assert [(item["type"], item["status"], item["reason"]) for item in entry["conditions"]] == [
        ("Ready", "True", "NetworkDeviceReady"),
        ("NetworkReady", "True", "NetworkReady"),
    ]


async def test_a_failure_is_a_false_condition_with_its_message() -> None:
    server = SandboxApiServer()
    claim = a_claim(server)
    async with writing(server) as writer:
        writer.set(claim, [status(DOWN)])
        await writer.idle()
    [condition] = said(server)[0]["conditions"]
    assert (condition["status"], condition["message"]) == ("False", "eth1 is taken: rename one of the two")


async def test_the_transition_time_moves_only_when_the_status_does() -> None:
    server = SandboxApiServer()
    claim = a_claim(server)
    times = []
    async with writing(server) as writer:
        for condition in (UP, Condition(READY, True, "OtherReason"), DOWN):
            writer.set(claim, [status(condition)])
            await writer.idle()
            times.append(said(server)[0]["conditions"][0]["lastTransitionTime"])
    assert times[0] == times[1] != times[2]


class Counting(SandboxApiServer):
    """Counts what asks for a change, also where it would change nothing."""

    asked = 0

    async def handle(self, request: Request) -> Response:
        self.asked += request.method != "GET"
        return await super().handle(request)


async def test_nothing_is_written_when_nothing_changed_even_after_a_restart() -> None:
    server = Counting()
    claim = a_claim(server)
    async with writing(server) as writer:
        writer.set(claim, [status(UP)])
        await writer.idle()
        before = server.asked
        writer.set(claim, [status(UP)])
        await writer.idle()
    async with writing(server) as writer:
        writer.set(claim, [status(UP)])
        await writer.idle()
    assert server.asked == before


async def test_clearing_removes_our_devices_and_leaves_other_drivers() -> None:
    server = SandboxApiServer()
    claim = a_claim(server)
    stored = server.find(RESOURCE_CLAIMS, "c", "default")
    assert stored is not None
    gpu = {"driver": "gpu.example.com", "pool": "n", "device": "gpu0"}
    server.put(RESOURCE_CLAIMS, {**stored, "status": {**stored["status"], "devices": [gpu]}})
    async with writing(server) as writer:
        writer.set(claim, [status(UP), status(UP, device="b")])
        await writer.idle()
        assert len(said(server)) == 3
        writer.clear(claim)
        await writer.idle()
    assert said(server) == [gpu]


async def test_a_device_the_claim_no_longer_holds_is_not_reported() -> None:
    server = SandboxApiServer()
    claim = a_claim(server, devices=("a",))
    async with writing(server) as writer:
        writer.set(claim, [status(UP), status(UP, device="b")])
        await writer.idle()
    assert [entry["device"] for entry in said(server)] == ["a"]


async def test_a_claim_made_again_under_the_same_name_is_not_touched() -> None:
    server = SandboxApiServer()
    old = a_claim(server)
    server.remove(RESOURCE_CLAIMS, "c", "default")
    a_claim(server)
    async with writing(server) as writer:
        writer.set(old, [status(UP)])
        await writer.idle()
    assert said(server) == []


async def test_a_claim_that_is_gone_ends_the_matter() -> None:
    async with writing(SandboxApiServer()) as writer:
        writer.set(ClaimRef("default", "never", "u"), [status(UP)])
        await writer.idle()


async def test_a_server_without_device_status_is_not_written_again_and_again() -> None:
    server = SandboxApiServer(device_status=False)
    claim = a_claim(server)
    async with writing(server) as writer:
        writer.set(claim, [status(UP)])
        await writer.idle()
    assert said(server) == []


@instantly
async def test_writing_is_tried_until_it_succeeds() -> None:
    server = SandboxApiServer()
    claims = [a_claim(server, f"c{i}") for i in range(5)]
    rng = random.Random(7)
    writer = ClaimStatusWriter(KubeClient(FaultyTransport(server, rng, rate=0.8), rng=rng))
    task = asyncio.create_task(writer.run())
    for claim in claims:
        writer.set(claim, [status(UP)])
    await writer.idle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert all(len(said(server, claim.name)) == 1 for claim in claims)


async def test_sixteen_addresses_fit_and_the_rest_is_cut() -> None:
    network = NetworkData(ips=tuple(f"10.0.0.{i}/24" for i in range(20)))
    assert len(network.to_api()["ips"]) == 16


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_a_claim_reads_the_same_from_every_version(version: str) -> None:
    server = SandboxApiServer(versions=[version])
    a_claim(server)
    claim = await get_claim(KubeClient(LocalTransport(server)), "default", "c")
    assert claim["apiVersion"] == "resource.k8s.io/v1"
    assert claim["spec"]["devices"]["requests"] == [{"name": "nic", "exactly": {"deviceClassName": "x"}}]


async def test_a_missing_claim_is_missing() -> None:
    with pytest.raises(ObjectNotFound):
        await get_claim(KubeClient(LocalTransport(SandboxApiServer())), "default", "c")
