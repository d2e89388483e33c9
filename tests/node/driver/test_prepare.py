"""Prepare by itself: which claim gets a device when several want it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dranet.core.errors import Busy, NotFound
from dranet.core.names import ClaimRef
from dranet.kubernetes.api.errors import ObjectNotFound
from dranet.kubernetes.kubelet.handler import PreparedDevice
from dranet.node.claims.allocation import ClaimError
from dranet.node.claims.leases import Leases
from dranet.node.claims.prepare import Preparer
from dranet.node.claims.profiles import Profiles
from dranet.node.inventory.snapshot import NodeDevice

from .conftest import TestNode


def a_claim(name: str, *devices: str, **parameters: Any) -> dict[str, Any]:
    results = [{"driver": "dra.net", "pool": "node", "device": d, "request": f"r-{d}"} for d in devices]
    user = {"resource": "pods", "name": f"pod-of-{name}", "uid": f"pod-of-{name}"}
    config = [{"source": "FromClaim", "opaque": {"driver": "dra.net", "parameters": parameters}}] if parameters else []
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {},
        "status": {"reservedFor": [user], "allocation": {"devices": {"results": results, "config": config}}},
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
            raise ObjectNotFound(f"GET claim {name}", 404, {})
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

    def skip_reason(self, name: str) -> str:
        return "it is part of the bridge br0" if name == "nic0" else ""

    async def rescan(self) -> None:
        return


def preparer(node: TestNode, *claims: dict[str, Any], missing: str = "") -> Preparer:
    return Preparer(
        node="node",
        store=node.store,
        lifecycle=node.lifecycle,
        planner=node.planner,
        cluster=Cluster(*claims),
        inventory=Seen(node, missing),
        profiles=Profiles(),
        leases=Leases(node.host, node.store),
        patience=0.2,
    )


async def prepare(made: Preparer, name: str) -> list[PreparedDevice]:
    return await made.prepare(ClaimRef("default", name, name))


async def test_device_of_another_claim_is_refused_until_released(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "nic0"), a_claim("second", "nic1", "nic0"))
    await prepare(made, "first")
    with pytest.raises(
        Busy, match="nic0 is held by claim default/first of pod pod-of-first; that claim must be released first"
    ):
        await prepare(made, "second")
    await made.unprepare(ClaimRef("default", "first", "first"))
    assert [device.device for device in await prepare(made, "second")] == ["nic1", "nic0"]


async def test_concurrent_prepares_give_a_device_to_one_claim(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "nic0"), a_claim("second", "nic0"))
    outcome = await asyncio.gather(prepare(made, "first"), prepare(made, "second"), return_exceptions=True)
    (refused,) = (found for found in outcome if isinstance(found, BaseException))
    assert isinstance(refused, Busy)
    assert len(node.store.plans) == 1


async def test_concurrent_prepares_of_one_claim_make_one_plan(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "nic0"))
    both = await asyncio.gather(prepare(made, "first"), prepare(made, "first"))
    assert both[0] == both[1]
    (device,) = node.store.plans["first"].devices
    assert device.host_state is not None
    assert device.host_state.link.is_up


async def test_failed_prepare_frees_the_device(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "nic0", "nic9"), a_claim("second", "nic0"), missing="nic9")
    with pytest.raises(NotFound, match="nic9 is no longer on this node"):
        await prepare(made, "first")
    assert [device.device for device in await prepare(made, "second")] == ["nic0"]


async def test_device_that_the_node_now_uses_is_refused(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "nic0"), missing="nic0")
    with pytest.raises(NotFound, match="device nic0 is no longer published: it is part of the bridge br0"):
        await prepare(made, "first")


class Profile:
    """A provider that answers with nothing in particular."""

    name = "any"

    async def get_profile(self, *_: object) -> dict[str, Any]:
        return {}

    async def release_profile(self, *_: object) -> None:
        return


async def test_event_loop_does_not_wait_for_the_disk(node: TestNode) -> None:
    """Hooks have two seconds, and one commit may take longer than that on a busy disk."""
    writers: list[int] = []

    def trace(statement: str) -> None:
        if statement.startswith(("INSERT", "DELETE")):
            writers.append(threading.get_ident())

    assert node.store._file is not None
    node.store._file._writer.set_trace_callback(trace)
    made = preparer(node, a_claim("first", "nic0", profile="gold"))
    made.profiles = Profiles(provider=Profile())
    await prepare(made, "first")
    await made.after_reply(ClaimRef("default", "first", "first"))
    await made.unprepare(ClaimRef("default", "first", "first"))
    assert len(writers) == 4  # before the profile, the plan, how its NIC was found, its end
    assert threading.get_ident() not in writers


async def test_recreated_claim_is_another_claim(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "nic0"))
    with pytest.raises(ClaimError, match="was deleted and recreated"):
        await made.prepare(ClaimRef("default", "first", "the-uid-of-before"))
    assert not node.store.plans


async def test_unprepare_does_not_wait_for_the_api_server(node: TestNode) -> None:
    made = preparer(node, a_claim("first", "nic0"))
    await prepare(made, "first")

    async def never(namespace: str, name: str) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    made.cluster.claim = never  # type: ignore[method-assign]
    async with asyncio.timeout(8):  # the client's own patience is ten seconds
        await made.unprepare(ClaimRef("default", "first", "first"))
    assert node.store.plans == {}
