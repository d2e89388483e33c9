"""What findings do to devices: taints for what is broken, words for what is degraded."""

from __future__ import annotations

import asyncio

import pytest

from dranet.driver.serving import node_devices
from dranet.driver.serving.node_devices import NodeDevices, device_health
from dranet.health.judging import Finding
from dranet.inventory import Netdev, NodeDevice, Place, Snapshot
from dranet.kube.taints import TaintPolicy
from dranet.kubelet.handler import Health
from dranet.model.device import Device
from dranet.model.faults import FaultKind

CARDS = Snapshot(
    devices=tuple(NodeDevice(device=Device(name=name), netdev=Netdev(place=Place.HERE)) for name in ("a", "b"))
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
        await devices.changed(CARDS)
        devices.judged(findings)
        devices.judged(findings)
        devices.judged([])

    asyncio.run(run())
    return sent


def test_what_is_broken_is_tainted_until_it_is_well_again() -> None:
    clean, tainted = [("a", []), ("b", [])], [("a", []), ("b", ["dra.net/link-down"])]
    assert published(BROKEN) == [clean, tainted, clean]


def test_what_is_degraded_is_not_tainted() -> None:
    assert all(taints == [] for sent in published(DEGRADED) for _, taints in sent)


def test_a_fault_of_the_node_itself_taints_no_card() -> None:
    missing = Finding("", FaultKind.CARD_MISSING, "7 cards", "broken")
    assert all(taints == [] for sent in published(missing) for _, taints in sent)


def test_what_is_broken_makes_a_device_unhealthy_in_words() -> None:
    good, bad = device_health("n", CARDS, [BROKEN])
    assert (good.health, good.message) == (Health.HEALTHY, "")
    assert (bad.health, bad.message) == (Health.UNHEALTHY, "link-down: eth1 has no carrier")


def test_what_is_degraded_is_healthy_with_words() -> None:
    _, found = device_health("n", CARDS, [DEGRADED])
    assert (found.health, found.message) == (Health.HEALTHY, "port-errors: symbol_error grew by 700")


async def test_the_kubelet_hears_again_what_has_not_changed_before_it_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_devices, "REPEAT_SECONDS", 0.01)
    devices = NodeDevices("n", TaintPolicy(), lambda all_: None)
    await devices.changed(CARDS)
    devices.judged([BROKEN])
    told = devices.health()
    for _ in range(3):
        assert [d.health for d in await anext(told)] == [Health.HEALTHY, Health.UNHEALTHY]
