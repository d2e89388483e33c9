"""Which faults count, and when."""

from __future__ import annotations

from dranet.driver.serving.node_devices import SettledFaults, device_health
from dranet.inventory import Fault, Netdev, NodeDevice, Place, Snapshot
from dranet.kubelet.handler import Health
from dranet.model.device import Device
from dranet.model.faults import FaultKind


def snapshot(*kinds: FaultKind) -> Snapshot:
    faults = tuple(Fault(kind, str(kind)) for kind in kinds)
    return Snapshot(devices=(NodeDevice(device=Device(name="d"), netdev=Netdev(place=Place.HERE), faults=faults),))


def test_a_link_that_was_just_raised_has_a_moment_to_find_its_carrier() -> None:
    settled = SettledFaults(grace=3.0)
    assert settled.of(snapshot(FaultKind.LINK_DOWN), now=100.0) == ({"d": ()}, 3.0)
    assert settled.of(snapshot(), now=101.0) == ({"d": ()}, None)
    assert settled.of(snapshot(FaultKind.LINK_DOWN), now=102.0) == ({"d": ()}, 3.0)


def test_a_link_that_stays_down_counts() -> None:
    settled = SettledFaults(grace=3.0)
    settled.of(snapshot(FaultKind.LINK_DOWN), now=100.0)
    faults, wait = settled.of(snapshot(FaultKind.LINK_DOWN), now=103.0)
    assert [fault.kind for fault in faults["d"]] == [FaultKind.LINK_DOWN] and wait is None


def test_a_card_that_is_gone_counts_at_once() -> None:
    faults, wait = SettledFaults().of(snapshot(FaultKind.DEVICE_GONE), now=0.0)
    assert [fault.kind for fault in faults["d"]] == [FaultKind.DEVICE_GONE] and wait is None


def test_a_fault_makes_a_device_unhealthy_in_words() -> None:
    (found,) = device_health("n", {"d": (Fault(FaultKind.LINK_DOWN, "eth1 has no carrier"),)})
    assert (found.health, found.message) == (Health.UNHEALTHY, "eth1 has no carrier")
