"""Killed with SIGKILL at every step and started again: no card is lost, and the next pod works."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest

from dranet.driver.claims.prepare import HOLDER_SECONDS
from dranet.driver.faultpoints import POINTS
from dranet.driver.parts.registry import PARTS
from dranet.driver.store import Store
from dranet.kernel.traffic import htb
from dranet.kube import resources
from dranet.kubelet.handler import KubeletError
from dranet.model.errors import DranetError
from dranet.nri.errors import NriError
from dranet.sandbox.node import SandboxPod

from .daemon_bench import Bench, bench, until

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

CONFIG = {"interface": {"name": "dranet0", "mtu": 1400, "addresses": ["10.9.0.9/24"]}}
EVERYWHERE = (*POINTS, *(f"{way}.{part.tag}" for part in PARTS for way in ("attach", "detach")))

CHILD = {"interface": {"type": "Macvlan", "name": "dranet0", "mtu": 1400, "addresses": ["10.9.0.9/24"]}}
AT_ONCE = "unprepare.struck"
"""Only where nothing but a card that is home has to be let go."""
OF_CHILDREN = tuple(p for p in EVERYWHERE if p != AT_ONCE) if os.environ.get("EVERY_POINT") else (
    "prepare.readied", "attach.entered", "attach.child", "attach.share", "detach.child", "detach.share",
)  # fmt: skip
"""Where a child differs from a card that moves; EVERY_POINT=1 dies everywhere."""

WITHOUT_PLAN = {"prepare.planned", "unprepare.deleted"}
"""Nothing is written down yet, or nothing any more: the card is at home. Everywhere else it belongs in the pod."""


async def _live(b: Bench, pod: SandboxPod) -> None:
    """A pod's whole life; whoever calls a driver that dies gets an error and goes on, as kubelet and runtime do."""
    quietly = contextlib.suppress(DranetError, NriError, KubeletError, OSError)
    with quietly:
        await b.node.prepare(pod)
    with quietly:
        await b.node.run_sandbox(pod)
    with quietly:
        await b.node.runtime.stop_pod_sandbox(pod.message(b.node.manner))
    with quietly:
        await b.node.unprepare(pod)


async def _start_to_die(b: Bench, point: str) -> None:
    await b.node.start_driver(DRANET_FAULT_POINT=point)
    await until(lambda: b.published() == ["card0"])


async def _dead(b: Bench) -> None:
    """It has got to its point, and the runtime knows."""
    await until(lambda: b.node.driver is not None and not b.node.driver.running)
    await b.node.runtime.wait_for(lambda plugins: not plugins)


@pytest.mark.parametrize("point", EVERYWHERE)
async def test_dying_there_loses_nothing(point: str) -> None:
    await _die_and_go_on(point, CONFIG)


@pytest.mark.parametrize("point", OF_CHILDREN)
async def test_dying_there_leaves_no_share_and_the_card_as_it_was(point: str) -> None:
    await _die_and_go_on(point, CHILD, share="2500M")


@pytest.mark.parametrize("point", ["prepare.noted", "prepare.readied"])
async def test_dying_after_prepare_was_answered_loses_nothing(point: str) -> None:
    """A claim that asks for nothing is answered before its card is touched."""
    async with bench(cards=1, start=False) as b:
        before = b.picture_with_disciplines("card0")
        await _start_to_die(b, point)
        pod = b.claim("card0")
        with contextlib.suppress(KubeletError):
            await b.node.prepare(pod)
        await _dead(b)

        await b.node.start_driver()
        await b.node.start_pod(pod)
        assert b.names(pod.netns) == {"card0"}
        await b.node.stop_pod(pod)
        assert b.picture_with_disciplines("card0") == before


@pytest.mark.parametrize("point", ["unprepare.struck", "unprepare.answered"])
async def test_dying_before_the_end_of_a_claim_is_written_down_keeps_its_card_from_nobody(point: str) -> None:
    """Nobody will unprepare it again: the kubelet was answered, or its pod was deleted meanwhile."""
    async with bench(cards=1, start=False) as b:
        before = b.picture_with_disciplines("card0")
        await _start_to_die(b, point)
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        with contextlib.suppress(KubeletError):
            await b.node.stop_pod(pod)
        await _dead(b)
        left = Store.copy_of(str(b.node.folder / "dranet.sqlite"))
        assert set(left.plans) == {pod.claims[0].uid}, "this death is to bring the plan back"
        b.api.remove(resources.RESOURCE_CLAIMS, pod.claims[0].name, "default")

        await b.node.start_driver()
        again = b.claim("card0")
        await asyncio.wait_for(b.node.start_pod(again), HOLDER_SECONDS / 2)
        assert b.names(again.netns) == {"card0"}
        await b.node.stop_pod(again)
        assert b.picture_with_disciplines("card0") == before
        await until(lambda: not Store.copy_of(str(b.node.folder / "dranet.sqlite")).plans)


async def _die_and_go_on(point: str, config: dict[str, Any], share: str = "") -> None:
    flags = ["--shared-cards=true"] if share else []
    async with bench(cards=1, flags=flags, start=False) as b:
        b.show_speed("card0")
        before = b.picture_with_disciplines("card0")
        await _start_to_die(b, point)
        assert b.node.driver is not None
        pod = b.claim("card0", parameters=config, share=share)
        await _live(b, pod)
        await _dead(b)

        await b.node.start_driver()
        assert pod.uid in b.node.pods
        if point in WITHOUT_PLAN or (share and point == "unprepare.answered"):
            await b.compared()
            assert b.picture_with_disciplines("card0") == before
            assert b.names(pod.netns) == set()
        else:
            # The sandbox still runs, whatever was asked of it before: its card is there, configured.
            await until(lambda: b.names(pod.netns) == {"dranet0"})
            await until(lambda: list((b.node.folder / "cdi").glob("*.json")))
            if share:
                assert any(one.handle == htb.HANDLE for one in b.disciplines("card0")), "the share is kept at the card"
        if b.node.manner.namespace_goes_first:
            await b.compared()
        await b.node.stop_sandbox(pod)
        await b.node.unprepare(pod)
        assert b.picture_with_disciplines("card0") == before
        assert not list((b.node.folder / "cdi").glob("*.json"))

        again = b.claim("card0", parameters=config, share=share)
        await b.node.start_pod(again)
        assert b.names(again.netns) == {"dranet0"}
        await b.node.stop_pod(again)
        assert b.picture_with_disciplines("card0") == before
