"""The publisher's promises, one by one, against the sandbox's API server in instant time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from dranet.core.device import Device, Taint
from dranet.core.errors import Problem
from dranet.core.http import Request
from dranet.core.slices import resource_slices, slice_name
from dranet.kubernetes.api.client import KubeClient, WatchEvent
from dranet.kubernetes.api.events import EventRecorder
from dranet.kubernetes.api.publisher import RECONNECT_SECONDS, ResourceSlicePublisher
from dranet.kubernetes.api.resources import EVENTS, NODES, RESOURCE_SLICES
from dranet.testing.apirules import Refusal
from dranet.testing.apiserver import Response, SandboxApiServer
from dranet.testing.faults import FaultyTransport, LocalTransport, instantly

NODE = "node-a"


def devices(*names: str, mtu: int = 1500) -> list[Device]:
    return [Device(name=name, attributes={"dra.net/mtu": mtu}) for name in names]


def many(count: int, mtu: int = 1500) -> list[Device]:
    return devices(*(f"d{i}" for i in range(count)), mtu=mtu)


def a_server(**options: Any) -> SandboxApiServer:
    server = SandboxApiServer(**options)
    server.put(NODES, {"metadata": {"name": NODE}})
    return server


@contextlib.asynccontextmanager
async def publishing(
    given: Sequence[Device], seed: int = 1
) -> AsyncIterator[tuple[SandboxApiServer, ResourceSlicePublisher]]:
    """A server with the node, and its publisher."""
    server = a_server()
    async with running(server, given, seed=seed) as publisher:
        yield server, publisher


@contextlib.asynccontextmanager
async def running(
    server: SandboxApiServer, given: Sequence[Device], transport: LocalTransport | None = None, seed: int = 1
) -> AsyncIterator[ResourceSlicePublisher]:
    client = KubeClient(transport or LocalTransport(server), rng=random.Random(seed))
    recorder = EventRecorder(client, host=NODE)
    publisher = ResourceSlicePublisher(client, NODE, recorder=recorder)
    publisher.publish(given)
    tasks = [asyncio.create_task(part.run()) for part in (publisher, recorder)]
    try:
        await publisher.published()
        yield publisher
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def published(server: SandboxApiServer) -> list[tuple[str, int, list[str]]]:
    return [
        (
            item["metadata"]["name"],
            item["spec"]["pool"]["generation"],
            [device["name"] for device in item["spec"].get("devices") or ()],
        )
        for item in server.objects(RESOURCE_SLICES)
    ]


@instantly
async def test_a_first_publication_is_one_slice_owned_by_the_node() -> None:
    async with publishing(devices("a", "b")) as (server, _):
        assert published(server) == [(slice_name(0, NODE), 1, ["a", "b"])]
        owner = server.objects(RESOURCE_SLICES)[0]["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["uid"]) == ("Node", server.objects(NODES)[0]["metadata"]["uid"])


@instantly
async def test_a_node_without_devices_publishes_an_empty_pool() -> None:
    async with publishing([]) as (server, _):
        assert published(server) == [(slice_name(0, NODE), 1, [])]


@instantly
async def test_the_same_devices_again_write_nothing() -> None:
    async with publishing(devices("a")) as (server, publisher):
        before = server.writes
        publisher.publish(devices("a"))
        await asyncio.sleep(60)
        assert server.writes == before


@instantly
async def test_a_restart_finds_its_slices_and_writes_nothing() -> None:
    async with publishing(many(130)) as (server, _):
        before = server.writes
    async with running(server, many(130)) as publisher:
        assert (server.writes, publisher.writes) == (before, 0)


@instantly
async def test_a_changed_device_in_one_of_several_slices_is_one_write_in_the_same_generation() -> None:
    async with publishing(many(130)) as (server, publisher):
        before = server.writes
        publisher.publish([*many(129), Device(name="d129", attributes={"dra.net/mtu": 9000})])
        await publisher.published()
        assert server.writes == before + 1
        assert {generation for _, generation, _ in published(server)} == {1}


@instantly
async def test_changes_in_two_slices_come_as_a_new_generation_of_all() -> None:
    async with publishing(many(130)) as (server, publisher):
        publisher.publish(many(130, mtu=9000))
        await publisher.published()
        assert {generation for _, generation, _ in published(server)} == {2}


@instantly
async def test_fewer_slices_are_a_new_generation_and_the_old_ones_go() -> None:
    async with publishing(many(130)) as (server, publisher):
        publisher.publish(devices("d0"))
        await publisher.published()
        assert published(server) == [(slice_name(0, NODE), 2, ["d0"])]


@instantly
async def test_slices_of_the_reference_driver_are_replaced_without_a_gap() -> None:
    server = a_server()
    [old] = resource_slices(devices("a"), node=NODE, generation=4)
    old["metadata"]["name"] = f"{NODE}-dra.net-x7k2p"
    server.put(RESOURCE_SLICES, old)
    async with running(server, devices("a")):
        assert published(server) == [(slice_name(0, NODE), 5, ["a"])]


@instantly
async def test_slices_of_other_nodes_and_drivers_are_left_alone() -> None:
    server = a_server()
    [other_node] = resource_slices(devices("x"), node="node-b")
    [other_driver] = resource_slices(devices("y"), node=NODE, driver="gpu.example.com")
    server.put(RESOURCE_SLICES, other_node)
    server.put(RESOURCE_SLICES, other_driver)
    async with running(server, devices("a")) as publisher:
        publisher.publish(devices("b"))
        await publisher.published()
        assert sorted(names[0] for _, _, names in published(server)) == ["b", "x", "y"]


@pytest.mark.parametrize("count", [1, 130])
@instantly
async def test_deleted_slices_are_back_within_two_seconds(count: int) -> None:
    async with publishing(many(count)) as (server, _):
        await asyncio.sleep(30)
        before = published(server)
        for name, _, _ in before:
            server.remove(RESOURCE_SLICES, name)
        assert published(server) == []
        await asyncio.sleep(2)
        assert published(server) == before


async def outage(server: SandboxApiServer, seconds: float) -> None:
    """Every watch breaks, and no request is answered for this long."""
    server.unavailable = True
    server.end_watches()
    await asyncio.sleep(seconds)
    server.unavailable = False


@instantly
async def test_a_kubelet_that_restarts_after_an_outage_does_not_wait_for_the_lost_watch() -> None:
    """The kubelet deletes the slices before or after it registers the driver."""
    for seed in range(20):
        async with publishing(devices("a"), seed) as (server, publisher):
            before = published(server)
            await asyncio.sleep(30)
            await outage(server, 2)
            if seed % 2:
                delete_all(server)
            publisher.reconnect()
            await asyncio.sleep(1)
            if not seed % 2:
                delete_all(server)
            await asyncio.sleep(2)
            assert published(server) == before


@instantly
async def test_a_kubelet_that_registers_during_an_outage_does_not_wait_for_the_lost_watch() -> None:
    for seed in range(20):
        async with publishing(devices("a"), seed) as (server, publisher):
            before = published(server)
            server.unavailable = True
            server.end_watches()
            await asyncio.sleep(2)
            publisher.reconnect()
            await asyncio.sleep(2)
            server.unavailable = False
            delete_all(server)
            await asyncio.sleep(5)
            assert published(server) == before


@instantly
async def test_a_lost_watch_is_known_until_it_is_back() -> None:
    async with publishing(devices("a")) as (server, publisher):
        await asyncio.sleep(30)
        assert publisher.is_watching
        await outage(server, 1)
        assert publisher.in_sync and not publisher.is_watching
        await asyncio.sleep(2 * RECONNECT_SECONDS)
        assert publisher.is_watching


@instantly
async def test_a_watch_that_ends_in_its_time_counts_as_standing() -> None:
    async with publishing(devices("a")) as (_, publisher):
        await asyncio.sleep(30)
        for _ in range(3600 * 4):
            await asyncio.sleep(0.25)
            assert publisher.is_watching


@instantly
async def test_an_edited_slice_is_put_right_within_two_seconds() -> None:
    async with publishing(devices("a")) as (server, _):
        [item] = server.objects(RESOURCE_SLICES)
        server.put(RESOURCE_SLICES, {**item, "spec": {**item["spec"], "devices": []}})
        await asyncio.sleep(2)
        assert [names for _, _, names in published(server)] == [["a"]]


@instantly
async def test_somebody_who_keeps_deleting_does_not_make_us_spin() -> None:
    async with publishing(devices("a")) as (server, publisher):
        end = asyncio.get_running_loop().time() + 60
        while asyncio.get_running_loop().time() < end:
            server.remove(RESOURCE_SLICES, slice_name(0, NODE))
            await asyncio.sleep(0.05)
        assert publisher.writes < 150


@instantly
async def test_labels_that_others_put_on_our_slice_stay() -> None:
    async with publishing(devices("a")) as (server, publisher):
        [item] = server.objects(RESOURCE_SLICES)
        server.put(RESOURCE_SLICES, {**item, "metadata": {**item["metadata"], "labels": {"x": "y"}}})
        publisher.publish(devices("b"))
        await publisher.published()
        assert server.objects(RESOURCE_SLICES)[0]["metadata"]["labels"] == {"x": "y"}


@instantly
async def test_a_bad_device_is_left_out_with_an_event_and_the_others_are_published() -> None:
    server = a_server()
    bad = Device(name="bad", attributes={"dra.net/alias": "x" * 65})
    async with running(server, [*devices("a"), bad, *devices("b")]):
        await asyncio.sleep(1)
        assert [names for _, _, names in published(server)] == [["a", "b"]]
        [event] = server.objects(EVENTS)
        assert event["reason"] == "DeviceNotPublished"
        assert "Device bad" in event["message"]
        assert "longer than 64 bytes" in event["message"]
        assert event["involvedObject"]["kind"] == "Node"


@instantly
async def test_of_two_devices_with_one_name_the_first_is_published() -> None:
    async with publishing([*devices("a", mtu=1), *devices("a", mtu=2)]) as (server, _):
        [device] = server.objects(RESOURCE_SLICES)[0]["spec"]["devices"]
        assert device["attributes"]["dra.net/mtu"] == {"int": 1}


class Picky(SandboxApiServer):
    """Knows a rule that we do not."""

    def _prepared_device(self, device: dict[str, Any]) -> dict[str, Any]:
        if device["name"] == "unlucky":
            raise Refusal(422, "no luck", problems=[Problem("spec.devices[1].name", "is unlucky")])
        return super()._prepared_device(device)


@instantly
async def test_a_device_only_the_server_refuses_is_left_out_too_until_it_changes() -> None:
    server = Picky()
    server.put(NODES, {"metadata": {"name": NODE}})
    async with running(server, devices("a", "unlucky", "b")) as publisher:
        await asyncio.sleep(1)
        assert [names for _, _, names in published(server)] == [["a", "b"]]
        assert [event["reason"] for event in server.objects(EVENTS)] == ["DeviceNotPublished"]
        publisher.publish(devices("a", "b"))
        publisher.publish(devices("a", "lucky"))
        await publisher.published()
        assert [names for _, _, names in published(server)] == [["a", "lucky"]]


@instantly
async def test_a_server_that_drops_taints_is_believed_and_not_written_again() -> None:
    server = a_server(device_taints=False)
    tainted = [Device(name="a", taints=(Taint(key="dra.net/link-down"),))]
    async with running(server, tainted) as publisher:
        await asyncio.sleep(60)
        assert publisher.writes == 1
        assert "taints" not in server.objects(RESOURCE_SLICES)[0]["spec"]["devices"][0]


@instantly
async def test_the_time_a_taint_was_added_survives_other_changes() -> None:
    server = a_server()
    tainted = Device(name="a", taints=(Taint(key="dra.net/link-down"),))
    async with running(server, [tainted]) as publisher:
        [item] = server.objects(RESOURCE_SLICES)
        taint = {**item["spec"]["devices"][0]["taints"][0], "timeAdded": "2001-01-01T00:00:00Z"}
        device = {**item["spec"]["devices"][0], "taints": [taint]}
        server.put(RESOURCE_SLICES, {**item, "spec": {**item["spec"], "devices": [device]}})
        publisher.publish([tainted, *devices("b")])
        await publisher.published()
        stored = server.objects(RESOURCE_SLICES)[0]["spec"]["devices"][0]["taints"]
        assert stored[0]["timeAdded"] == "2001-01-01T00:00:00Z"


@instantly
async def test_a_late_echo_of_an_old_state_is_not_believed() -> None:
    async with publishing(devices("a")) as (server, publisher):
        [old] = server.objects(RESOURCE_SLICES)
        publisher.publish(devices("b"))
        await publisher.published()
        before = publisher.writes
        publisher.changed(WatchEvent("MODIFIED", old))
        await asyncio.sleep(5)
        assert publisher.writes == before


@instantly
async def test_a_late_echo_of_a_slice_we_deleted_is_not_believed() -> None:
    async with publishing(many(130)) as (server, publisher):
        last = server.objects(RESOURCE_SLICES)[1]
        publisher.publish(devices("a"))
        await publisher.published()
        before = publisher.writes
        publisher.changed(WatchEvent("MODIFIED", last))
        await asyncio.sleep(5)
        assert publisher.writes == before


class LateAnswers(LocalTransport):
    """Writes are carried out at once, and their first answer comes a second later; meanwhile `happens` does."""

    def __init__(self, server: SandboxApiServer, happens: Callable[[], None]) -> None:
        super().__init__(server)
        self._happenings = [happens]

    async def open(self, request: Request) -> Response:
        answer = await super().open(request)
        if request.method in ("POST", "PUT") and RESOURCE_SLICES.plural in request.target and self._happenings:
            await asyncio.sleep(0.5)  # our own write is seen first
            self._happenings.pop()()
            await asyncio.sleep(0.5)
        return answer


def delete_all(server: SandboxApiServer) -> None:
    for item in server.objects(RESOURCE_SLICES):
        server.remove(RESOURCE_SLICES, item["metadata"]["name"])


def empty_all(server: SandboxApiServer) -> None:
    for item in server.objects(RESOURCE_SLICES):
        server.put(RESOURCE_SLICES, {**item, "spec": {**item["spec"], "devices": []}})


@pytest.mark.parametrize("meddle", [delete_all, empty_all])
@instantly
async def test_meddling_that_is_seen_before_the_answer_to_our_own_write_is_put_right(
    meddle: Callable[[SandboxApiServer], None],
) -> None:
    server = a_server()
    async with running(server, devices("a"), LateAnswers(server, lambda: meddle(server))):
        await asyncio.sleep(5)
        assert [names for _, _, names in published(server)] == [["a"]]


def visible(slices: Sequence[dict[str, Any]]) -> frozenset[str] | None:
    """What kube-scheduler would use: the newest generation, if complete."""
    top = max((item["spec"]["pool"]["generation"] for item in slices), default=0)
    newest = [item for item in slices if item["spec"]["pool"]["generation"] == top]
    if not newest or len(newest) != newest[0]["spec"]["pool"]["resourceSliceCount"]:
        return None
    return frozenset(str(device) for item in newest for device in item["spec"].get("devices") or ())


class Watched(SandboxApiServer):
    """Looks at the pool with the scheduler's eyes after every write."""

    seen: set[frozenset[str] | None]

    def _record(self, change: Any) -> None:
        super()._record(change)
        if change.resource is RESOURCE_SLICES:
            self.seen = {*getattr(self, "seen", ()), visible(self.objects(RESOURCE_SLICES))}


@pytest.mark.parametrize("seed", range(40))
@instantly
async def test_the_scheduler_never_sees_a_mixture_of_two_inventories(seed: int) -> None:
    rng = random.Random(seed)
    server = Watched()
    server.put(NODES, {"metadata": {"name": NODE}})
    transport = FaultyTransport(server, rng, rate=0.3)
    publisher = ResourceSlicePublisher(KubeClient(transport, rng=rng), NODE)
    task = asyncio.create_task(publisher.run())
    inventories = [many(rng.choice((3, 100, 130, 260)), mtu=rng.choice((1, 2))) for _ in range(6)]
    for inventory in inventories:
        publisher.publish(inventory)
        await asyncio.sleep(rng.random() * 3)
        if rng.random() < 0.3:
            for name, _, _ in published(server)[1:]:
                server.remove(RESOURCE_SLICES, name)
    transport.rate = 0.0
    await publisher.published()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    whole = {frozenset(str(device.to_api()) for device in inventory) for inventory in inventories}
    assert server.seen <= whole | {None}
