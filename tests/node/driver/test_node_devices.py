"""What findings do to devices: taints for what is broken, words for what is degraded."""

from __future__ import annotations

import asyncio

from dranet.core.device import Device, FaultKind
from dranet.kubernetes.api.taints import TaintPolicy
from dranet.kubernetes.kubelet.handler import Health
from dranet.node.health.checks import Finding
from dranet.node.inventory import Netdev, NetdevLocation, NodeDevice, Snapshot
from dranet.node.server.node_devices import NodeDevices, device_health

NICS = Snapshot(
    devices=tuple(
        NodeDevice(device=Device(name=name), netdev=Netdev(location=NetdevLocation.HOST)) for name in ("a", "b")
    )
)
BROKEN = Finding("b", FaultKind.LINK_DOWN, "eth1 has no carrier", "broken")
DEGRADED = Finding("b", FaultKind.PORT_ERRORS, "symbol_error grew by 700", "degraded")


def shown(device: Device) -> tuple[str, list[str]]:
    return device.name, [taint.key for taint in device.taints]


def published(*findings: Finding) -> list[list[tuple[str, list[str]]]]:
    """Everything that goes out while a node has these findings and then none."""
    sent: list[list[tuple[str, list[str]]]] = []

    async def run() -> None:
        devices = NodeDevices(
            "n", TaintPolicy(), lambda all_: sent.append([(d.name, [t.key for t in d.taints]) for d in all_])
        )
        await devices.set_snapshot(NICS)
        devices.set_findings(findings)
        devices.set_findings(findings)
        devices.set_findings([])

    asyncio.run(run())
    return sent


def test_broken_device_is_tainted_until_it_recovers() -> None:
    clean: list[tuple[str, list[str]]] = [("a", []), ("b", [])]
    tainted = [("a", []), ("b", ["dra.net/link-down"])]
    assert published(BROKEN) == [clean, tainted, clean]


def test_degraded_device_is_not_tainted() -> None:
    assert all(taints == [] for sent in published(DEGRADED) for _, taints in sent)


def test_fault_of_the_node_taints_no_device() -> None:
    missing = Finding("", FaultKind.CARD_MISSING, "7 nics", "broken")
    assert all(taints == [] for sent in published(missing) for _, taints in sent)


def test_broken_device_is_unhealthy_with_a_message() -> None:
    good, bad = device_health("n", NICS, [BROKEN])
    assert (good.health, good.message) == (Health.HEALTHY, "")
    assert (bad.health, bad.message) == (Health.UNHEALTHY, "link-down: eth1 has no carrier")


def test_degraded_device_is_healthy_with_a_message() -> None:
    _, found = device_health("n", NICS, [DEGRADED])
    assert (found.health, found.message) == (Health.HEALTHY, "port-errors: symbol_error grew by 700")


async def test_unchanged_health_is_repeated() -> None:
    devices = NodeDevices("n", TaintPolicy(), lambda all_: None, repeat_seconds=0.01)
    await devices.set_snapshot(NICS)
    devices.set_findings([BROKEN])
    reported = devices.health()
    for _ in range(3):
        assert [d.health for d in await anext(reported)] == [Health.HEALTHY, Health.UNHEALTHY]
