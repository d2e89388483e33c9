"""Prepare, called by itself: who may have a device when several ask."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dranet.driver.claims.allotment import ClaimError
from dranet.driver.claims.leases import Leases
from dranet.driver.claims.prepare import Preparer
from dranet.driver.claims.profiles import Profiles
from dranet.driver.records.store_file import StoreFile
from dranet.inventory.snapshot import NodeDevice
from dranet.kube.errors import Missing
from dranet.kubelet.handler import PreparedDevice
from dranet.model.errors import Busy, NotFound
from dranet.model.names import ClaimRef

from .conftest import TestNode


def a_claim(name: str, *devices: str) -> dict[str, Any]:
    results = [{"driver": "dra.net", "pool": "node", "device": d, "request": f"r-{d}"} for d in devices]
    user = {"resource": "pods", "name": f"pod-of-{name}", "uid": f"pod-of-{name}"}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {},
        "status": {"reservedFor": [user], "allocation": {"devices": {"results": results}}},
    }


class Cluster:
    """An API server that knows some claims and no pods, and takes its time to answer."""

    def __init__(self, *claims: dict[str, Any]) -> None:
        self.has(*claims)

    def has(self, *claims: dict[str, Any]) -> None:
        """These, from now on, and no others."""
        self._claims = {claim["metadata"]["name"]: claim for claim in claims}

    async def claim(self, namespace: str, name: str) -> dict[str, Any]:
        if name not in self._claims:
            raise Missing(f"GET claim {name}", 404, {})
        return self._claims[name]

    async def pod(self, namespace: str, name: str) -> None:
        await asyncio.sleep(0.01)

    async def pci_addresses(self, node: str, devices: object) -> list[str]:
        return []


class Seen:
    """The inventory of a test node, without some of its devices."""

    def __init__(self, node: TestNode, missing: str) -> None:
        self._node, self._missing = node, missing

    def find(self, name: str) -> NodeDevice | None:
        return None if name == self._missing else self._node.device(name)

    def why_not(self, name: str) -> str:
        return "it is part of the bridge br0" if name == "card0" else ""

    async def look_again(self) -> None:
        return


def preparer(node: TestNode, *claims: dict[str, Any], missing: str = "") -> Preparer:
    return Preparer(
        node="node",
        store=node.store,
        cards=node.cards,
        planner=node.planner,
        cluster=Cluster(*claims),
        inventory=Seen(node, missing),
        profiles=Profiles(),
        leases=Leases(node.host, node.store),
        patience=0.2,
    )


async def prepare(made: Preparer, name: str) -> list[PreparedDevice]:
    return await made.prepare(ClaimRef("default", name, name))


async def test_a_device_that_a_live_claim_holds_is_refused_and_free_once_that_ends(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "card0"), a_claim("second", "card1", "card0"))
    await prepare(made, "first")
    with pytest.raises(Busy, match="card0 is held by claim default/first of pod pod-of-first; it must end first"):
        await prepare(made, "second")
    await made.unprepare(ClaimRef("default", "first", "first"))
    assert [device.device for device in await prepare(made, "second")] == ["card1", "card0"]


async def test_of_two_claims_that_are_prepared_at_once_only_one_gets_the_device(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "card0"), a_claim("second", "card0"))
    outcome = await asyncio.gather(prepare(made, "first"), prepare(made, "second"), return_exceptions=True)
    (refused,) = (found for found in outcome if isinstance(found, BaseException))
    assert isinstance(refused, Busy)
    assert len(node.store.plans) == 1


async def test_a_claim_that_is_prepared_twice_at_once_gets_one_plan_from_the_card_as_it_was(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "card0"))
    both = await asyncio.gather(prepare(made, "first"), prepare(made, "first"))
    assert both[0] == both[1]
    (device,) = node.store.plans["first"].devices
    assert device.found is not None
    assert device.found.link.is_up


async def test_a_prepare_that_fails_leaves_the_device_to_others(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "card0", "card9"), a_claim("second", "card0"), missing="card9")
    with pytest.raises(NotFound, match="card9 is not on this node any more"):
        await prepare(made, "first")
    assert [device.device for device in await prepare(made, "second")] == ["card0"]


async def test_a_device_that_the_node_has_come_to_need_is_refused_with_the_reason(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "card0"), missing="card0")
    with pytest.raises(NotFound, match="device card0 is not offered any more: it is part of the bridge br0"):
        await prepare(made, "first")


class Profile:
    """A provider that answers with nothing in particular."""

    name = "any"

    async def get_profile(self, *_: object) -> dict[str, Any]:
        return {}

    async def release_profile(self, *_: object) -> None:
        return


async def test_the_event_loop_never_waits_for_the_disk(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks have two seconds, and one commit may take longer than that on a busy disk."""
    writers: list[int] = []
    write = StoreFile._write

    def watched(self: StoreFile, *arguments: Any) -> None:
        writers.append(threading.get_ident())
        write(self, *arguments)

    monkeypatch.setattr(StoreFile, "_write", watched)
    claim = a_claim("first", "card0")
    opaque = {"driver": "dra.net", "parameters": {"profile": "gold"}}
    claim["status"]["allocation"]["devices"]["config"] = [{"source": "FromClaim", "opaque": opaque}]
    made = preparer(node, claim)
    made.profiles = Profiles(provider=Profile())
    await prepare(made, "first")
    await made.follow_up(ClaimRef("default", "first", "first"))
    await made.unprepare(ClaimRef("default", "first", "first"))
    assert len(writers) == 4  # before the profile, the plan, how its card was found, its end
    assert threading.get_ident() not in writers


async def test_a_claim_made_anew_under_the_same_name_is_another_claim(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "card0"))
    with pytest.raises(ClaimError, match="was made anew"):
        await made.prepare(ClaimRef("default", "first", "the-uid-of-before"))
    assert not node.store.plans


async def test_unprepare_does_not_wait_for_an_api_server_that_does_not_answer(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "card0"))
    await prepare(made, "first")

    async def never(namespace: str, name: str) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    made.cluster.claim = never  # type: ignore[method-assign]
    async with asyncio.timeout(8):  # the client's own patience is ten seconds
        await made.unprepare(ClaimRef("default", "first", "first"))
    assert node.store.plans == {}
