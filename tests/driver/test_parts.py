"""Parts: a new one is one file; and however many cards and parts there are, the kernel is talked to as often."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dranet.driver import parts as folder
from dranet.driver.claims.planner import Planner
from dranet.driver.moving.cards import Cards
from dranet.driver.moving.together import together
from dranet.driver.parts.base import AttachError, Step
from dranet.driver.parts.registry import Parts, discover
from dranet.driver.store import Store
from dranet.kernel import links
from dranet.kernel.netlink import NetlinkError, NetlinkSocket
from dranet.kernel.sysfs import Sysfs

from .conftest import TestNode

BEACON = '''
"""A toy: the interface carries a word in its alias while it is in the pod."""

import msgspec

from dranet.driver.parts.base import Part
from dranet.kernel import links
from dranet.kube.claims import Condition


class BeaconRecord(msgspec.Struct, frozen=True):
    word: str


class BeaconPart(Part[BeaconRecord]):
    tag, place, record = "beacon", 60, BeaconRecord

    def plan(self, node, seen, config, device):
        return self.keep(device, BeaconRecord(f"lent to {device.request}"))

    def rise(self, host, pod, device, card):
        (error,) = yield [links.change(card.index, alias=self.of(device).word)]
        assert error is None
        return (Condition("BeaconLit", True, "BeaconLit"),)

    def leave(self, host, pod, device, card):
        yield [links.change(card.index, alias="")]
        return [] if card else ["the beacon went with its card"]


PART = BeaconPart()
'''


@pytest.fixture
def more_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Parts]:
    """The parts there are, and one more file."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "beacon.py").write_text(BEACON)
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path / "parts")])
    yield discover()
    del sys.modules["dranet.driver.parts.beacon"]


@pytest.fixture
def beacon_node(node: TestNode, more_parts: Parts) -> Iterator[TestNode]:
    """A node whose driver has the toy part."""
    node.cards.close()
    node.store.close()
    node.store = Store(str(node.folder / "dranet.sqlite"), parts=more_parts)
    node.cards = Cards(node.host, node.store, node.cards.receipts, parts=more_parts)
    node.planner = Planner(node.host, Sysfs(str(node.folder)), str(node.folder), parts=more_parts)
    return node


def alias(node: TestNode, name: str, pod: object) -> str | None:
    (link,) = node.ip("link", "show", name, where=pod)  # type: ignore[arg-type]
    return link.get("ifalias")


def test_one_file_is_planned_kept_carried_out_and_taken_back(beacon_node: TestNode, more_parts: Parts) -> None:
    before = beacon_node.picture("card0"), beacon_node.picture("card1")
    plan = beacon_node.plan("card0", "card1")
    pod = beacon_node.pod()
    attached = beacon_node.cards.attach("pod-1", pod.path)
    assert [alias(beacon_node, name, pod) for name in ("card0", "card1")] == ["lent to r-card0", "lent to r-card1"]
    assert [[c.type for c in item.conditions][-1] for item in attached] == ["BeaconLit", "BeaconLit"]
    beacon_node.store.close()  # and read again, as the next driver does
    beacon_node.store = beacon_node.cards.store = Store(str(beacon_node.folder / "dranet.sqlite"), parts=more_parts)
    read = beacon_node.store.get(plan.uid)
    assert read is not None
    assert read.devices[0].parts == {"beacon": {"version": 1, "word": "lent to r-card0"}}
    assert beacon_node.cards.bring_home(plan.uid) == []
    assert (beacon_node.picture("card0"), beacon_node.picture("card1")) == before


def test_a_driver_without_that_file_leaves_its_claims_alone_and_says_why(beacon_node: TestNode) -> None:
    plan = beacon_node.plan("card0")
    other = Store(str(beacon_node.folder / "dranet.sqlite"))
    assert not other.plans
    assert "parts this driver does not know (beacon)" in other.unreadable[plan.uid].reason
    other.close()


def test_a_part_of_a_newer_version_is_not_guessed_at(beacon_node: TestNode, more_parts: Parts) -> None:
    plan = beacon_node.plan("card0")
    (part,) = (part for part in more_parts if part.tag == "beacon")
    part.version = 0  # type: ignore[misc]  # this driver is older than the record
    other = Store(str(beacon_node.folder / "dranet.sqlite"), parts=more_parts)
    assert "its part beacon was written by a newer driver" in other.unreadable[plan.uid].reason
    other.close()


def test_eight_cards_cost_as_many_conversations_with_the_kernel_as_one(
    new_node: Callable[[], TestNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, talks = new_node(), 0
    for number in range(8):
        node.add_card(f"card{number}", f"10.{number}.0.1/24")
    send = NetlinkSocket._send

    def counted(self: NetlinkSocket, *arguments: object) -> int:
        nonlocal talks
        talks += 1
        return send(self, *arguments)  # type: ignore[arg-type]

    def life(uid: str, *names: str) -> int:
        nonlocal talks
        plan = node.plan(*names, uid=uid, pod_uid=uid, config={"interface": {"mtu": 1400}} if len(names) == 1 else None)
        node.cards.ready(plan)
        pod, talks = node.pod(), 0
        node.cards.attach(uid, pod.path)
        assert node.cards.bring_home(plan.uid) == []
        node.store.delete(uid)
        return talks

    monkeypatch.setattr(NetlinkSocket, "_send", counted)
    assert life("one", "card0") == life("eight", *(f"card{number}" for number in range(8)))


class Kernel:
    """Answers batches as told and remembers what was asked together."""

    def __init__(self, refuse: str = "") -> None:
        self.batches: list[list[str]] = []
        self.refuse = refuse

    def batch(self, messages: list[links.Message]) -> list[NetlinkError | None]:
        self.batches.append([message.what for message in messages])
        return [NetlinkError(1, "no", m.what) if m.what == self.refuse else None for m in messages]


def step(*indexes: int) -> Step[str]:
    for index in indexes:
        (error,) = yield [links.delete(index)]
        if error is not None:
            raise AttachError(f"link {index} stays")
    return f"done {indexes[-1]}"


def test_steps_that_go_on_for_longer_than_others_are_finished_too() -> None:
    kernel = Kernel()
    assert together(kernel, [step(1), step(2, 3), step(4)]) == ["done 1", "done 3", "done 4"]  # type: ignore[arg-type]
    assert kernel.batches[0] == ["delete link 1", "delete link 2", "delete link 4"]
    assert kernel.batches[1] == ["delete link 3"]


def test_every_step_that_fails_is_told_and_the_others_are_finished() -> None:
    kernel = Kernel("delete link 2")
    with pytest.raises(AttachError, match="link 2 stays; link 2 stays"):
        together(kernel, [step(2, 9), step(5, 6), step(2)])  # type: ignore[arg-type]
    assert kernel.batches[1] == ["delete link 6"]
