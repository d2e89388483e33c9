"""The whole daemon on a machine with faults that come and go: taints, events, metrics and the kubelet's stream."""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dranet.core.device import FaultKind
from dranet.kubernetes.api import resources
from dranet.kubernetes.kubelet.handler import Health
from dranet.node.health.checks import FaultHistory, Finding
from dranet.node.health.readings import DeviceReading
from dranet.node.server.health_watch import HealthWatch
from dranet.testing.waiting import until

from . import daemon_bench
from .daemon_bench import Bench

LINK_DOWN = (FaultKind.LINK_DOWN, "eth1 has no carrier")


def watched(*looks: tuple[tuple[FaultKind, str], ...], interval: float) -> list[tuple[float, list[FaultKind]]]:
    """The reports of a watch on a NIC for which each scan knows these faults, with their times."""
    reported: list[tuple[float, list[FaultKind]]] = []
    done = asyncio.Event()
    left = [[DeviceReading(device="d", at=float(at), known_faults=certain)] for at, certain in enumerate(looks)]

    def report(findings: Sequence[Finding]) -> None:
        reported.append((time.monotonic(), [finding.fault for finding in findings]))
        if len(reported) == len(looks):
            done.set()

    async def nothing_new() -> None:
        pass

    async def run() -> None:
        watch = HealthWatch(
            lambda: left[len(reported)], FaultHistory(), report, rescan=nothing_new, interval=interval, spacing=0.05
        )
        task = asyncio.create_task(watch.run())
        await done.wait()
        task.cancel()

    asyncio.run(run())
    return reported


def test_fault_is_confirmed_by_a_second_check() -> None:
    (first, none), (second, found) = watched((LINK_DOWN,), (LINK_DOWN,), interval=3600.0)
    assert none == [] and found == [FaultKind.LINK_DOWN]
    assert second - first >= 0.05


async def test_one_scan_does_not_confirm_a_fault() -> None:
    """A stale scan of a NIC that was just restored and had no carrier yet."""
    picture, reported = [DeviceReading(device="d", at=0.0, known_faults=(LINK_DOWN,))], asyncio.Queue[list[FaultKind]]()

    async def look_anew() -> None:
        picture[0] = DeviceReading(device="d", at=1.0)

    def report(findings: Sequence[Finding]) -> None:
        reported.put_nowait([finding.fault for finding in findings])

    watch = HealthWatch(lambda: list(picture), FaultHistory(), report, rescan=look_anew, interval=3600.0, spacing=0.05)
    task = asyncio.create_task(watch.run())
    assert [await reported.get(), await reported.get()] == [[], []]
    task.cancel()


def test_carrier_that_returns_in_time_is_not_a_fault() -> None:
    assert [found for _, found in watched((LINK_DOWN,), (), (LINK_DOWN,), (), interval=0.05)] == [[]] * 4


def test_idle_node_is_checked_once_per_interval() -> None:
    (first, _), (second, _) = watched((), (), interval=0.3)
    assert second - first >= 0.3


# The whole daemon -------------------------------------------------------------------------------------------------


# By its module's name: no manner of a runtime makes a difference here, so these are not played in all of them.


def write(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / name).write_text(f"{value}\n")


def function(b: Bench, number: int) -> Path:
    return b.node.folder / "sys" / f"devices/pci0000:0{number}/0000:0{number}:00.0"


def make_pci_nics(b: Bench, count: int) -> None:
    """The node's links as network NICs of one model, each at x16."""
    sys = b.node.folder / "sys"
    for number in range(count):
        folder = function(b, number)
        ids = {"vendor": "0x15b3", "device": "0x1021", "class": "0x020000", "numa_node": 0}
        speeds = {f"{which}_link_speed": "32.0 GT/s PCIe" for which in ("current", "max")}
        write(folder, **ids, **speeds, current_link_width=16, max_link_width=16)
        write(folder / f"net/nic{number}", mtu=1500, speed=400000, flags="0x1003", carrier_changes=1)
        for link, target in {
            sys / "bus/pci/devices" / folder.name: folder,
            sys / f"class/net/nic{number}": folder / f"net/nic{number}",
            folder / f"net/nic{number}/device": folder,
            folder / "driver": sys / "bus/pci/drivers/mlx5_core",
        }.items():
            link.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def taints(b: Bench) -> dict[str, list[str]]:
    devices = [d for s in b.api.objects(resources.RESOURCE_SLICES) for d in s["spec"]["devices"]]
    return {d["name"]: [t["key"] for t in d["taints"]] for d in devices if d.get("taints")}


def metrics(b: Bench) -> str:
    def ask() -> str:
        connection = http.client.HTTPConnection("127.0.0.1", 9177, timeout=30)
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()

    return b.node.namespace.run(ask)


@pytest.mark.usefixtures("may_make_namespaces")
async def test_degraded_pcie_link_is_tainted_and_unhealthy() -> None:
    async with daemon_bench.bench(nics=3, start=False) as b:
        make_pci_nics(b, 3)
        await b.node.start_driver()
        await until(lambda: len(b.published()) == 3)
        bad = "pci-0000-01-00-0"
        assert set(b.published()) == {f"pci-0000-0{number}-00-0" for number in range(3)}
        write(function(b, 1), current_link_width=8)
        await until(lambda: taints(b))
        assert taints(b) == {bad: ["dra.net/pcie-degraded"]}
        await until(lambda: any(reason == "NetworkDeviceBroken" and bad in text for reason, text in b.events()))
        assert f'dranet_driver_device_faults{{device="{bad}",fault="pcie-degraded",severity="broken"}} 1.0' in metrics(
            b
        )
        async for devices in b.node.kubelet.health("dra.net"):
            assert {d.device for d in devices if d.health is Health.UNHEALTHY} == {bad}
            break
        write(function(b, 1), current_link_width=16)
        await until(lambda: not taints(b))
        assert "dranet_driver_device_faults{" not in metrics(b)


@pytest.mark.usefixtures("may_make_namespaces")
async def test_policy_file_turns_a_taint_into_an_event(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[pcie-degraded]\nseverity = "degraded"\n')
    async with daemon_bench.bench(nics=3, start=False, flags=[f"--health-policy={policy}"]) as b:
        make_pci_nics(b, 3)
        write(function(b, 1), current_link_width=8)
        await b.node.start_driver()
        await until(lambda: any(reason == "NetworkDeviceDegraded" for reason, _ in b.events()))
        assert taints(b) == {}


@pytest.mark.usefixtures("may_make_namespaces")
async def test_invalid_policy_ends_the_driver_with_its_path(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[link-dwon]\nseverity = "off"\n')
    async with daemon_bench.bench(start=False, flags=[f"--health-policy={policy}"]) as b:
        with pytest.raises(Exception, match="link-dwon"):
            await b.node.start_driver()
