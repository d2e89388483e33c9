"""Prepare, unprepare and health, asked by the played kubelet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dranet.core.names import ClaimRef
from dranet.kubernetes.kubelet import DeviceHealth, Health, Plugin, PreparedDevice, PrepareError, UnprepareError
from dranet.kubernetes.kubelet.client import Kubelet
from dranet.kubernetes.kubelet.locks import ClaimLocks

Start = Callable[..., Awaitable[Plugin]]
OLD = "11111111-1111-1111-1111-111111111111"
NEW = "22222222-2222-2222-2222-222222222222"


def claim(name: str, uid: str = "") -> ClaimRef:
    return ClaimRef("default", name, uid or f"uid-{name}")


async def test_prepare_answers_with_the_devices(root: Path, start: Start) -> None:
    async with Kubelet(root) as kubelet:
        await (await start()).registered()
        devices = await kubelet.prepare("dra.net", claim("good"))
    assert devices == [PreparedDevice(("req",), "node-1", "eth-1", ("dra.net/claim=1",), share_id="share")]


async def test_a_refused_prepare_says_which_claim_and_why(root: Path, start: Start) -> None:
    async with Kubelet(root) as kubelet:
        await (await start()).registered()
        with pytest.raises(PrepareError, match=r"default/bad \(UID uid-bad\): no such nic; ask for another"):
            await kubelet.prepare("dra.net", claim("bad"))


async def test_an_unforeseen_exception_becomes_the_claims_error(root: Path, start: Start) -> None:
    async with Kubelet(root) as kubelet:
        await (await start()).registered()
        with pytest.raises(UnprepareError, match=r"default/bug .*surprise"):
            await kubelet.unprepare("dra.net", claim("bug"))


async def test_claims_run_side_by_side(root: Path, start: Start, driver: Any) -> None:
    driver.gates["held"] = asyncio.Event()
    async with Kubelet(root) as kubelet:
        await (await start()).registered()
        held = asyncio.create_task(kubelet.prepare("dra.net", claim("held")))
        await driver.begun.wait()
        await kubelet.prepare("dra.net", claim("free"))
        driver.gates["held"].set()
        await held
    assert driver.log == ["prepare held", "prepare free", "prepare free done", "prepare held done"]


async def test_calls_for_one_claim_run_in_order(root: Path, start: Start, driver: Any) -> None:
    driver.gates["held"] = asyncio.Event()
    async with Kubelet(root) as kubelet:
        await (await start()).registered()
        first = asyncio.create_task(kubelet.prepare("dra.net", claim("held", "same")))
        await driver.begun.wait()
        second = asyncio.create_task(kubelet.unprepare("dra.net", claim("other", "same")))
        await kubelet.prepare("dra.net", claim("free"))  # by now the second call has long arrived
        driver.gates["held"].set()
        await asyncio.gather(first, second)
    assert [entry for entry in driver.log if "free" not in entry] == [
        "prepare held",
        "prepare held done",
        "unprepare other",
        "unprepare other done",
    ]


async def test_unprepare_and_not_the_kubelets_answer_waits_for_what_follows_prepare(
    root: Path, start: Start, driver: Any
) -> None:
    gate = driver.gates["after one"] = asyncio.Event()
    async with Kubelet(root) as kubelet:
        await (await start()).registered()
        await kubelet.prepare("dra.net", claim("one"))
        ending = asyncio.create_task(kubelet.unprepare("dra.net", claim("one")))
        await kubelet.prepare("dra.net", claim("free"))  # by now the second call has long arrived
        assert "unprepare one" not in driver.log
        gate.set()
        await ending
    assert [entry for entry in driver.log if "free" not in entry][:5] == [
        "prepare one",
        "prepare one done",
        "after reply one done",
        "unprepare one",
        "unprepare one done",
    ]


async def test_the_next_prepare_waits_for_what_follows_unprepare(root: Path, start: Start, driver: Any) -> None:
    async with Kubelet(root) as kubelet:
        await (await start()).registered()
        gate = driver.gates["after one"] = asyncio.Event()
        await kubelet.unprepare("dra.net", claim("one"))
        again = asyncio.create_task(kubelet.prepare("dra.net", claim("one")))
        await kubelet.prepare("dra.net", claim("free"))  # by now the second call has long arrived
        assert "prepare one" not in driver.log
        gate.set()
        await again
    assert [entry for entry in driver.log if "free" not in entry][:4] == [
        "unprepare one",
        "unprepare one done",
        "after reply one done",
        "prepare one",
    ]


async def test_stop_finishes_what_follows_prepare(root: Path, start: Start, driver: Any) -> None:
    gate = driver.gates["after one"] = asyncio.Event()
    async with Kubelet(root) as kubelet:
        plugin = await start()
        await plugin.registered()
        await kubelet.prepare("dra.net", claim("one"))
        stopping = asyncio.create_task(plugin.stop())
        await kubelet.wait_for(lambda plugins: not plugins)
        gate.set()
        await stopping
    assert driver.log[-1] == "after reply one done"


async def test_a_kubelet_that_gives_up_does_not_stop_the_work(root: Path, start: Start, driver: Any) -> None:
    gate = driver.gates["held"] = asyncio.Event()
    async with Kubelet(root) as kubelet:
        plugin = await start()
        await plugin.registered()
        impatient = asyncio.create_task(kubelet.prepare("dra.net", claim("held")))
        await driver.begun.wait()
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        await kubelet.prepare("dra.net", claim("free"))
        assert "prepare held done" not in driver.log
        gate.set()
        await plugin.stop()
    assert "prepare held done" in driver.log


async def test_stop_finishes_the_call_under_way(root: Path, start: Start, driver: Any) -> None:
    gate = driver.gates["held"] = asyncio.Event()
    async with Kubelet(root) as kubelet:
        plugin = await start()
        await plugin.registered()
        call = asyncio.create_task(kubelet.prepare("dra.net", claim("held")))
        await driver.begun.wait()
        stopping = asyncio.create_task(plugin.stop())
        await kubelet.wait_for(lambda plugins: not plugins)
        assert plugin.paths.service.is_socket()
        gate.set()
        await stopping
        assert not plugin.paths.service.exists()
        await asyncio.gather(call, return_exceptions=True)
    assert driver.log[-1] == "prepare held done"


async def test_health_is_pushed_at_every_change(root: Path, start: Start, driver: Any) -> None:
    well = DeviceHealth("node-1", "eth-1", Health.HEALTHY, 1000)
    ill = DeviceHealth("node-1", "eth-1", Health.UNHEALTHY, 2000, "no carrier", timeout=30)
    async with Kubelet(root) as kubelet:
        await (await start()).registered()
        reports = kubelet.health("dra.net")
        for report in ([well], [ill]):
            driver.reports.put_nowait(report)
            assert await anext(reports) == report
        await reports.aclose()  # type: ignore[attr-defined]


async def test_the_health_stream_ends_when_the_plugin_stops(root: Path, start: Start, driver: Any) -> None:
    async with Kubelet(root) as kubelet:
        plugin = await start()
        await plugin.registered()
        reports = kubelet.health("dra.net")
        driver.reports.put_nowait([])
        await anext(reports)
        await plugin.stop()
        with pytest.raises(Exception, match=r"(?i)terminated|lost|cancelled|closed"):
            await anext(reports)


async def test_two_instances_do_not_work_on_one_claim_at_the_same_time(root: Path) -> None:
    old, new = ClaimLocks(root / "claims.lock"), ClaimLocks(root / "claims.lock")
    old.open()
    new.open()
    order = []

    async def second() -> None:
        async with new.hold("claim"):
            order.append("new")

    async with old.hold("claim"):
        waiting = asyncio.create_task(second())
        async with new.hold("another claim"):
            order.append("another")
        order.append("old")
    await waiting
    assert order == ["another", "old", "new"]
    old.close()
    new.close()


async def test_a_claims_lock_leaves_nothing_behind(root: Path) -> None:
    locks = ClaimLocks(root / "claims.lock")
    locks.open()
    async with locks.hold("claim"):
        pass
    assert not locks._locks
    assert (root / "claims.lock").stat().st_size == 0
    locks.close()
