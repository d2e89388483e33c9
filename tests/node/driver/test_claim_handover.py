"""One claim, several pods: a NIC is in one of them at a time, and the kubelet reports only the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from dranet.kubernetes.api import resources
from dranet.kubernetes.kubelet.handler import UnprepareError
from dranet.kubernetes.nri.errors import PluginRejected
from dranet.testing.node import RuntimeProfile, SandboxPod
from dranet.testing.waiting import until

from .daemon_bench import NODE, Bench, bench

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


def has_event(b: Bench, words: Sequence[str]) -> bool:
    return any(all(word in message for word in words) for _, message in b.events())


async def test_second_pod_of_an_exclusive_claim_waits_with_an_event(runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime, nics=1) as b:
        first = await b.start("nic0", pod="first")
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        with pytest.raises(PluginRejected, match="is in one pod at a time"):
            await b.node.create_container(second)
        await until(lambda: has_event(b, ["first", "one pod at a time"]))
        assert b.names(first.netns) == {"nic0"}
        assert b.names(second.netns) == set()


async def test_second_pod_gets_the_devices_after_the_first() -> None:
    async with bench(nics=1) as b:
        before = b.picture("nic0")
        first = await b.start("nic0", pod="first")
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        await b.node.stop_sandbox(first)
        reserve(b, first.claims[0].name, "second")
        await until(lambda: b.names(second.netns) == {"nic0"})
        await until(b.gates)
        assert (await b.node.create_container(second)).environment
        await b.node.stop_pod(second)
        assert b.picture("nic0") == before


@pytest.mark.parametrize("driver", ["stays", "restarts"])
async def test_devices_of_a_force_deleted_pod_are_handed_over(driver: str, runtime: RuntimeProfile) -> None:
    async with bench(runtime=runtime, nics=1) as b:
        first = await b.start("nic0", pod="first")
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "second")  # the first pod's object is gone already
        if driver == "stays":
            await b.node.stop_sandbox(first)
            await b.node.run_sandbox(second)
        else:
            await b.kill_driver()
            await b.node.run_sandbox(second)
            await b.node.start_driver()
        await until(lambda: b.names(second.netns) == {"nic0"})
        await until(b.gates)
        assert (await b.node.create_container(second)).environment


async def test_unprepare_is_refused_while_the_next_pod_starts() -> None:
    """The kubelet, which took the claim for prepared when the second pod came, would forget it for that one, too."""
    async with bench(nics=1) as b:
        first = await b.start("nic0", pod="first")
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "second")
        await b.node.stop_sandbox(first)
        with pytest.raises(UnprepareError, match="pod default/second is starting and uses the claim next"):
            await b.node.unprepare(first)
        assert "nic0" in b.names()
        await b.node.run_sandbox(second)
        await until(lambda: b.names(second.netns) == {"nic0"})
        await b.node.stop_pod(second)


@pytest.mark.parametrize("why", ["it ends", "it does not exist", "it is not reserved"])
async def test_unprepare_ignores_a_next_pod_that_cannot_start(why: str) -> None:
    async with bench(nics=1) as b:
        first = await b.start("nic0", pod="first")
        if why == "it ends":
            another_pod(b, "second", first, deletionTimestamp="2026-01-01T00:00:00Z")
        reserve(b, first.claims[0].name, "first", *(["second"] if why != "it is not reserved" else []))
        await b.node.stop_pod(first)
        await b.node.start_pod(b.claim("nic0", pod="third"))  # no claim holds the device


async def test_child_with_an_address_is_handed_over() -> None:
    """Nothing is moved for a child, and yet its address is in one pod alone."""
    async with bench(nics=1) as b:
        child = {"interface": {"type": "Macvlan", "addresses": ["10.1.0.50/24"], "name": "net1"}}
        first = await b.start("nic0", pod="first", parameters=child)
        second = another_pod(b, "second", first)
        reserve(b, first.claims[0].name, "first", "second")
        await b.node.run_sandbox(second)
        with pytest.raises(PluginRejected, match="addresses belong to one pod at a time"):
            await b.node.create_container(second)
        await b.node.stop_sandbox(first)
        reserve(b, first.claims[0].name, "second")
        await until(lambda: b.names(second.netns) == {"net1"})
        await until(b.gates)
        assert (await b.node.create_container(second)).environment


async def test_pod_without_our_claims_is_left_alone() -> None:
    async with bench(nics=1) as b:
        first = await b.start("nic0", pod="first")
        other = SandboxPod("other", "other-uid")
        await b.node.run_sandbox(other)
        assert (await b.node.create_container(other)).environment == {}
        assert b.names(first.netns) == {"nic0"}
