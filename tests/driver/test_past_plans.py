"""Ends of claims that were not on disk when the machine died, and unprepare after a stop hook that has done it all."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from dranet.driver.store import Store
from dranet.kubelet.handler import PreparedDevice
from dranet.model.errors import Busy
from dranet.model.names import ClaimRef

from .conftest import TestNode
from .test_prepare import Cluster, a_claim, prepare, preparer


async def with_a_plan_from_before_a_reboot(node: TestNode, old: dict[str, Any] | None) -> list[PreparedDevice]:
    """Prepare a claim whose card such a plan has; `old` is what the API server says of the plan's claim."""
    made = preparer(node, a_claim("old", "card0"), a_claim("new", "card0"))
    await prepare(made, "old")
    node.store.change("old", boot="the one before")
    cast("Cluster", made.cluster).has(a_claim("new", "card0"), *([old] if old else []))
    return await prepare(made, "new")


@pytest.mark.parametrize("became", ["deleted", "made anew", "not reserved any more"])
async def test_a_plan_from_before_a_reboot_ends_when_its_claim_has(node: TestNode, became: str) -> None:
    old = a_claim("old", "card0")
    if became == "made anew":
        old["metadata"]["uid"] = "another"
    if became == "not reserved any more":
        old["status"]["reservedFor"] = []
    prepared = await with_a_plan_from_before_a_reboot(node, None if became == "deleted" else old)
    assert [device.device for device in prepared] == ["card0"]
    assert set(node.store.plans) == {"new"}


async def test_a_plan_from_before_a_reboot_holds_its_card_while_its_claim_lives(node: TestNode) -> None:
    with pytest.raises(Busy, match="card0 is held by claim default/old"):
        await with_a_plan_from_before_a_reboot(node, a_claim("old", "card0"))
    assert set(node.store.plans) == {"old"}


async def test_a_plan_of_this_boot_holds_its_card_even_if_its_claim_is_gone(node: TestNode) -> None:
    """Its pod may still run: the kubelet has not unprepared it."""
    made = preparer(node, a_claim("old", "card0"), a_claim("new", "card0"))
    await prepare(made, "old")
    cast("Cluster", made.cluster).has(a_claim("new", "card0"))
    with pytest.raises(Busy, match="card0 is held by claim default/old"):
        await prepare(made, "new")


async def test_an_unprepared_claim_is_forgotten_on_disk_for_whoever_opens_the_file_next(node: TestNode) -> None:
    made = preparer(node, a_claim("one", "card0"))
    await prepare(made, "one")
    await made.unprepare(ClaimRef("default", "one", "one"))
    node.store.settle()
    assert node.store.path is not None
    again = Store(node.store.path)
    assert dict(again.plans) == {}
    again.close()


async def test_a_card_that_came_home_at_the_stop_and_left_again_is_brought_home_by_unprepare(node: TestNode) -> None:
    made = preparer(node, a_claim("one", "card0"))
    before = node.picture("card0")
    await prepare(made, "one")
    first, second = node.pod(), node.pod()
    node.cards.attach("pod-of-one", first.path)
    node.cards.bring_home("one", stopping=first.path)
    node.cards.attach("pod-of-one", second.path)
    await made.unprepare(ClaimRef("default", "one", "one"))
    assert node.picture("card0") == before


async def test_a_card_that_another_driver_moved_after_the_stop_is_brought_home_by_unprepare(node: TestNode) -> None:
    """Two drivers share the store in an update; the other one's move is seen there."""
    made = preparer(node, a_claim("one", "card0"))
    before = node.picture("card0")
    await prepare(made, "one")
    first, second = node.pod(), node.pod()
    node.cards.attach("pod-of-one", first.path)
    node.cards.bring_home("one", stopping=first.path)
    other = type(node.cards)(node.host, node.store, node.cards.receipts)
    other.attach("pod-of-one", second.path)
    await made.unprepare(ClaimRef("default", "one", "one"))
    other.close()
    assert node.picture("card0") == before


async def test_a_card_that_could_not_be_made_whole_at_the_stop_is_tried_again_by_unprepare(node: TestNode) -> None:
    made = preparer(node, a_claim("one", "card0"))
    before = node.picture("card0")
    await prepare(made, "one")
    pod = node.pod()
    node.cards.attach("pod-of-one", pod.path)
    plan = node.store.plans["one"]
    (device,) = plan.devices
    assert device.found is not None
    spoilt = msgspec.structs.replace(device.found.link, mtu=10**6)
    found = msgspec.structs.replace(device.found, link=spoilt)
    node.store.change("one", devices=(msgspec.structs.replace(device, found=found),))
    assert node.cards.bring_home("one", stopping=pod.path), "the kernel has no such MTU"
    node.store.change("one", devices=plan.devices)
    node.run("ip", "link", "set", "card0", "mtu", "1400")
    await made.unprepare(ClaimRef("default", "one", "one"))
    assert node.picture("card0") == before
