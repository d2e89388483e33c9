"""Cards that take longer than the runtime waits: every pod that can start does, and none without its cards."""

from __future__ import annotations

import asyncio

import pytest

from dranet.nri.runtime import Settings
from dranet.sandbox.node import ContainerRefused

from .daemon_bench import Bench, bench, until


async def slow(b: Bench, seconds: float, timeout: float) -> None:
    """Every card takes so long into a pod, and the runtime waits so long for a plugin."""
    b.node.runtime.settings = Settings(request_timeout=timeout)
    await b.node.start_driver(DRANET_SLOW_MOVE=str(seconds))


def receipts(b: Bench) -> list[str]:
    return [path.name for path in (b.node.folder / "cdi").glob("*.json")]


def is_deferred(b: Bench) -> bool:
    return any(reason == "NetworkDeviceAttachDeferred" for reason, _ in b.events())


@pytest.mark.parametrize(
    ("cards", "seconds", "timeout"), [(1, 0.1, 30), (1, 3.0, 2), (4, 0.2, 30), (4, 1.0, 2), (8, 0.7, 5)]
)
async def test_a_pod_gets_all_its_cards_however_slow_they_are(cards: int, seconds: float, timeout: float) -> None:
    async with bench(cards=cards, start=False) as b:
        before = {f"card{n}": b.picture(f"card{n}") for n in range(cards)}
        await slow(b, seconds, timeout)
        await until(lambda: len(b.published()) == cards)
        pod = b.claim(*before)
        await b.node.start_pod(pod)
        assert b.node.runtime.plugins, "the runtime has dropped the plugin"
        await until(lambda: receipts(b), 60)
        assert b.names(pod.netns) == set(before)
        assert (await b.node.create_container(pod)).environment
        await until(lambda: is_deferred(b) is (cards * seconds > timeout))
        await b.node.stop_pod(pod)
        assert {name: b.picture(name) for name in before} == before


async def test_until_then_no_container_is_created_whether_it_names_the_claim_or_not() -> None:
    async with bench(cards=2, start=False) as b:
        await slow(b, 3.0, 2)
        await until(lambda: len(b.published()) == 2)
        pod = b.claim("card0", "card1")
        await b.node.start_pod(pod)
        with pytest.raises(ContainerRefused, match="unresolvable CDI devices"):
            await b.node.create_container(pod)
        await until(lambda: any(d["conditions"][0]["reason"] == "Attaching" for d in b.status(pod.claims[0])))
        await until(lambda: receipts(b), 30)
        await b.node.create_container(pod, names_claims=False)
        await until(lambda: all(d["conditions"][0]["status"] == "True" for d in b.status(pod.claims[0])))


async def test_a_pod_that_ends_while_its_cards_are_on_their_way_gets_none_and_they_are_home() -> None:
    async with bench(cards=2, start=False) as b:
        before = {name: b.picture(name) for name in ("card0", "card1")}
        await slow(b, 1.5, 2)
        await until(lambda: len(b.published()) == 2)
        pod = b.claim("card0", "card1")
        await b.node.start_pod(pod)
        with_patience = Settings(request_timeout=20)
        b.node.runtime.settings = with_patience
        await b.node.stop_pod(pod)
        await until(lambda: {name: b.picture(name) for name in before} == before, 30)
        assert receipts(b) == []


async def test_a_driver_that_dies_on_the_way_finishes_after_its_restart() -> None:
    async with bench(cards=2, start=False) as b:
        await slow(b, 3.0, 2)
        await until(lambda: len(b.published()) == 2)
        pod = b.claim("card0", "card1")
        await b.node.start_pod(pod)
        assert receipts(b) == []
        await b.restart_driver()
        await until(lambda: receipts(b), 30)
        assert b.names(pod.netns) == {"card0", "card1"}
        assert (await b.node.create_container(pod)).environment


async def test_a_container_is_created_as_soon_as_the_cards_are_there() -> None:
    """The hook waits for them within its own time, so that the kubelet need not come again."""
    async with bench(cards=1, start=False) as b:
        await slow(b, 2.0, 2)
        await until(lambda: len(b.published()) == 1)
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        await asyncio.wait_for(b.node.create_container(pod, names_claims=False), 20)
        assert b.names(pod.netns) == {"card0"}
