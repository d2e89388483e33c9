"""What prepare leaves until the kubelet is answered: whatever comes in between, cards come home as they were found.

The order in question: prepare answers; how the card was found is noted; the card is taken down; the pod starts. A
driver may die after each, and the pod may start, stop or be given up before the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dranet.driver.claims.prepare import Preparer
from dranet.driver.moving.cards import Cards
from dranet.driver.records.plan import DevicePlan, Unasked
from dranet.driver.store import Store
from dranet.kernel import links
from dranet.kernel.ethtool import Ethtool
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.model.errors import DranetError
from dranet.model.names import ClaimRef

from .conftest import TestNode
from .test_prepare import a_claim, prepare, preparer

REF = ClaimRef("default", "one", "one")
POD = "pod-of-one"


def asking(**interface: Any) -> dict[str, Any]:
    claim = a_claim("one", "card0")
    opaque = {"driver": "dra.net", "parameters": {"interface": interface}}
    claim["status"]["allocation"]["devices"]["config"] = [{"source": "FromClaim", "opaque": opaque}]
    return claim


def on_disk(node: TestNode) -> DevicePlan:
    """The claim's one device, as a driver that starts now would read it."""
    assert node.store.path is not None
    (device,) = Store.copy_of(node.store.path).plans["one"].devices
    assert device.found is not None
    return device


def noted(node: TestNode) -> Unasked | None:
    found = on_disk(node).found
    return found.unasked if found else None


def is_up(node: TestNode) -> bool:
    card = links.get_link(node.host.route, "card0")
    assert card is not None
    return card.is_up


def switch_off_gro(pod: Namespace) -> None:
    """What a pod may do without having asked, and what stays with a card when it moves."""
    with NetlinkSocket(namespace_fd=pod.fd) as route, Ethtool(pod.fd) as ethtool:
        card = links.get_link(route, "card0")
        assert card is not None
        ethtool.set_features(card.index, {"rx-gro": False})


@pytest.fixture
def made(node: TestNode) -> Preparer:
    return preparer(node, a_claim("one", "card0"))


@pytest.fixture
def next_driver(node: TestNode) -> Iterator[Cards]:
    """The one that comes when ours has died: it knows what is in the file and nothing else."""
    assert node.store.path is not None
    store = Store(node.store.path)
    cards = Cards(node.host, store, node.cards.receipts)
    yield cards
    cards.close()
    store.close()


async def test_the_answer_comes_when_the_plan_is_in_the_file_and_before_a_card_is_touched(
    node: TestNode, made: Preparer
) -> None:
    before = node.picture("card0")
    await prepare(made, "one")
    assert on_disk(node).found is not None
    assert noted(node) is None
    assert node.picture("card0") == before


async def test_after_the_answer_it_is_noted_how_the_card_was_found_and_then_it_is_taken_down(
    node: TestNode, made: Preparer, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[tuple[str, bool, bool]] = []
    monkeypatch.setattr(
        "dranet.driver.moving.cards.reach", lambda point: order.append((point, noted(node) is not None, is_up(node)))
    )
    await prepare(made, "one")
    await made.follow_up(REF)
    assert order == [("prepare.noted", True, True), ("prepare.readied", True, False)]


async def test_what_the_kernel_may_refuse_is_done_before_the_answer_and_noted_before_that(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = preparer(node, asking(mtu=1400))
    order: list[tuple[str, bool, bool]] = []
    monkeypatch.setattr(
        "dranet.driver.moving.cards.reach", lambda point: order.append((point, noted(node) is not None, is_up(node)))
    )
    await prepare(made, "one")
    assert order == [("prepare.noted", True, True), ("prepare.readied", True, False)]
    card = links.get_link(node.host.route, "card0")
    assert card is not None
    assert card.mtu == 1400


async def test_what_the_kernel_refuses_the_kubelet_hears_and_the_card_is_as_it_was(node: TestNode) -> None:
    made = preparer(node, asking(hardwareAddr="01:00:5e:00:00:01"))  # a group's address is nobody's own
    before = node.picture("card0")
    with pytest.raises(DranetError):
        await prepare(made, "one")
    assert node.picture("card0") == before
    assert not node.store.plans


async def test_a_pod_that_starts_before_it_was_noted_gets_its_card_and_gives_it_back_as_it_was(
    node: TestNode, made: Preparer
) -> None:
    before = node.picture("card0")
    await prepare(made, "one")
    pod = node.pod()
    node.cards.attach(POD, pod.path)
    was = noted(node)
    assert was is not None, "noted before the card moved"
    switch_off_gro(pod)
    await made.follow_up(REF)
    assert node.names(pod) == {"card0"}
    assert noted(node) == was, "not what the pod has made of it"
    await made.unprepare(REF)
    assert node.picture("card0") == before


async def test_a_pod_that_starts_and_stops_before_the_card_was_made_ready_leaves_it_as_it_was(
    node: TestNode, made: Preparer
) -> None:
    before = node.picture("card0")
    await prepare(made, "one")
    pod = node.pod()
    node.cards.attach(POD, pod.path)
    node.cards.bring_home("one", stopping=pod.path)
    await made.follow_up(REF)
    assert node.picture("card0") == before, "what is home is not taken down again"
    await made.unprepare(REF)
    assert node.picture("card0") == before


def test_cards_whose_plan_has_changed_meanwhile_are_not_made_ready(node: TestNode) -> None:
    before = node.picture("card0")
    plan, pod = node.plan("card0"), node.pod()
    node.cards.attach("pod-1", pod.path)
    node.cards.bring_home(plan.uid)
    node.cards.ready(plan)
    assert node.picture("card0") == before


async def test_a_claim_that_ends_before_its_card_was_made_ready_leaves_it_as_it_was(
    node: TestNode, made: Preparer
) -> None:
    before = node.picture("card0")
    await prepare(made, "one")
    await made.unprepare(REF)
    await made.follow_up(REF)
    assert node.picture("card0") == before


async def test_a_driver_that_dies_before_it_was_noted_leaves_that_to_the_next(
    node: TestNode, made: Preparer, next_driver: Cards
) -> None:
    before = node.picture("card0")
    await prepare(made, "one")
    pod = node.pod()
    next_driver.attach(POD, pod.path)
    switch_off_gro(pod)
    assert next_driver.bring_home("one") == []
    assert node.picture("card0") == before


@pytest.mark.parametrize("point", ["prepare.noted", "prepare.readied"])
async def test_a_driver_that_dies_afterwards_leaves_a_card_that_the_next_one_knows(
    point: str, node: TestNode, made: Preparer, next_driver: Cards, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = node.picture("card0")

    def die(here: str) -> None:
        if here == point:
            raise InterruptedError(point)

    monkeypatch.setattr("dranet.driver.moving.cards.reach", die)
    await prepare(made, "one")
    with pytest.raises(InterruptedError):
        await made.follow_up(REF)
    was = noted(node)
    assert was is not None
    pod = node.pod()
    next_driver.attach(POD, pod.path)
    assert node.names(pod) == {"card0"}
    assert noted(node) == was
    switch_off_gro(pod)
    assert next_driver.bring_home("one") == []
    assert node.picture("card0") == before


async def test_a_claim_that_is_given_up_after_its_card_was_taken_down_gets_it_up_again(
    node: TestNode, made: Preparer
) -> None:
    before = node.picture("card0")
    await prepare(made, "one")
    await made.follow_up(REF)
    assert not is_up(node)
    await made.unprepare(REF)
    assert node.picture("card0") == before


async def test_of_a_card_in_a_pod_nothing_is_noted_when_it_is_repaired(node: TestNode, made: Preparer) -> None:
    """What a pod has made of its card is not how it was found. A driver from before wrote such plans without notes."""
    await prepare(made, "one")
    pod = node.pod()
    node.cards.attach(POD, pod.path)
    (device,) = node.store.plans["one"].devices
    assert device.found is not None
    without = msgspec.structs.replace(device.found, unasked=None)
    node.store.change("one", devices=(msgspec.structs.replace(device, found=without),))
    switch_off_gro(pod)
    node.cards.attach(POD, pod.path, repair_of=node.store.plans["one"])
    assert noted(node) is None


async def test_a_card_that_was_home_before_it_was_made_ready_is_given_back_as_it_was(
    node: TestNode, made: Preparer
) -> None:
    """So it is after a lost store: of a card that a driver finds in a pod nothing is noted when it comes home, and the
    kubelet, started anew, has its claim prepared again."""
    before = node.picture("card0")
    await prepare(made, "one")
    assert node.cards.bring_home("one") == []
    await made.follow_up(REF)
    assert not is_up(node)
    await made.unprepare(REF)
    assert node.picture("card0") == before
