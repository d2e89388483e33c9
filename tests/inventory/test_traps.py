"""Traps of the reference driver that lie in discovery, by their number."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any

from dranet.inventory import Inventory, Options, Pace, Snapshot, Watcher
from dranet.inventory.cloud.provider import Identity
from dranet.kernel.events import Change

NAME = "pci-0000-8a-00-0"


async def test_trap_12_providers_get_the_device_and_the_interface_name(machine: Any, world: Any) -> None:
    machine.card("0000:8a:00.0", netdevs=["eth1"])
    world.link("eth1", 5, mac="02:00:00:00:00:05")
    (device,) = Inventory(Options(), world).look().devices
    assert device.identity == Identity(
        device=NAME, interface="eth1", mac="02:00:00:00:00:05", pci="0000:8a:00.0", driver="mlx5_core"
    )


class Burst:
    """A hundred link events that are all waiting at once."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK)
        os.write(self._write, b"x" * 100)

    def fileno(self) -> int:
        return self._read

    def drain(self) -> frozenset[Change]:
        return frozenset({Change.LINK}) if os.read(self._read, 4096) else frozenset()

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


async def test_trap_14_a_burst_of_link_events_is_one_look(machine: Any, world: Any) -> None:
    told = asyncio.Event()

    async def changed(_: Snapshot) -> None:
        told.set()

    pace = Pace(min_interval=0.0, max_interval=3600, burst=5, settle=0.01)
    watcher = Watcher(Inventory(Options(), world), changed, pace=pace, changes=Burst())
    task = asyncio.create_task(watcher.run())
    await told.wait()
    await asyncio.sleep(0.2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert watcher.looks <= 2  # the first look, and one for all hundred


def test_trap_16_a_card_whose_netdev_is_in_a_pod_is_not_rdma_only(machine: Any, world: Any) -> None:
    path = machine.card("0000:8a:00.0", netdevs=["eth1"], rdma="mlx5_0")
    world.link("eth1", 5)
    inventory = Inventory(Options(), world)
    (before,) = inventory.look().devices
    world.links_.clear()
    (machine.root / "class/net/eth1").unlink()
    (machine.root / path / "net/eth1").rmdir()
    for in_use in ({}, {NAME: before}):
        (device,) = inventory.look(in_use).devices
        assert not device.rdma_only


def test_trap_17_two_netdevs_on_one_function_do_not_hide_each_other(machine: Any, world: Any) -> None:
    machine.card("0000:8a:00.0", netdevs=["eth1", "eth2"])
    world.link("eth1", 5)
    world.link("eth2", 6)
    snapshot = Inventory(Options(), world).look()
    told: Sequence[str] = [*(d.netdev.name for d in snapshot.devices), *(s.name for s in snapshot.skipped)]
    assert {"eth1", "eth2"} <= set(told)
