"""The reference driver's traps that lie in discovery, by their number, each with the better behaviour."""

from __future__ import annotations

import asyncio

from dranet.core.slices import chunks, slice_problems
from dranet.linux.events import Change
from dranet.node.inventory import Inventory, InventoryOptions, NetdevLocation, Snapshot, Watcher, WatchIntervals
from dranet.node.inventory.cloud.azure import Azure
from dranet.node.inventory.cloud.http import HttpClient
from tests.node.inventory.conftest import Machine, Server, World

from .hand_clock import by_hand, pass_time

NIC = "0000:8a:00.0"
NAME = "pci-0000-8a-00-0"


async def test_trap_12_a_nic_is_configured_for_ipv6_although_its_device_name_is_no_interface_name(
    machine: Machine, world: World, inventory: Inventory, server: Server
) -> None:
    machine.nic(NIC, netdevs=["eth1"])
    world.link("eth0", 2)
    world.link("eth1", 3, mac="00:0d:3a:6e:11:22")
    world.default_route(2)
    world.default_route(2, family=10, destination="::/0", gateway="fe80::9", metric=1)
    world.default_route(3, family=10, destination="::/0", gateway="fe80::1", metric=1024, protocol=9)
    nic = {"macAddress": "000D3A6E1122", "ipv6": {"ipAddress": [{"privateIpAddress": "fd00:1::7"}]}}
    server.answer(
        {
            "/metadata/instance/compute": '{"vmSize": "x"}',
            "/metadata/instance/network": str({"interface": [nic]}).replace("'", '"'),
        }
    )
    azure = Azure(HttpClient(server.url))
    await azure.refresh(())
    device = inventory.scan().find(NAME)
    assert device is not None
    config = await azure.config(device.identity)
    assert config is not None
    assert config["routes"] == [{"destination": "::/0", "gateway": "fe80::1", "table": 100}]


def test_trap_13_neither_many_devices_nor_long_strings_spoil_a_slice(world: World) -> None:
    for number in range(200):
        world.link(f"dummy{number}", kind="dummy", alias="long " * 40)
    parts = chunks(Inventory(InventoryOptions(), world).scan().published)
    assert sum(map(len, parts)) == 200
    assert [problem for part in parts for problem in slice_problems(part)] == []


@by_hand
async def test_trap_14_a_storm_of_link_events_is_one_scan(world: World, inventory: Inventory) -> None:
    reported: asyncio.Queue[Snapshot] = asyncio.Queue()
    storm = Storm()
    watcher = Watcher(inventory, reported.put, intervals=WatchIntervals(quiet_period=0.2), changes=storm)
    task = asyncio.create_task(watcher.run())
    await reported.get()
    for number in range(100):
        world.link(f"dummy{number}", kind="dummy")
        storm.blow()
        await pass_time(0.001)
    while reported.empty():
        await pass_time(0.2)
    assert len((await reported.get()).devices) == 100
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert watcher.scans == 2


class Storm:
    """A socket pair: each byte is an event."""

    def __init__(self) -> None:
        import socket

        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)

    def blow(self) -> None:
        self._there.send(b"!")

    def fileno(self) -> int:
        return self._here.fileno()

    def drain(self) -> frozenset[Change]:
        return frozenset({Change.LINK}) if self._here.recv(65536) else frozenset()

    def close(self) -> None:
        self._here.close()
        self._there.close()


def test_trap_16_a_nic_whose_netdev_is_in_a_pod_is_not_taken_for_an_rdma_only_one(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    path = machine.nic(NIC, netdevs=["eth1"], rdma="mlx5_0")
    world.link("eth1", 5)
    (before,) = inventory.scan().devices
    world.links_.clear()
    (machine.root / "class/net/eth1").unlink()
    (machine.root / path / "net/eth1").rmdir()
    for in_use in (lambda: {NAME: before}, dict):
        (during,) = inventory.scan(in_use).devices
        assert during.netdev.location is NetdevLocation.OTHER_NETNS
        assert not during.rdma_only
        assert during.device.attributes["dra.net/ibOnly"] is False


def test_trap_17_netdevs_of_one_function_do_not_overwrite_each_other(
    machine: Machine, world: World, inventory: Inventory
) -> None:
    path = machine.nic(NIC, netdevs=["eth1"])
    machine.netdev(path, "eth1_0", phys_port_name="pf0vf0")
    machine.netdev(f"{path}/mlx5_core.sf.4", "eth1sf4")
    for name in ("eth1", "eth1sf4", "eth1_0"):
        world.link(name)
    assert {d.name: d.netdev.name for d in inventory.scan().devices} == {NAME: "eth1", "eth1sf4": "eth1sf4"}
