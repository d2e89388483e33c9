"""Faults put into real NICs, each for as long as its block lasts. A block begins when the kernel shows the fault, so
that what the driver does from there on can be counted, and ends when the NIC is whole again.

What this machine cannot show is tested on made trees (`tests/node/health/test_each_fault.py`): PCIe links below
their best, as QEMU's NICs have one lane and always train; firmware, which neither its NICs nor soft-RoCE have;
InfiniBand ports.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

from dranet.testing.waiting import until, wait_until
from tests.vm.machine import (
    E1000E_NODE0,
    E1000E_SWITCH,
    NICS,
    VIRTIO_NODE0,
    VIRTIO_NODE1,
    Nic,
)
from tests.vm.node import GuestNode
from tests.vm.parts import name_at
from tests.vm.world import cable_pulled, has_link, made_functions, named_namespace, netdev_at, netdev_of, tool

Fault = tuple[str, str]
"""Device and fault, as the metric names them."""
Injection = Callable[[GuestNode], AbstractAsyncContextManager[Fault]]
DEVICES = Path("/sys/bus/pci/devices")


def machine_file(path: Path) -> Path:
    """The description of this machine: its NICs and their speed."""
    kind = '[nic_kinds.nic]\nvendor_id = "8086"\ndevice_id = "10d3"\nkernel_driver = "any"\nspeed_gbit = 1\n'
    nics = "".join(f'[[nics]]\nkind = "nic"\npath = "{nic.pcie_root}/{nic.address}"\n' for nic in NICS)
    path.write_text(f'name = "guest"\n{kind}{nics}')
    return path


def carrier(interface: str) -> str:
    """`1`, `0`, or nothing for an interface that is switched off."""
    with suppress(OSError):
        return Path("/sys/class/net", interface, "carrier").read_text().strip()
    return ""


@asynccontextmanager
async def carrier_lost(node: GuestNode) -> AsyncIterator[Fault]:
    link = netdev_of(E1000E_NODE0)
    with cable_pulled(E1000E_NODE0):
        wait_until(lambda: carrier(link) == "0", "the carrier to go")
        yield name_at(E1000E_NODE0.address), "link-down"
    wait_until(lambda: carrier(link) == "1", "the carrier to come")


@asynccontextmanager
async def nic_in_a_pod(node: GuestNode, nic: Nic) -> AsyncIterator[Callable[[], str]]:
    """A pod that has run for a while; how the NIC's state in it is asked."""
    pod = node.claim(name_at(nic.address), "cable", {"interface": {"name": "net0"}})
    await node.start_pod(pod)

    def state() -> str:
        return tool("nsenter", f"--net={pod.path}", "ip", "-br", "link", "show", "net0").split()[1]

    try:
        await until(lambda: state() == "UP", "the carrier in the pod")
        await asyncio.sleep(6)  # two looks: a NIC that never had a carrier in its pod has more time to find one
        yield state
        assert not has_link(nic.address), "the pod keeps its NIC"
    finally:
        await node.stop_pod(pod)


@asynccontextmanager
async def carrier_lost_in_a_pod(node: GuestNode) -> AsyncIterator[Fault]:
    async with nic_in_a_pod(node, E1000E_SWITCH) as state:
        with cable_pulled(E1000E_SWITCH):
            await until(lambda: state() != "UP", "the carrier to go")
            yield name_at(E1000E_SWITCH.address), "link-down"
        await until(lambda: state() == "UP", "the carrier to come")


@asynccontextmanager
async def flapping_in_a_pod(node: GuestNode) -> AsyncIterator[Fault]:
    """Reported for ten minutes, or until the NIC changes hands."""
    async with nic_in_a_pod(node, E1000E_SWITCH) as state:
        for _ in range(2):
            with cable_pulled(E1000E_SWITCH):
                await until(lambda: state() != "UP", "the carrier to go")
            await until(lambda: state() == "UP", "the carrier to come")
        yield name_at(E1000E_SWITCH.address), "link-flapping"


@asynccontextmanager
async def moved_by_others(node: GuestNode) -> AsyncIterator[Fault]:
    link = netdev_of(E1000E_SWITCH)
    with named_namespace("others") as others:
        tool("ip", "link", "set", link, "netns", others.name)
        try:
            yield name_at(E1000E_SWITCH.address), "netdev-elsewhere"
        finally:
            others.tool("ip", "link", "set", link, "netns", "1")


@asynccontextmanager
async def removed(nic: Nic) -> AsyncIterator[None]:
    (DEVICES / nic.address / "remove").write_text("1")
    try:
        yield
    finally:
        Path("/sys/bus/pci/rescan").write_text("1")
        wait_until(lambda: has_link(nic.address), "the NIC to come back")


@asynccontextmanager
async def pulled_out_while_claimed(node: GuestNode) -> AsyncIterator[Fault]:
    pod = node.claim(name_at(VIRTIO_NODE1.address), "pulled")
    await node.prepare(pod)
    async with removed(VIRTIO_NODE1):
        yield name_at(VIRTIO_NODE1.address), "device-gone"
    await node.unprepare(pod)


@asynccontextmanager
async def pulled_out_unclaimed(node: GuestNode) -> AsyncIterator[Fault]:
    async with removed(VIRTIO_NODE1):
        yield "", "card-missing"


@asynccontextmanager
async def unbound_while_claimed(node: GuestNode) -> AsyncIterator[Fault]:
    pod = node.claim(name_at(VIRTIO_NODE0.address), "unbound")
    await node.prepare(pod)
    driver = (DEVICES / VIRTIO_NODE0.address / "driver").resolve()
    (driver / "unbind").write_text(VIRTIO_NODE0.address)
    try:
        yield name_at(VIRTIO_NODE0.address), "driver-unbound"
    finally:
        (driver / "bind").write_text(VIRTIO_NODE0.address)
        wait_until(lambda: has_link(VIRTIO_NODE0.address), "the NIC to come back")
    await node.unprepare(pod)


@asynccontextmanager
async def slower_link(node: GuestNode) -> AsyncIterator[Fault]:
    """Than the machine's description says: a tenth, by negotiation."""
    link = netdev_of(E1000E_SWITCH)
    tool("ethtool", "-s", link, "speed", "100", "duplex", "full", "autoneg", "off")
    tool("ip", "link", "set", link, "up")
    try:
        wait_until(lambda: carrier(link) == "1", "the carrier")
        assert Path("/sys/class/net", link, "speed").read_text() == "100\n"
        yield name_at(E1000E_SWITCH.address), "slow-link"
    finally:
        tool("ip", "link", "set", link, "down")
        tool("ethtool", "-s", link, "autoneg", "on")


@asynccontextmanager
async def another_mtu_than_its_siblings(node: GuestNode) -> AsyncIterator[Fault]:
    """Siblings are three virtual functions of one NIC."""
    with made_functions(3) as addresses:
        names = [name_at(address) for address in addresses]
        await until(lambda: set(names) <= set(node.published()), "the virtual functions to be published")
        tool("ip", "link", "set", netdev_at(addresses[1]), "mtu", "1400")
        yield names[1], "mtu-mismatch"
    await until(lambda: not set(names) & set(node.published()), "the virtual functions to go")


async def flap(nic: Nic, times: int) -> None:
    """The carrier goes and comes so many times, each of them seen by the kernel."""
    changes = Path("/sys/class/net", netdev_of(nic), "carrier_changes")
    for _ in range(times):
        begin = int(changes.read_text())
        with cable_pulled(nic):
            wait_until(lambda begin=begin: int(changes.read_text()) > begin, "the carrier to go")  # type: ignore[misc]
        wait_until(lambda begin=begin: int(changes.read_text()) > begin + 1, "the carrier to come")  # type: ignore[misc]
