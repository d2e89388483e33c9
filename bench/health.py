"""What watching the health of 16 NICs costs an idle node: CPU time of looks, on the node and in 16 pods, and a scrape.
And how long a fault that the kernel does not report takes to be named, by the clock.

The NICs are a made sysfs with everything a RoCE NIC shows: 13 error counters, a GID table of 256 slots, PCIe links.
Five minutes of looks at the driver's default interval, the first of them from scratch, are made without the waiting. A
busy machine shows two and three times as much: measure on a quiet one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from dranet.core.device import Device
from dranet.core.errors import KernelError
from dranet.core.pci import PciAddress
from dranet.linux import virtual_links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.node.health.checks import FaultHistory
from dranet.node.health.device_reader import (
    ERROR_COUNTERS,
    NETDEV_STATISTICS,
    PORT_TRAFFIC,
    ROCE_CONGESTION,
    TRANSPORT_COUNTERS,
)
from dranet.node.health.node_reader import ClaimedDevice, NodeReader
from dranet.node.inventory.snapshot import Netdev, NetdevLocation, NodeDevice, Snapshot
from dranet.node.server.health_watch import HealthWatch
from dranet.node.server.metrics import Metrics, Owner
from dranet.node.server.options import Options

NICS = 16
GIDS = 256
MINUTE = 60.0
MINUTES = 5
SCRAPES = 50
NODES = 12


def measure() -> dict[str, Any]:
    """CPU time a minute, and as a share of one processor."""
    with tempfile.TemporaryDirectory() as folder:
        snapshot = made_machine(Path(folder))
        return {
            "nics": NICS,
            "on_the_node": _minute(folder, snapshot),
            "in_16_pods": _in_pods(folder),
            "scrape": _scrape(folder),
            "naming": asyncio.run(_naming()),
        }


async def _naming() -> dict[str, Any]:
    """Nodes of which each loses PCIe lanes at some moment between two looks, from then until it counts."""
    with tempfile.TemporaryDirectory() as folder:
        taken = await asyncio.gather(*(_named_after(Path(folder, str(number)), number) for number in range(NODES)))
    return {"nodes": NODES, "median_s": round(statistics.median(taken), 2), "most_s": round(max(taken), 2)}


async def _named_after(root: Path, seed: int) -> float:
    snapshot, reader = made_machine(root, gids=4), NodeReader(str(root))
    named, interval = asyncio.Event(), Options().health_interval
    watch = HealthWatch(
        lambda: reader(snapshot),
        FaultHistory(),
        lambda findings: named.set() if findings else None,
        rescan=lambda: asyncio.sleep(0),
        interval=interval,
    )
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(interval * (1 + random.Random(seed).random()))
    (root / "devices/pci0000:03/0000:03:00.0/current_link_width").write_text("8\n")
    began = time.monotonic()
    await named.wait()
    watching.cancel()
    await asyncio.wait({watching})
    reader.close()
    return time.monotonic() - began


def _scrape(folder: str) -> dict[str, Any]:
    """The text of /metrics with all NICs in pods: nothing is read for it, so it is all formatting."""
    claims = {f"claim{number}": Owner("ml", f"worker-{number}", f"nics-{number}") for number in range(NICS)}
    held = {f"nic{number}": ClaimedDevice(f"claim{number}") for number in range(NICS)}
    metrics, reader = Metrics(), NodeReader(folder)
    metrics.devices.readings, metrics.devices.owners = reader(made_devices(NetdevLocation.HOST), held), lambda: claims
    reader.close()
    text = metrics.text().decode()
    taken = []
    for _ in range(SCRAPES):
        began = time.perf_counter()
        metrics.text()
        taken.append((time.perf_counter() - began) * 1000)
    series = sum(line.startswith("dranet_driver_card_") for line in text.splitlines())
    return {"series_of_nics": series, "median_ms": round(statistics.median(taken), 2), "most_ms": round(max(taken), 2)}


def _in_pods(folder: str) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        try:
            pods = [stack.enter_context(Namespace.create()) for _ in range(NICS)]
        except KernelError as error:
            return {"skipped": f"needs the right to make network namespaces: {error}"}
        held = {}
        for number, pod in enumerate(pods):
            with NetlinkSocket(namespace_fd=pod.fd) as route:
                route.request(virtual_links.create_veth(f"rdma{number}", "far"))
            held[f"nic{number}"] = ClaimedDevice(
                f"claim{number}", f"/proc/self/fd/{pod.fd}", f"rdma{number}", (f"10.0.0.{number}",)
            )
        return _minute(folder, made_devices(NetdevLocation.OTHER_NETNS), held)


def _minute(folder: str, snapshot: Snapshot, held: dict[str, ClaimedDevice] | None = None) -> dict[str, Any]:
    interval = Options().health_interval
    times = itertools.count(0.0, interval)
    reader, history = NodeReader(folder, clock=lambda: next(times)), FaultHistory()
    looks = round(MINUTES * MINUTE / interval)
    gc.collect()
    began = time.process_time()
    for _ in range(looks):
        history.add(reader(snapshot, held))
    spent = time.process_time() - began
    reader.close()
    return {
        "looks_a_minute": looks // MINUTES,
        "cpu_ms_a_minute": round(spent * 1000 / MINUTES, 1),
        "cpu_percent": round(100 * spent / MINUTES / MINUTE, 3),
    }


def made_devices(place: NetdevLocation) -> Snapshot:
    """Those devices, on the node or elsewhere."""
    attributes = {"dra.net/ipv4": "10.0.0.0/24"}
    return Snapshot(
        devices=tuple(
            NodeDevice(
                device=Device(name=f"nic{n}", attributes={**attributes, "dra.net/ipv4": f"10.0.0.{n}/24"}),
                netdev=Netdev(location=place, name=f"rdma{n}"),
                pci=PciAddress.find(f"0000:{n:02x}:00.0"),
                rdma_device=f"mlx5_{n}",
            )
            for n in range(NICS)
        )
    )


def made_machine(root: Path, gids: int = GIDS) -> Snapshot:
    """A sysfs of NICs that are well, and the devices of such a node."""
    for number in range(NICS):
        address = f"0000:{number:02x}:00.0"
        function = root / f"devices/pci0000:{number:02x}/{address}"
        speeds = {"current_link_speed": "32.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}
        widths = {"current_link_width": 16, "max_link_width": 16}
        _write(function, {"vendor": "0x15b3", "device": "0x1021", "class": "0x020000", **speeds, **widths})
        _link(root / "bus/pci/devices" / address, function)
        _write(function / f"net/rdma{number}", {"flags": "0x1003", "speed": 400000, "mtu": 4200, "carrier_changes": 2})
        _write(function / f"net/rdma{number}/statistics", dict.fromkeys(NETDEV_STATISTICS, 0))
        _link(root / f"class/net/rdma{number}", function / f"net/rdma{number}")
        _rdma(function / f"infiniband/mlx5_{number}", number, gids)
        _link(root / f"class/infiniband/mlx5_{number}", function / f"infiniband/mlx5_{number}")
    return made_devices(NetdevLocation.HOST)


def _rdma(device: Path, number: int, gids: int) -> None:
    port = device / "ports/1"
    _write(device, {"fw_ver": "28.39.1002"})
    _write(port, {"link_layer": "Ethernet", "rate": "400 Gb/sec (4X NDR)", "state": "4: ACTIVE"})
    _write(port / "counters", dict.fromkeys((*ERROR_COUNTERS, *PORT_TRAFFIC), 0))
    _write(port / "hw_counters", dict.fromkeys((*TRANSPORT_COUNTERS, *ROCE_CONGESTION), 0))
    zeros = "0000:" * 7 + "0000"
    own = f"0000:0000:0000:0000:0000:ffff:0a00:{number:04x}"
    _write(port / "gids", {str(slot): own if slot == 3 else zeros for slot in range(gids)})
    _write(port / "gid_attrs/types", {"3": "RoCE v2"})
    _write(port / "gid_attrs/ndevs", {"3": f"rdma{number}"})


def _write(folder: Path, files: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
