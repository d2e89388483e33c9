"""Ten thousand random scenarios of changes and trouble, each with the same happy end.

Whatever was published, deleted, edited, restarted, lost or delayed on the way: once the trouble stops, the slices are
the inventory, the claims say what they should, and a quiet minute passes without a single write.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from dranet.core.device import Device, Taint
from dranet.core.http import Request
from dranet.core.names import ClaimRef
from dranet.core.slices import resource_slices
from dranet.kubernetes.api.claims import READY, ClaimStatusWriter, Condition, DeviceStatus, NetworkData
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ConnectionLost
from dranet.kubernetes.api.http import NetTransport
from dranet.kubernetes.api.publisher import RECONNECT_SECONDS, ResourceSlicePublisher
from dranet.kubernetes.api.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.testing.apihttp import serve
from dranet.testing.apiserver import Response, SandboxApiServer
from dranet.testing.faults import FaultyTransport, InstantLoop

SCENARIOS = 10_000
CHUNK = 1_000
STORIES_OVER_HTTP = 150
BACK_SECONDS = 1.5 * RECONNECT_SECONDS
"""A client that lost its watch lists again within the spread, and once more if that list came too late."""
NODE = "node-a"
VERSIONS = (("v1", "v1beta2", "v1beta1"), ("v1",), ("v1beta1",), ("v1beta2", "v1beta1"))


class Counting(FaultyTransport):
    """Counts what asks for a change, also where it would change nothing."""

    sent = 0

    async def open(self, request: Request) -> Response:
        self.sent += request.method != "GET"
        return await super().open(request)


class Scenario:
    """One node's driver, one server, and a client that interferes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.taints = self.rng.random() < 0.7
        self.server = SandboxApiServer(versions=self.rng.choice(VERSIONS), device_taints=self.taints)
        self.server.put(NODES, {"metadata": {"name": NODE}})
        self.transport = Counting(self.server, self.rng)
        self.client = KubeClient(self.transport, rng=self.rng)
        self.many = self.rng.random() < 0.05
        self.devices: list[Device] = []
        self.claims: dict[ClaimRef, tuple[DeviceStatus, ...]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.publisher = ResourceSlicePublisher(self.client, NODE)
        self.publisher.publish(self.devices)
        self.writer = ClaimStatusWriter(self.client)
        for claim, devices in self.claims.items():
            self.writer.set(claim, devices)
        self.tasks = [asyncio.create_task(part.run()) for part in (self.publisher, self.writer)]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def tell(self) -> None:
        self.start()
        for _ in range(self.rng.randint(2, 6)):
            self.transport.rate = self.rng.choice((0.0, 0.2, 0.6))
            await self.rng.choice(self.ACTS)(self)
            if self.rng.random() < 0.6:
                await asyncio.sleep(self.rng.random() * 3)
        self.transport.rate = 0.0

    async def publish(self) -> None:
        count = self.rng.randint(60, 140) if self.many else self.rng.randint(0, 4)
        taint = (Taint(key="dra.net/link-down"),)
        self.devices = [
            Device(
                name=f"pci-{i}",
                attributes={"dra.net/mtu": self.rng.choice((1500, 9000))} if self.rng.random() < 0.5 else {},
                taints=taint if self.rng.random() < 0.1 else (),
            )
            for i in range(count)
        ]
        self.publisher.publish(self.devices)

    async def delete_slices(self) -> None:
        everything = self.rng.random() < 0.5
        for item in self.server.objects(RESOURCE_SLICES):
            if everything or self.rng.random() < 0.5:
                self.server.remove(RESOURCE_SLICES, item["metadata"]["name"])

    async def edit_slice(self) -> None:
        for item in self.server.objects(RESOURCE_SLICES)[:1]:
            pool = {**item["spec"]["pool"], "generation": self.rng.randint(0, 9)}
            self.server.put(RESOURCE_SLICES, {**item, "spec": {**item["spec"], "pool": pool, "devices": []}})

    async def another_driver_was_here(self) -> None:
        [slice_] = resource_slices([Device(name="old")], node=NODE, generation=self.rng.randint(1, 5))
        slice_["metadata"]["name"] = f"{NODE}-dra.net-{self.rng.randint(1, 3)}"
        self.server.put(RESOURCE_SLICES, slice_)

    async def restart(self) -> None:
        await self.stop()
        self.start()

    async def node_made_anew(self) -> None:
        self.server.remove(NODES, NODE)
        self.server.put(NODES, {"metadata": {"name": NODE}})
        self.collect_garbage()

    def collect_garbage(self) -> None:
        """What the controller manager does with slices whose node is gone."""
        alive = {item["metadata"]["uid"] for item in self.server.objects(NODES)}
        for item in self.server.objects(RESOURCE_SLICES):
            if {owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()} - alive:
                self.server.remove(RESOURCE_SLICES, item["metadata"]["name"])

    async def compact(self) -> None:
        self.server.compact_history()
        self.server.end_watches()

    async def late_memory(self) -> None:
        self.server.serve_stale_lists()

    async def prepare_claim(self) -> None:
        name, status = f"claim-{self.rng.randint(1, 2)}", self.rng.random() < 0.5
        found = self.server.find(RESOURCE_CLAIMS, name, "default")
        if found is None:
            results = [{"driver": "dra.net", "pool": NODE, "device": "pci-0", "request": "nic"}]
            allocated = {"allocation": {"devices": {"results": results}}}
            found = self.server.put(
                RESOURCE_CLAIMS,
                {"metadata": {"name": name, "namespace": "default"}, "spec": {}, "status": allocated},
            )
        claim = ClaimRef("default", name, found["metadata"]["uid"])
        network = NetworkData(interface_name="eth1", ips=("10.0.0.1/24",)) if status else None
        condition = Condition(READY, status, "NetworkDeviceReady" if status else "AttachFailed")
        self.claims[claim] = (DeviceStatus(pool=NODE, device="pci-0", conditions=(condition,), network=network),)
        self.writer.set(claim, self.claims[claim])

    async def unprepare_claim(self) -> None:
        for claim in list(self.claims)[:1]:
            self.claims[claim] = ()
            self.writer.clear(claim)

    async def delete_claim(self) -> None:
        self.server.remove(RESOURCE_CLAIMS, "claim-1", "default")

    ACTS = (
        publish,
        publish,
        publish,
        delete_slices,
        edit_slice,
        another_driver_was_here,
        restart,
        node_made_anew,
        compact,
        late_memory,
        prepare_claim,
        prepare_claim,
        unprepare_claim,
        delete_claim,
    )

    def expected_slices(self) -> list[tuple[str, Any, str, int]]:
        uid = self.server.objects(NODES)[0]["metadata"]["uid"]
        wanted = resource_slices(self.devices, node=NODE, node_uid=uid)
        return [self.essence(item) for item in wanted]

    def essence(self, item: dict[str, Any]) -> tuple[str, Any, str, int]:
        """What matters of a slice, as this server would keep it."""
        devices = [dict(device) for device in item["spec"].get("devices") or ()]
        for device in devices:
            taints = device.pop("taints", None)
            if taints and self.taints:
                device["taints"] = [taint["key"] for taint in taints]
        owner = item["metadata"]["ownerReferences"][0]["uid"]
        return item["metadata"]["name"], devices, owner, item["spec"]["pool"]["resourceSliceCount"]

    def check(self) -> None:
        slices = self.server.objects(RESOURCE_SLICES)
        assert [self.essence(item) for item in slices] == self.expected_slices()
        assert len({item["spec"]["pool"]["generation"] for item in slices}) == 1
        for claim, devices in self.claims.items():
            found = self.server.find(RESOURCE_CLAIMS, claim.name, claim.namespace)
            if found is not None and found["metadata"]["uid"] == claim.uid:
                said = found["status"].get("devices") or []
                assert [(item["device"], item["conditions"][0]["status"] == "True") for item in said] == [
                    (item.device, item.conditions[0].status) for item in devices
                ]


async def tell(scenario: Scenario) -> None:
    try:
        await scenario.tell()
        await asyncio.sleep(BACK_SECONDS)
        scenario.collect_garbage()
        await asyncio.sleep(BACK_SECONDS)
        scenario.check()
        before = scenario.server.writes, scenario.transport.sent
        await asyncio.sleep(60)
        assert (scenario.server.writes, scenario.transport.sent) == before, "a quiet minute has writes"
        assert scenario.publisher.in_sync
    finally:
        await scenario.stop()


@pytest.mark.parametrize("first", range(0, SCENARIOS, CHUNK))
def test_every_scenario_ends_with_the_truth_in_the_api_server_and_a_quiet_minute(first: int) -> None:
    with asyncio.Runner(loop_factory=InstantLoop) as runner:
        for seed in range(first, first + CHUNK):
            try:
                runner.run(tell(Scenario(seed)))
            except BaseException as error:
                error.add_note(f"scenario {seed}")
                raise


class OnTheWire:
    """The same server and the same trouble behind a socket: what is lost is a connection that breaks."""

    def __init__(self, way: FaultyTransport) -> None:
        self._way = way

    async def handle(self, request: Request) -> Response:
        try:
            answer = await self._way.open(request)
        except ConnectionLost as error:
            raise ConnectionResetError(str(error)) from error
        if answer.lines is not None:
            answer = Response(answer.status, lines=self._breaking(answer.lines))
        return answer

    async def _breaking(self, lines: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(lines):
            try:
                async for line in lines:
                    yield line
            except ConnectionLost as error:
                raise ConnectionResetError(str(error)) from error


class WireSelector(selectors.DefaultSelector):
    """Waits a moment for the kernel to deliver before time jumps to the next timer."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout if timeout is None else min(timeout, 0.002))
        if not ready and timeout:
            self.skipped += timeout
        return ready


class WireLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._wire = WireSelector()
        super().__init__(self._wire)

    def time(self) -> float:
        return self._wire.skipped


async def tell_over_http(seed: int) -> None:
    scenario = Scenario(seed)
    async with serve(cast("SandboxApiServer", OnTheWire(scenario.transport))) as port:
        async with KubeClient(NetTransport("127.0.0.1", port), rng=scenario.rng) as scenario.client:
            await tell(scenario)


def test_stories_over_http_end_the_same_way() -> None:
    with asyncio.Runner(loop_factory=WireLoop) as runner:
        for seed in range(SCENARIOS, SCENARIOS + STORIES_OVER_HTTP):
            try:
                runner.run(tell_over_http(seed))
            except BaseException as error:
                error.add_note(f"scenario {seed}")
                raise
