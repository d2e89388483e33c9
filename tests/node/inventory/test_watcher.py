"""When the watcher scans, and what it reports."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from dranet.linux import links, virtual_links
from dranet.linux.addresses import add, from_cidr
from dranet.linux.events import Change, Monitor
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.routes import add as add_route
from dranet.linux.routes import to
from dranet.node.inventory import Inventory, InventoryOptions, LiveKernel, NodeDevice, Snapshot, Watcher, WatchIntervals
from dranet.node.inventory.claimed import ClaimedDevices
from dranet.node.inventory.cloud import CloudError, Identity
from dranet.node.inventory.watcher import WATCHED_CHANGES, ScanBudget
from tests.node.inventory.conftest import Machine, World

from .hand_clock import by_hand, pass_time

QUICK = WatchIntervals(min_interval=0.0, max_interval=3600, burst=5, quiet_period=0.0)


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


class Reports:
    """Collects the reported snapshots."""

    def __init__(self) -> None:
        self.snapshots: asyncio.Queue[Snapshot] = asyncio.Queue()
        self.count = 0

    async def __call__(self, snapshot: Snapshot) -> None:
        self.count += 1
        self.snapshots.put_nowait(snapshot)

    async def names(self) -> list[str]:
        async with asyncio.timeout(20):
            return [device.name for device in (await self.snapshots.get()).devices]


@dataclass
class Run:
    """A running watcher, its source of changes, and what it reports."""

    watcher: Watcher
    signals: Signals
    reported: Reports


@asynccontextmanager
async def running(
    inventory: Inventory,
    intervals: WatchIntervals = QUICK,
    claimed: ClaimedDevices = dict,
    changes: Monitor | None = None,
) -> AsyncIterator[Run]:
    signals, reported = Signals(), Reports()
    watcher = Watcher(inventory, reported, claimed=claimed, intervals=intervals, changes=changes or signals)
    task = asyncio.create_task(watcher.run())
    try:
        yield Run(watcher, signals, reported)
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def until_scanned(watcher: Watcher, times: int) -> None:
    """Scans run in a thread, and one without changes leaves no event to wait for."""
    async with asyncio.timeout(20):
        while watcher.scans < times:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_the_first_scan_is_reported_even_if_it_found_nothing(inventory: Inventory) -> None:
    async with running(inventory) as run:
        assert await run.reported.names() == []


async def test_a_change_causes_a_scan_and_is_reported(world: World, inventory: Inventory) -> None:
    async with running(inventory) as run:
        await run.reported.names()
        world.link("dummy0", kind="dummy")
        run.signals.happen()
        assert await run.reported.names() == ["dummy0"]


async def test_a_scan_without_changes_is_not_reported(world: World, inventory: Inventory) -> None:
    async with running(inventory) as run:
        await run.reported.names()
        world.link("veth9", kind="veth")  # the filter leaves it out
        run.signals.happen()
        await until_scanned(run.watcher, 2)
        world.link("dummy0", kind="dummy")
        run.signals.happen()
        assert await run.reported.names() == ["dummy0"]
    assert run.reported.count == 2


async def test_events_that_do_not_concern_us_cause_no_scan(inventory: Inventory) -> None:
    async with running(inventory) as run:
        await run.reported.names()
        run.signals.happen(b".")
        await asyncio.sleep(0.01)
        assert run.watcher.scans == 1


@by_hand
async def test_a_burst_of_events_is_one_scan(world: World, inventory: Inventory) -> None:
    pace = WatchIntervals(min_interval=0.0, max_interval=3600, quiet_period=0.2)
    async with running(inventory, pace) as run:
        await run.reported.names()
        for number in range(50):
            world.link(f"dummy{number}", kind="dummy")
            run.signals.happen()
            await pass_time(0.001)
        while run.reported.snapshots.empty():
            await pass_time(0.2)
        assert len(await run.reported.names()) == 50
        assert run.watcher.scans == 2


@by_hand
async def test_a_burst_is_over_when_nothing_has_happened_for_a_while(inventory: Inventory) -> None:
    pace = WatchIntervals(min_interval=0.0, max_interval=3600, quiet_period=0.3, max_quiet_wait=3600)
    async with running(inventory, pace) as run:
        await run.reported.names()
        for _ in range(100):
            run.signals.happen()
            await pass_time(0.25)
        assert run.watcher.scans == 1
        while run.watcher.scans < 2:
            await pass_time(0.3)


async def test_a_burst_without_end_is_scanned_all_the_same(inventory: Inventory) -> None:
    pace = WatchIntervals(min_interval=0.0, max_interval=3600, quiet_period=0.3, max_quiet_wait=0.5)
    async with running(inventory, pace) as run:
        await run.reported.names()
        async with asyncio.timeout(10):
            while run.watcher.scans < 3:
                run.signals.happen()
                await asyncio.sleep(0.02)


async def test_a_link_that_is_down_for_a_moment_is_not_reported(world: World, inventory: Inventory) -> None:
    async with running(inventory) as run:
        world.link("dummy0", kind="dummy", operstate="up")
        run.signals.happen()
        while "dummy0" not in await run.reported.names():
            pass
        for state, scans in (("down", run.watcher.scans + 1), ("up", run.watcher.scans + 2)):
            world.links_[-1] = msgspec.structs.replace(world.links_[-1], operstate=state)
            run.signals.happen()
            await until_scanned(run.watcher, scans)
        assert run.reported.snapshots.empty()


async def test_a_link_that_stays_down_is_reported(world: World, inventory: Inventory) -> None:
    pace = msgspec.structs.replace(QUICK, link_up_grace=0.2)
    async with running(inventory, pace) as run:
        world.link("dummy0", kind="dummy", operstate="up")
        run.signals.happen()
        while "dummy0" not in await run.reported.names():
            pass
        world.links_[-1] = msgspec.structs.replace(world.links_[-1], operstate="down")
        run.signals.happen()
        async with asyncio.timeout(20):
            [device] = (await run.reported.snapshots.get()).devices
        assert device.device.attributes["dra.net/state"] == "down"


async def test_time_alone_is_a_reason_to_scan(world: World, inventory: Inventory) -> None:
    pace = WatchIntervals(min_interval=0.0, max_interval=0.01, quiet_period=0.0)
    async with running(inventory, pace) as run:
        await run.reported.names()
        world.link("dummy0", kind="dummy")
        assert await run.reported.names() == ["dummy0"]


async def test_a_scan_can_be_requested(world: World, inventory: Inventory) -> None:
    async with running(inventory) as run:
        await run.reported.names()
        world.link("dummy0", kind="dummy")
        run.watcher.request_scan()
        assert await run.reported.names() == ["dummy0"]


async def test_who_misses_a_device_can_scan_at_once(world: World, inventory: Inventory) -> None:
    watcher = Watcher(inventory, Reports(), intervals=QUICK, changes=Signals())
    world.link("dummy0", kind="dummy")
    assert (await watcher.scan_now()).find("dummy0") is not None
    assert watcher.latest is not None


async def test_a_kernel_that_fails_once_is_asked_again(world: World, inventory: Inventory) -> None:
    world.broken.add("links")
    async with running(inventory) as run:
        await asyncio.sleep(0.01)
        assert run.reported.count == 0
        world.link("dummy0", kind="dummy")
        world.broken.clear()
        assert await run.reported.names() == ["dummy0"]


async def test_what_is_in_use_is_asked_for_at_every_scan(world: World, inventory: Inventory) -> None:
    world.link("dummy0", 5, kind="dummy")
    held: dict[str, NodeDevice] = {}
    async with running(inventory, claimed=lambda: held) as run:
        assert await run.reported.names() == ["dummy0"]
        latest = run.watcher.latest
        assert latest is not None
        held["dummy0"] = latest.devices[0]
        world.links_.clear()
        run.watcher.request_scan()
        assert await run.reported.names() == ["dummy0"]  # reported, because it is in another namespace now


async def test_the_source_of_changes_is_closed_at_the_end(inventory: Inventory) -> None:
    async with running(inventory) as run:
        await run.reported.names()
    assert run.signals.closed


# The budget -------------------------------------------------------------------------------------------------------


def test_a_budget_allows_a_burst_and_then_one_scan_an_interval() -> None:
    now = [0.0]
    budget = ScanBudget(2.0, 3, lambda: now[0])
    assert [budget.take() for _ in range(5)] == [0, 0, 0, 2.0, 4.0]


def test_a_budget_refills_but_not_beyond_its_burst() -> None:
    now = [0.0]
    budget = ScanBudget(2.0, 2, lambda: now[0])
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


async def test_the_first_snapshot_reported_has_the_clouds_answers(world: World) -> None:
    world.link("dummy0", kind="dummy")
    cloud = Cloud()
    async with running(Inventory(InventoryOptions(), world, cloud)) as run:
        async with asyncio.timeout(20):
            snapshot = await run.reported.snapshots.get()
    assert snapshot.devices[0].device.attributes["test.example/answer"] == 1


async def test_the_cloud_is_asked_about_devices_that_appear(world: World) -> None:
    cloud = Cloud()
    async with running(Inventory(InventoryOptions(), world, cloud)) as run:
        await run.reported.names()
        world.link("dummy0", kind="dummy")
        run.signals.happen()
        async with asyncio.timeout(20):
            while ["dummy0"] not in cloud.asked:
                await run.reported.names()
        run.signals.happen()
        scans = run.watcher.scans
        await until_scanned(run.watcher, scans + 1)
    assert cloud.asked == [[], ["dummy0"]]


async def test_a_cloud_that_fails_is_a_problem_and_not_the_end(world: World) -> None:
    world.link("dummy0", kind="dummy")
    cloud = Cloud()
    cloud.fail = True
    async with running(Inventory(InventoryOptions(), world, cloud)) as run:
        async with asyncio.timeout(20):
            snapshot = await run.reported.snapshots.get()
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
async def watching(netns: Namespace, machine: Machine) -> AsyncIterator[Reports]:
    with LiveKernel(str(machine.root), netns.fd) as kernel:
        changes = Monitor(WATCHED_CHANGES, netns.fd)
        async with running(Inventory(InventoryOptions(filter=""), kernel), changes=changes) as run:
            yield run.reported


async def test_a_link_that_appears_is_seen(netns: Namespace, route: NetlinkSocket, machine: Machine) -> None:
    async with watching(netns, machine) as reported:
        assert await reported.names() == []
        make_link(route, "v0")
        while await reported.names() != ["v0", "v0p"]:
            pass


async def test_an_address_that_appears_is_seen(netns: Namespace, route: NetlinkSocket, machine: Machine) -> None:
    index = make_link(route, "v0")
    async with watching(netns, machine) as reported:
        await reported.names()
        route.request(add(from_cidr("10.9.9.9/24", index)))
        await until(reported, lambda found: found.devices[0].device.attributes.get("dra.net/ipv4") == "10.9.9.9/24")


async def test_a_default_route_that_appears_makes_an_uplink(
    netns: Namespace, route: NetlinkSocket, machine: Machine
) -> None:
    index = make_link(route, "v0")
    async with watching(netns, machine) as reported:
        await reported.names()
        route.request(add_route(to("0.0.0.0/0", index=index, scope=253)))
        await until(reported, lambda snapshot: not snapshot.devices)


async def until(reported: Reports, happened: Callable[[Snapshot], bool]) -> None:
    async with asyncio.timeout(20):
        while not happened(await reported.snapshots.get()):
            pass


def test_the_number_of_netlink_requests_does_not_grow_with_the_links(
    netns: Namespace, route: NetlinkSocket, machine: Machine
) -> None:
    with LiveKernel(str(machine.root), netns.fd) as kernel:
        inventory, counts = Inventory(InventoryOptions(), kernel), []
        for number in range(20):
            make_link(route, f"v{number}")
            before = kernel.requests_sent
            inventory.scan()
            counts.append(kernel.requests_sent - before)
    assert len(set(counts)) == 1
