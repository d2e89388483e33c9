"""When the watcher looks again, and whom it tells."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dranet.inventory import Inventory, LiveKernel, NodeDevice, Options, Pace, Snapshot, Watcher
from dranet.inventory.cloud import CloudError, Identity
from dranet.inventory.watcher import WATCHED, Budget
from dranet.kernel import links, virtual_links
from dranet.kernel.addresses import add, from_cidr
from dranet.kernel.events import Change, Monitor
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.routes import add as add_route
from dranet.kernel.routes import to

from .hand_clock import pass_time, run_by_hand

QUICK = Pace(min_interval=0.0, max_interval=3600, burst=5, settle=0.0)


class Signals:
    """Changes that a test makes."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK)
        self.closed = False

    def happen(self, kind: bytes = b"x") -> None:
        os.write(self._write, kind)

    def fileno(self) -> int:
        return self._read

    def drain(self) -> frozenset[Change]:
        return frozenset({Change.LINK}) if b"x" in os.read(self._read, 4096) else frozenset()

    def close(self) -> None:
        self.closed = True
        os.close(self._read)
        os.close(self._write)


class Told:
    """Collects what the watcher tells; waits for it."""

    def __init__(self) -> None:
        self.snapshots: asyncio.Queue[Snapshot] = asyncio.Queue()
        self.count = 0

    async def __call__(self, snapshot: Snapshot) -> None:
        self.count += 1
        self.snapshots.put_nowait(snapshot)

    async def names(self) -> list[str]:
        async with asyncio.timeout(20):
            return [device.name for device in (await self.snapshots.get()).devices]


@asynccontextmanager
async def running(watcher: Watcher) -> AsyncIterator[Watcher]:
    task = asyncio.create_task(watcher.run())
    try:
        yield watcher
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def looked(watcher: Watcher, times: int) -> None:
    """Looks happen in a thread and those that tell nobody leave no event to wait for."""
    async with asyncio.timeout(20):
        while watcher.looks < times:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_the_first_look_is_told_even_if_it_found_nothing(inventory: Inventory) -> None:
    told = Told()
    async with running(Watcher(inventory, told, pace=QUICK, changes=Signals())):
        assert await told.names() == []


async def test_a_change_is_looked_at_and_told(world: Any, inventory: Inventory) -> None:
    told, signals = Told(), Signals()
    async with running(Watcher(inventory, told, pace=QUICK, changes=signals)):
        await told.names()
        world.link("dummy0", kind="dummy")
        signals.happen()
        assert await told.names() == ["dummy0"]


async def test_a_look_that_finds_nothing_new_tells_nobody(world: Any, inventory: Inventory) -> None:
    told, signals = Told(), Signals()
    async with running(Watcher(inventory, told, pace=QUICK, changes=signals)) as watcher:
        await told.names()
        world.link("veth9", kind="veth")  # the filter leaves it out
        signals.happen()
        await looked(watcher, 2)
        world.link("dummy0", kind="dummy")
        signals.happen()
        assert await told.names() == ["dummy0"]
    assert told.count == 2


async def test_events_that_do_not_concern_us_cause_no_look(inventory: Inventory) -> None:
    told, signals = Told(), Signals()
    async with running(Watcher(inventory, told, pace=QUICK, changes=signals)) as watcher:
        await told.names()
        signals.happen(b".")
        await asyncio.sleep(0.01)
        assert watcher.looks == 1


def test_a_burst_of_events_is_one_look(world: Any, inventory: Inventory) -> None:
    async def story() -> None:
        told, signals = Told(), Signals()
        pace = Pace(min_interval=0.0, max_interval=3600, settle=0.2)
        async with running(Watcher(inventory, told, pace=pace, changes=signals)) as watcher:
            await told.names()
            for number in range(50):
                world.link(f"dummy{number}", kind="dummy")
                signals.happen()
                await pass_time(0.001)
            while told.snapshots.empty():
                await pass_time(0.2)
            assert len(await told.names()) == 50
            assert watcher.looks == 2

    run_by_hand(story())


def test_a_burst_is_over_when_nothing_has_happened_for_a_while(inventory: Inventory) -> None:
    async def story() -> None:
        told, signals = Told(), Signals()
        pace = Pace(min_interval=0.0, max_interval=3600, settle=0.3, longest_settle=3600)
        async with running(Watcher(inventory, told, pace=pace, changes=signals)) as watcher:
            await told.names()
            for _ in range(100):
                signals.happen()
                await pass_time(0.25)
            assert watcher.looks == 1
            while watcher.looks < 2:
                await pass_time(0.3)

    run_by_hand(story())


async def test_a_burst_without_end_is_looked_at_all_the_same(inventory: Inventory) -> None:
    told, signals = Told(), Signals()
    pace = Pace(min_interval=0.0, max_interval=3600, settle=0.3, longest_settle=0.5)
    async with running(Watcher(inventory, told, pace=pace, changes=signals)) as watcher:
        await told.names()
        async with asyncio.timeout(10):
            while watcher.looks < 3:
                signals.happen()
                await asyncio.sleep(0.02)


async def test_a_link_that_is_down_for_a_moment_is_not_told(world: Any, inventory: Inventory) -> None:
    told, signals = Told(), Signals()
    async with running(Watcher(inventory, told, pace=QUICK, changes=signals)) as watcher:
        world.link("dummy0", kind="dummy", operstate="up")
        signals.happen()
        while "dummy0" not in await told.names():
            pass
        for state, looks in (("down", watcher.looks + 1), ("up", watcher.looks + 2)):
            world.links_[-1] = msgspec.structs.replace(world.links_[-1], operstate=state)
            signals.happen()
            await looked(watcher, looks)
        assert told.snapshots.empty()


async def test_a_link_that_stays_down_is_told(world: Any, inventory: Inventory) -> None:
    told, signals = Told(), Signals()
    pace = msgspec.structs.replace(QUICK, link_comes_up=0.2)
    async with running(Watcher(inventory, told, pace=pace, changes=signals)):
        world.link("dummy0", kind="dummy", operstate="up")
        signals.happen()
        while "dummy0" not in await told.names():
            pass
        world.links_[-1] = msgspec.structs.replace(world.links_[-1], operstate="down")
        signals.happen()
        async with asyncio.timeout(20):
            [device] = (await told.snapshots.get()).devices
        assert device.device.attributes["dra.net/state"] == "down"


async def test_time_alone_is_a_reason_to_look(world: Any, inventory: Inventory) -> None:
    told = Told()
    pace = Pace(min_interval=0.0, max_interval=0.01, settle=0.0)
    async with running(Watcher(inventory, told, pace=pace, changes=Signals())):
        await told.names()
        world.link("dummy0", kind="dummy")
        assert await told.names() == ["dummy0"]


async def test_a_look_can_be_requested(world: Any, inventory: Inventory) -> None:
    told = Told()
    async with running(Watcher(inventory, told, pace=QUICK, changes=Signals())) as watcher:
        await told.names()
        world.link("dummy0", kind="dummy")
        watcher.request_look()
        assert await told.names() == ["dummy0"]


async def test_who_misses_a_device_can_look_at_once(world: Any, inventory: Inventory) -> None:
    watcher = Watcher(inventory, Told(), pace=QUICK, changes=Signals())
    world.link("dummy0", kind="dummy")
    assert (await watcher.look_now()).find("dummy0") is not None
    assert watcher.latest is not None


async def test_a_kernel_that_fails_once_is_asked_again(world: Any, inventory: Inventory) -> None:
    told = Told()
    world.broken.add("links")
    async with running(Watcher(inventory, told, pace=QUICK, changes=Signals())):
        await asyncio.sleep(0.01)
        assert told.count == 0
        world.link("dummy0", kind="dummy")
        world.broken.clear()
        assert await told.names() == ["dummy0"]


async def test_what_is_in_use_is_asked_for_at_every_look(world: Any, inventory: Inventory) -> None:
    world.link("dummy0", 5, kind="dummy")
    held: dict[str, NodeDevice] = {}
    told = Told()
    async with running(Watcher(inventory, told, in_use=lambda: held, pace=QUICK, changes=Signals())) as watcher:
        assert await told.names() == ["dummy0"]
        latest = watcher.latest
        assert latest is not None
        held["dummy0"] = latest.devices[0]
        world.links_.clear()
        watcher.request_look()
        assert await told.names() == ["dummy0"]  # told, because it is elsewhere now


async def test_the_source_of_changes_is_closed_at_the_end(inventory: Inventory) -> None:
    signals, told = Signals(), Told()
    async with running(Watcher(inventory, told, pace=QUICK, changes=signals)):
        await told.names()
    assert signals.closed


# The budget -------------------------------------------------------------------------------------------------------


def test_a_budget_allows_a_burst_and_then_one_look_an_interval() -> None:
    now = [0.0]
    budget = Budget(2.0, 3, lambda: now[0])
    assert [budget.take() for _ in range(5)] == [0, 0, 0, 2.0, 4.0]


def test_a_budget_refills_but_not_beyond_its_burst() -> None:
    now = [0.0]
    budget = Budget(2.0, 2, lambda: now[0])
    assert [budget.take(), budget.take()] == [0, 0]
    now[0] = 100.0
    assert [budget.take(), budget.take(), budget.take()] == [0, 0, 2.0]


# The cloud --------------------------------------------------------------------------------------------------------


class Cloud:
    """Answers with the number of the question."""

    name = "TEST"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.fail = False

    def attributes(self, device: Identity) -> dict[str, int]:
        return {"test.example/answer": len(self.asked)}

    async def config(self, device: Identity) -> None:
        return None

    async def refresh(self, devices: Any) -> bool:
        if self.fail:
            raise CloudError("no answer")
        self.asked.append([device.device for device in devices])
        return True


async def test_the_first_snapshot_told_has_the_clouds_answers(world: Any) -> None:
    world.link("dummy0", kind="dummy")
    told, cloud = Told(), Cloud()
    async with running(Watcher(Inventory(Options(), world, cloud), told, pace=QUICK, changes=Signals())):
        async with asyncio.timeout(20):
            snapshot = await told.snapshots.get()
    assert snapshot.devices[0].device.attributes["test.example/answer"] == 1


async def test_the_cloud_is_asked_about_devices_that_appear(world: Any) -> None:
    told, cloud, signals = Told(), Cloud(), Signals()
    async with running(Watcher(Inventory(Options(), world, cloud), told, pace=QUICK, changes=signals)) as watcher:
        await told.names()
        world.link("dummy0", kind="dummy")
        signals.happen()
        async with asyncio.timeout(20):
            while ["dummy0"] not in cloud.asked:
                await told.names()
        signals.happen()
        looks = watcher.looks
        await looked(watcher, looks + 1)
    assert cloud.asked == [[], ["dummy0"]]


async def test_a_cloud_that_fails_is_a_problem_and_not_the_end(world: Any) -> None:
    world.link("dummy0", kind="dummy")
    told, cloud = Told(), Cloud()
    cloud.fail = True
    async with running(Watcher(Inventory(Options(), world, cloud), told, pace=QUICK, changes=Signals())):
        async with asyncio.timeout(20):
            snapshot = await told.snapshots.get()
    assert snapshot.problems == ("cloud provider TEST: no answer",)


# The real kernel --------------------------------------------------------------------------------------------------


@pytest.fixture
def route(netns: Namespace) -> Any:
    with NetlinkSocket(namespace_fd=netns.fd) as socket:
        yield socket


def make_link(route: NetlinkSocket, name: str) -> int:
    route.request(virtual_links.create_veth(name, name + "p"))
    found = links.get_link(route, name)
    assert found is not None
    route.request(links.change(found.index, up=True))
    return found.index


@asynccontextmanager
async def watching(netns: Namespace, machine: Any, told: Told) -> AsyncIterator[None]:
    with LiveKernel(str(machine.root), netns.fd) as kernel:
        changes = Monitor(WATCHED, netns.fd)
        async with running(Watcher(Inventory(Options(filter=""), kernel), told, pace=QUICK, changes=changes)):
            yield


async def test_a_link_that_appears_is_seen(netns: Namespace, route: NetlinkSocket, machine: Any) -> None:
    told = Told()
    async with watching(netns, machine, told):
        assert await told.names() == []
        make_link(route, "v0")
        while await told.names() != ["v0", "v0p"]:
            pass


async def test_an_address_that_appears_is_seen(netns: Namespace, route: NetlinkSocket, machine: Any) -> None:
    index, told = make_link(route, "v0"), Told()
    async with watching(netns, machine, told):
        await told.names()
        route.request(add(from_cidr("10.9.9.9/24", index)))
        await until(told, lambda snapshot: snapshot.devices[0].device.attributes.get("dra.net/ipv4") == "10.9.9.9/24")


async def test_a_default_route_that_appears_makes_an_uplink(
    netns: Namespace, route: NetlinkSocket, machine: Any
) -> None:
    index, told = make_link(route, "v0"), Told()
    async with watching(netns, machine, told):
        await told.names()
        route.request(add_route(to("0.0.0.0/0", index=index, scope=253)))
        await until(told, lambda snapshot: not snapshot.devices)


async def until(told: Told, happened: Callable[[Snapshot], bool]) -> None:
    async with asyncio.timeout(20):
        while not happened(await told.snapshots.get()):
            pass


def test_the_number_of_netlink_requests_does_not_grow_with_the_links(
    netns: Namespace, route: NetlinkSocket, machine: Any
) -> None:
    with LiveKernel(str(machine.root), netns.fd) as kernel:
        inventory, counts = Inventory(Options(), kernel), []
        for number in range(20):
            make_link(route, f"v{number}")
            before = kernel.requests_sent
            inventory.look()
            counts.append(kernel.requests_sent - before)
    assert len(set(counts)) == 1
