"""NICs that take longer than the runtime waits: every pod starts, and no container without its NICs."""

from __future__ import annotations

import asyncio

import pytest

from dranet.kubernetes.nri.runtime import Settings
from dranet.testing.node import ContainerRefused
from dranet.testing.waiting import until

from .daemon_bench import Bench, bench


async def slow(b: Bench, seconds: float, timeout: float) -> None:
    """Every NIC takes so long into a pod, and the runtime waits so long for a plugin."""
    b.node.runtime.settings = Settings(request_timeout=timeout)
    await b.node.start_driver(DRANET_SLOW_ATTACH=str(seconds))


def is_deferred(b: Bench) -> bool:
    return any(reason == "NetworkDeviceAttachDeferred" for reason, _ in b.events())


@pytest.mark.parametrize(
    ("nics", "seconds", "timeout"), [(1, 0.1, 30), (1, 3.0, 2), (4, 0.2, 30), (4, 1.0, 2), (8, 0.7, 5)]
)
async def test_pod_gets_all_slow_devices(nics: int, seconds: float, timeout: float) -> None:
    async with bench(nics=nics, start=False) as b:
        before = {f"nic{n}": b.picture(f"nic{n}") for n in range(nics)}
        await slow(b, seconds, timeout)
        await until(lambda: len(b.published()) == nics)
        pod = await b.start(*before)
        assert b.node.runtime.plugins, "the runtime has dropped the plugin"
        await until(b.gates)
        assert b.names(pod.netns) == set(before)
        assert (await b.node.create_container(pod)).environment
        await until(lambda: is_deferred(b) is (nics * seconds > timeout))
        await b.node.stop_pod(pod)
        assert {name: b.picture(name) for name in before} == before


async def test_containers_wait_for_a_late_attach() -> None:
    async with bench(nics=2, start=False) as b:
        await slow(b, 3.0, 2)
        await until(lambda: len(b.published()) == 2)
        pod = await b.start("nic0", "nic1")
        with pytest.raises(ContainerRefused, match="unresolvable CDI devices"):
            await b.node.create_container(pod)
        await until(lambda: any(d["conditions"][0]["reason"] == "Attaching" for d in b.status(pod.claims[0])))
        await until(b.gates)
        await b.node.create_container(pod, names_claims=False)
        await until(lambda: all(d["conditions"][0]["status"] == "True" for d in b.status(pod.claims[0])))


async def test_pod_deleted_during_attach_gets_no_devices() -> None:
    async with bench(nics=2, start=False) as b:
        before = {name: b.picture(name) for name in ("nic0", "nic1")}
        await slow(b, 1.5, 2)
        await until(lambda: len(b.published()) == 2)
        pod = await b.start("nic0", "nic1")
        with_patience = Settings(request_timeout=20)
        b.node.runtime.settings = with_patience
        await b.node.stop_pod(pod)
        await until(lambda: {name: b.picture(name) for name in before} == before)
        assert b.gates() == []


async def test_crash_during_a_late_attach_is_finished_after_restart() -> None:
    async with bench(nics=2, start=False) as b:
        await slow(b, 3.0, 2)
        await until(lambda: len(b.published()) == 2)
        pod = await b.start("nic0", "nic1")
        assert b.gates() == []
        await b.restart_driver()
        await until(b.gates)
        assert b.names(pod.netns) == {"nic0", "nic1"}
        assert (await b.node.create_container(pod)).environment


async def test_container_is_created_once_devices_are_attached() -> None:
    """The hook waits for them within its own time, so that the kubelet need not come again."""
    async with bench(nics=1, start=False) as b:
        await slow(b, 2.0, 2)
        await until(lambda: len(b.published()) == 1)
        pod = await b.start("nic0")
        await asyncio.wait_for(b.node.create_container(pod, names_claims=False), 20)
        assert b.names(pod.netns) == {"nic0"}
