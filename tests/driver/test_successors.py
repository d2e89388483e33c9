"""One claim, several pods: a card belongs to one of them at a time, and the kubelet tells of the first one only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dranet.kube import resources
from dranet.kubelet.handler import UnprepareError
from dranet.nri.errors import PluginRejected
from dranet.sandbox.node import SandboxPod

from .daemon_bench import NODE, Bench, bench, until

pytestmark = pytest.mark.usefixtures("may_make_namespaces")


def reserve(b: Bench, claim: str, *pods: str) -> None:
    """What the scheduler and the claim controller write."""
    found: Any = b.api.find(resources.RESOURCE_CLAIMS, claim, "default")
    users = [{"resource": "pods", "name": pod, "uid": f"{pod}-uid"} for pod in pods]
    b.api.put(resources.RESOURCE_CLAIMS, {**found, "status": {**found["status"], "reservedFor": users}})


def another_pod(b: Bench, name: str, first: SandboxPod, **more: str) -> SandboxPod:
    """A pod that names the same claim. The kubelet gives its containers what prepare answered for the first one."""
    (claim,) = first.claims
    container = {"name": "main", "resources": {"claims": [{"name": "nics"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "nics", "resourceClaimName": claim.name}]}
    metadata = {"name": name, "namespace": "default", "uid": f"{name}-uid", **more}
    b.api.put(resources.PODS, {"metadata": metadata, "spec": {**spec, "nodeName": NODE}})
    return SandboxPod(name, f"{name}-uid", claims=first.claims, prepared=dict(first.prepared))


def told(b: Bench, words: Sequence[str]) -> bool:
    return any(all(word in message for word in words) for _, message in b.events())


async def test_a_second_pod_with_the_same_claim_does_not_start_and_is_told_why() -> None:
    async with bench(cards=1) as b:
        first = b.claim("card0", pod="first")
        await b.node.start_pod(first)
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        with pytest.raises(PluginRejected, match="belongs to one pod at a time"):
            await b.node.create_container(second)
        await until(lambda: told(b, ["first", "one pod at a time"]))
        assert b.names(first.netns) == {"card0"}
        assert b.names(second.netns) == set()


async def test_the_second_pod_gets_the_cards_when_the_first_has_ended() -> None:
    async with bench(cards=1) as b:
        before = b.picture("card0")
        first = b.claim("card0", pod="first")
        await b.node.start_pod(first)
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        await b.node.stop_sandbox(first)
        reserve(b, first.claims[0].name, "second")
        await until(lambda: b.names(second.netns) == {"card0"})
        await until(lambda: list((b.node.folder / "cdi").glob("*.json")))
        assert (await b.node.create_container(second)).environment
        await b.node.stop_pod(second)
        assert b.picture("card0") == before


@pytest.mark.parametrize("driver", ["stays", "restarts"])
async def test_a_successor_with_a_new_uid_gets_the_cards_of_a_pod_deleted_by_force(driver: str) -> None:
    async with bench(cards=1) as b:
        first = b.claim("card0", pod="first")
        await b.node.start_pod(first)
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "second")  # the first pod's object is gone already
        if driver == "stays":
            await b.node.stop_sandbox(first)
            await b.node.run_sandbox(second)
        else:
            assert b.node.driver is not None
            await b.node.driver.kill()
            await b.node.runtime.wait_for(lambda plugins: not plugins)
            await b.node.run_sandbox(second)
            await b.node.start_driver()
        await until(lambda: b.names(second.netns) == {"card0"})
        await until(lambda: list((b.node.folder / "cdi").glob("*.json")))
        assert (await b.node.create_container(second)).environment


async def test_a_claim_is_not_unprepared_while_a_successor_starts_with_it() -> None:
    """The kubelet, which took the claim for prepared when the second pod came, would forget it for that one, too."""
    async with bench(cards=1) as b:
        first = b.claim("card0", pod="first")
        await b.node.start_pod(first)
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "second")
        await b.node.stop_sandbox(first)
        with pytest.raises(UnprepareError, match="pod default/second starts with the claim"):
            await b.node.unprepare(first)
        assert "card0" in b.names()
        await b.node.run_sandbox(second)
        await until(lambda: b.names(second.netns) == {"card0"})
        await b.node.stop_pod(second)


@pytest.mark.parametrize("why", ["it ends", "it is of the past", "it is reserved for nobody else"])
async def test_a_claim_whose_next_pod_will_not_come_is_unprepared(why: str) -> None:
    async with bench(cards=1) as b:
        first = b.claim("card0", pod="first")
        await b.node.start_pod(first)
        if why == "it ends":
            another_pod(b, "second", first, deletionTimestamp="2026-01-01T00:00:00Z")
        reserve(b, first.claims[0].name, "first", *(["second"] if why != "it is reserved for nobody else" else []))
        await b.node.stop_pod(first)
        await b.node.start_pod(b.claim("card0", pod="third"))  # which nobody holds any more


async def test_a_successor_gets_a_child_with_an_address_too() -> None:
    """Nothing is moved for a child, and yet its address is in one pod alone."""
    async with bench(cards=1) as b:
        child = {"interface": {"type": "Macvlan", "addresses": ["10.1.0.50/24"], "name": "net1"}}
        first = b.claim("card0", pod="first", parameters=child)
        await b.node.start_pod(first)
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        with pytest.raises(PluginRejected, match="addresses belong to one pod at a time"):
            await b.node.create_container(second)
        await b.node.stop_sandbox(first)
        reserve(b, first.claims[0].name, "second")
        await until(lambda: b.names(second.netns) == {"net1"})
        await until(lambda: list((b.node.folder / "cdi").glob("*.json")))
        assert (await b.node.create_container(second)).environment


async def test_a_pod_that_names_no_claim_of_ours_is_left_alone() -> None:
    async with bench(cards=1) as b:
        first = b.claim("card0", pod="first")
        await b.node.start_pod(first)
        other = SandboxPod("other", "other-uid")
        await b.node.run_sandbox(other)
        assert (await b.node.create_container(other)).environment == {}
        assert b.names(first.netns) == {"card0"}
