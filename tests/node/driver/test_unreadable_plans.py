"""A plan that this driver cannot read, in the whole daemon: its own claim is refused, all others are served."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from dranet.kubernetes.kubelet.handler import PrepareError, UnprepareError
from dranet.kubernetes.nri.errors import PluginRejected
from dranet.testing.node import ContainerRefused, SandboxPod
from dranet.testing.waiting import until

from .daemon_bench import Bench, bench

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

NEWER = "written by a newer driver"


def make_newer(b: Bench, uid: str) -> None:
    """The stored plan of a claim becomes one that only a driver of some later day can go on with."""
    path = b.node.folder / "dranet.sqlite"
    with sqlite3.connect(path) as db:
        (raw,) = db.execute("SELECT plan FROM claims WHERE uid = ?", (uid,)).fetchone()
        row = {**msgspec.json.decode(raw), "version": 9, "oldest_reader": 9}
        db.execute("UPDATE claims SET plan = ? WHERE uid = ?", (msgspec.json.encode(row), uid))
    db.close()


@pytest.fixture
async def lost() -> AsyncIterator[tuple[Bench, SandboxPod]]:
    """A node whose nic1 is prepared for a pod by a newer driver."""
    async with bench() as b:
        pod, found = b.claim("nic1"), b.picture("nic1")
        await b.node.prepare(pod)
        # After the answer the driver notes how it found the NIC, in the row, and takes the NIC down last of all.
        await until(lambda: b.picture("nic1") != found)
        make_newer(b, pod.claims[0].uid)
        yield b, pod


Lost = tuple[Bench, SandboxPod]


async def test_claim_with_an_unreadable_plan_is_refused(lost: Lost) -> None:
    b, pod = lost
    with pytest.raises(PrepareError, match=NEWER):
        await b.node.prepare(pod)
    with pytest.raises(PluginRejected, match=NEWER):
        await b.node.run_sandbox(pod)
    with pytest.raises(UnprepareError, match=NEWER):
        await b.node.unprepare(pod)


async def test_other_pods_are_not_affected(lost: Lost) -> None:
    b, _ = lost
    before = b.picture("nic0")
    other = await b.start("nic0")
    assert (await b.node.create_container(other)).environment
    await b.node.run_sandbox(SandboxPod("plain", "plain-uid"))
    await b.node.stop_pod(other)
    assert b.picture("nic0") == before


async def test_its_devices_stay_published_and_held(lost: Lost) -> None:
    b, pod = lost
    await b.restart_driver()
    await until(lambda: b.published() == ["nic0", "nic1"])
    with pytest.raises(
        PrepareError, match=f"nic1 is held by claim {pod.claims[0].uid}, whose plan this driver cannot read"
    ):
        await b.node.prepare(b.claim("nic1"))


async def test_running_pod_keeps_its_device_and_restarts_containers() -> None:
    async with bench() as b:
        pod = await b.start("nic0")
        make_newer(b, pod.claims[0].uid)
        await b.restart_driver()
        await b.compared()
        assert b.names(pod.netns) == {"nic0"}
        assert (await b.node.create_container(pod)).environment
        gate = next(Path(b.node.folder / "cdi").glob("*.json"))
        gate.unlink()
        with pytest.raises(ContainerRefused):
            await b.node.create_container(pod)
