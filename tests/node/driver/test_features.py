"""Parts: a new one is one file; and however many NICs and parts there are, the kernel is talked to as often."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dranet.linux import links
from dranet.linux.codec import Message
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.node import features as folder
from dranet.node.claims.planner import Planner
from dranet.node.features.base import AttachError, Step
from dranet.node.features.registry import Features, discover
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.node.lifecycle.feature_steps import run_batched

from .conftest import OpenStore, TestNode

BEACON = '''
"""A toy: the interface carries a word in its alias while it is in the pod."""

import msgspec

from dranet.node.features.base import Feature
from dranet.linux import links
from dranet.kubernetes.api.claims import Condition


class BeaconRecord(msgspec.Struct, frozen=True):
    word: str


class BeaconFeature(Feature[BeaconRecord]):
    tag, order, record_type = "beacon", 60, BeaconRecord

    def plan(self, node, seen, config, device):
        return self.with_record(device, BeaconRecord(f"lent to {device.request}"))

    def bring_up(self, host, pod, device, nic):
        (error,) = yield [links.change(nic.index, alias=self.record_of(device).word)]
        assert error is None
        return (Condition("BeaconLit", True, "BeaconLit"),)

    def detach(self, host, pod, device, nic):
        yield [links.change(nic.index, alias="")]
        return [] if nic else ["the beacon went with its nic"]


FEATURE = BeaconFeature()
'''


@pytest.fixture
def more_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Features]:
    """The parts there are, and one more file."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "beacon.py").write_text(BEACON)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path / "parts")])
    yield discover()
    del sys.modules["dranet.node.features.beacon"]


@pytest.fixture
def beacon_node(node: TestNode, more_features: Features, open_store: OpenStore) -> TestNode:
    """A node whose driver has the toy part."""
    node.lifecycle.close()
    node.store.close()
    node.store = open_store(str(node.folder / "dranet.sqlite"), features=more_features)
    node.lifecycle = DeviceLifecycle(node.host, node.store, node.lifecycle.gates, features=more_features)
    node.planner = Planner(node.host, Sysfs(str(node.folder)), str(node.folder), features=more_features)
    return node


def alias(node: TestNode, name: str, pod: object) -> str | None:
    (link,) = node.ip("link", "show", name, where=pod)  # type: ignore[arg-type]
    return link.get("ifalias")


def test_new_feature_needs_one_file(beacon_node: TestNode, more_features: Features, open_store: OpenStore) -> None:
    before = beacon_node.picture("nic0"), beacon_node.picture("nic1")
    plan = beacon_node.plan("nic0", "nic1")
    pod = beacon_node.pod()
    attached = beacon_node.lifecycle.attach("pod-1", pod.path)
    assert [alias(beacon_node, name, pod) for name in ("nic0", "nic1")] == ["lent to r-nic0", "lent to r-nic1"]
    assert [[c.type for c in item.conditions][-1] for item in attached] == ["BeaconLit", "BeaconLit"]
    beacon_node.store.close()  # and read again, as the next driver does
    beacon_node.store = beacon_node.lifecycle.store = open_store(
        str(beacon_node.folder / "dranet.sqlite"), features=more_features
    )
    read = beacon_node.store.get(plan.uid)
    assert read is not None
    assert read.devices[0].feature_records == {"beacon": {"version": 1, "word": "lent to r-nic0"}}
    assert beacon_node.lifecycle.detach(plan.uid) == []
    assert (beacon_node.picture("nic0"), beacon_node.picture("nic1")) == before


def test_unknown_feature_makes_the_plan_unreadable(beacon_node: TestNode, open_store: OpenStore) -> None:
    plan = beacon_node.plan("nic0")
    other = open_store(str(beacon_node.folder / "dranet.sqlite"))
    assert not other.plans
    assert "this driver does not support its features beacon" in other.unreadable[plan.uid].reason
    other.close()


def test_newer_feature_record_makes_the_plan_unreadable(
    beacon_node: TestNode, more_features: Features, open_store: OpenStore
) -> None:
    plan = beacon_node.plan("nic0")
    (part,) = (part for part in more_features if part.tag == "beacon")
    part.version = 0  # type: ignore[misc]  # this driver is older than the record
    other = open_store(str(beacon_node.folder / "dranet.sqlite"), features=more_features)
    assert "a newer driver wrote the record of feature beacon" in other.unreadable[plan.uid].reason
    other.close()


def test_eight_devices_need_as_many_netlink_round_trips_as_one(
    new_node: Callable[[], TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, talks = new_node(), 0
    for number in range(8):
        node.add_nic(f"nic{number}", f"10.{number}.0.1/24")
    send = NetlinkSocket._send

    def counted(self: NetlinkSocket, *arguments: object) -> int:
        nonlocal talks
        talks += 1
        return send(self, *arguments)  # type: ignore[arg-type]

    def life(uid: str, *names: str) -> int:
        nonlocal talks
        plan = node.plan(*names, uid=uid, pod_uid=uid, config={"interface": {"mtu": 1400}} if len(names) == 1 else None)
        node.lifecycle.set_up(plan)
        pod, talks = node.pod(), 0
        node.lifecycle.attach(uid, pod.path)
        assert node.lifecycle.detach(plan.uid) == []
        node.store.delete(uid)
        return talks

    monkeypatch.setattr(NetlinkSocket, "_send", counted)
    assert life("one", "nic0") == life("eight", *(f"nic{number}" for number in range(8)))


class Kernel:
    """Answers batches, refuses one message, and records each batch."""

    def __init__(self, refuse: str = "") -> None:
        self.batches: list[list[str]] = []
        self.refuse = refuse

    def batch(self, messages: list[Message]) -> list[NetlinkError | None]:
        self.batches.append([message.what for message in messages])
        return [NetlinkError(1, "no", m.what) if m.what == self.refuse else None for m in messages]


def step(*indexes: int) -> Step[str]:
    for index in indexes:
        (error,) = yield [links.delete(index)]
        if error is not None:
            raise AttachError(f"link {index} stays")
    return f"done {indexes[-1]}"


def test_longer_steps_are_finished() -> None:
    kernel = Kernel()
    assert run_batched(kernel, [step(1), step(2, 3), step(4)]) == ["done 1", "done 3", "done 4"]  # type: ignore[arg-type]
    assert kernel.batches[0] == ["delete link 1", "delete link 2", "delete link 4"]
    assert kernel.batches[1] == ["delete link 3"]


def test_failed_steps_do_not_stop_others() -> None:
    kernel = Kernel("delete link 2")
    with pytest.raises(AttachError, match="link 2 stays; link 2 stays"):
        run_batched(kernel, [step(2, 9), step(5, 6), step(2)])  # type: ignore[arg-type]
    assert kernel.batches[1] == ["delete link 6"]
