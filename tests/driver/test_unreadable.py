"""A plan that this driver cannot read, in the whole daemon: its own claim is refused, everybody else is served."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from dranet.kubelet.handler import PrepareError, UnprepareError
from dranet.nri.errors import PluginRejected
from dranet.sandbox.node import ContainerRefused, SandboxPod

from .daemon_bench import Bench, bench, until

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
    """A node whose card1 is prepared for a pod by a newer driver."""
    async with bench() as b:
        pod, found = b.claim("card1"), b.picture("card1")
        await b.node.prepare(pod)
        # After the answer the driver notes how it found the card, in the row, and takes the card down last of all.
        await until(lambda: b.picture("card1") != found)
        make_newer(b, pod.claims[0].uid)
        yield b, pod


Lost = tuple[Bench, SandboxPod]


async def test_the_claim_is_refused_in_words_wherever_it_is_named(lost: Lost) -> None:
    b, pod = lost
    with pytest.raises(PrepareError, match=NEWER):
        await b.node.prepare(pod)
    with pytest.raises(PluginRejected, match=NEWER):
        await b.node.run_sandbox(pod)
    with pytest.raises(UnprepareError, match=NEWER):
        await b.node.unprepare(pod)


async def test_other_pods_start_and_stop_as_ever(lost: Lost) -> None:
    b, _ = lost
    before = b.picture("card0")
    other = b.claim("card0")
    await b.node.start_pod(other)
    assert (await b.node.create_container(other)).environment
    await b.node.run_sandbox(SandboxPod("plain", "plain-uid"))
    await b.node.stop_pod(other)
    assert b.picture("card0") == before


async def test_what_it_holds_stays_published_and_is_given_to_nobody(lost: Lost) -> None:
    b, pod = lost
    await b.restart_driver()
    await until(lambda: b.published() == ["card0", "card1"])
    with pytest.raises(
        PrepareError, match=f"card1 is held by claim {pod.claims[0].uid}, whose plan cannot be used here"
    ):
        await b.node.prepare(b.claim("card1"))


async def test_a_pod_that_runs_by_it_keeps_its_card_and_its_containers_may_restart() -> None:
    async with bench() as b:
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        make_newer(b, pod.claims[0].uid)
        await b.restart_driver()
        await b.compared()
        assert b.names(pod.netns) == {"card0"}
        assert (await b.node.create_container(pod)).environment
        receipt = next(Path(b.node.folder / "cdi").glob("*.json"))
        receipt.unlink()
        with pytest.raises(ContainerRefused):
            await b.node.create_container(pod)
