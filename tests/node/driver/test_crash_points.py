"""The driver is killed at every step and started again: no NIC is lost, and the next pod works."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest

from dranet.core.errors import DranetError
from dranet.kubernetes.api import resources
from dranet.kubernetes.kubelet.handler import KubeletError
from dranet.kubernetes.nri.errors import NriError
from dranet.linux.traffic import htb
from dranet.node.claim_states import State, crash_points, state_of
from dranet.node.claims.prepare import HOLDER_SECONDS
from dranet.node.features.registry import FEATURES
from dranet.node.store import Store
from dranet.testing.node import CONTAINERD, RuntimeProfile, SandboxPod
from dranet.testing.waiting import until

from .daemon_bench import Bench, bench

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

CONFIG = {"interface": {"name": "dranet0", "mtu": 1400, "addresses": ["10.9.0.9/24"]}}
TAGS = [feature.tag for feature in FEATURES]
STATES, STATES_OF_CHILDREN = crash_points(TAGS), crash_points(TAGS, reserves=True)

CHILD = {"interface": {"type": "Macvlan", "name": "dranet0", "mtu": 1400, "addresses": ["10.9.0.9/24"]}}
OF_CHILDREN = tuple(STATES_OF_CHILDREN) if os.environ.get("EVERY_POINT") else (
    "prepare.set_up", "attach.one_moved", "attach.child", "attach.share", "detach.child", "detach.share",
)  # fmt: skip
"""Where a child differs from a moved NIC; EVERY_POINT=1 selects all points."""

WITHOUT_PLAN = (State.RELEASED, State.PLANNING)
"""The NIC is on the host. In all other states it belongs in the pod, whose sandbox runs."""


async def _live(b: Bench, pod: SandboxPod) -> None:
    """A pod's whole life. The caller of a killed driver gets an error and continues, as kubelet and runtime do."""
    quietly = contextlib.suppress(DranetError, NriError, KubeletError, OSError)
    with quietly:
        await b.node.prepare(pod)
    with quietly:
        await b.node.run_sandbox(pod)
    with quietly:
        await b.node.runtime.stop_pod_sandbox(pod.message(b.node.profile))
    with quietly:
        await b.node.unprepare(pod)


async def _start_to_die(b: Bench, point: str) -> None:
    await b.node.start_driver(DRANET_FAULT_POINT=point)
    await until(lambda: b.published() == ["nic0"])


async def _dead(b: Bench) -> None:
    """It has got to its point, and the runtime knows."""
    await until(lambda: not b.driver.running)
    await b.node.runtime.wait_for(lambda plugins: not plugins)


@pytest.mark.parametrize("point", STATES)
async def test_crash_at_each_point_loses_nothing(point: str, runtime: RuntimeProfile) -> None:
    await _die_and_go_on(point, CONFIG, runtime=runtime)


@pytest.mark.parametrize("point", OF_CHILDREN)
async def test_crash_at_each_point_restores_a_shared_nic(point: str) -> None:
    await _die_and_go_on(point, CHILD, share="2500M")


@pytest.mark.parametrize("point", ["prepare.settings_saved", "prepare.set_up"])
async def test_crash_after_the_prepare_reply_loses_nothing(point: str) -> None:
    """A claim that asks for nothing is answered before its NIC is touched."""
    async with bench(nics=1, start=False) as b:
        before = b.picture_with_disciplines("nic0")
        await _start_to_die(b, point)
        pod = b.claim("nic0")
        with contextlib.suppress(KubeletError):
            await b.node.prepare(pod)
        await _dead(b)

        await b.node.start_driver()
        await b.node.start_pod(pod)
        assert b.names(pod.netns) == {"nic0"}
        await b.node.stop_pod(pod)
        assert b.picture_with_disciplines("nic0") == before


@pytest.mark.parametrize("point", ["unprepare.released", "unprepare.answered"])
async def test_crash_before_release_is_stored_frees_the_device(point: str) -> None:
    """The claim is not unprepared again: the kubelet has its reply, or the pod was deleted since."""
    async with bench(nics=1, start=False) as b:
        before = b.picture_with_disciplines("nic0")
        await _start_to_die(b, point)
        pod = await b.start("nic0")
        with contextlib.suppress(KubeletError):
            await b.node.stop_pod(pod)
        await _dead(b)
        left = Store.read_copy(str(b.node.folder / "dranet.sqlite"))
        assert set(left.plans) == {pod.claims[0].uid}, "this death is to bring the plan back"
        b.api.remove(resources.RESOURCE_CLAIMS, pod.claims[0].name, "default")

        await b.node.start_driver()
        again = b.claim("nic0")
        await asyncio.wait_for(b.node.start_pod(again), HOLDER_SECONDS / 2)
        assert b.names(again.netns) == {"nic0"}
        await b.node.stop_pod(again)
        assert b.picture_with_disciplines("nic0") == before
        await until(lambda: not Store.read_copy(str(b.node.folder / "dranet.sqlite")).plans)


async def _die_and_go_on(
    point: str, config: dict[str, Any], share: str = "", runtime: RuntimeProfile = CONTAINERD
) -> None:
    flags = ["--shared-cards=true"] if share else []
    async with bench(nics=1, flags=flags, start=False, runtime=runtime) as b:
        b.show_speed("nic0")
        before = b.picture_with_disciplines("nic0")
        await _start_to_die(b, point)
        pod = b.claim("nic0", parameters=config, share=share)
        await _live(b, pod)
        await _dead(b)
        state = (STATES_OF_CHILDREN if share else STATES)[point]
        left = Store.read_copy(str(b.node.folder / "dranet.sqlite"))
        assert state_of(left.plans.get(pod.claims[0].uid)) is state

        await b.node.start_driver()
        assert pod.uid in b.node.pods
        if state in WITHOUT_PLAN:
            await b.compared()
            assert b.picture_with_disciplines("nic0") == before
            assert b.names(pod.netns) == set()
        else:
            # The sandbox still runs, whatever was asked of it before: its NIC is there, configured.
            await until(lambda: b.names(pod.netns) == {"dranet0"})
            await until(b.gates)
            if share:
                assert any(one.handle == htb.HANDLE for one in b.disciplines("nic0")), "the share is kept at the nic"
        if b.node.profile.deletes_namespace_first:
            await b.compared()
        await b.node.stop_sandbox(pod)
        await b.node.unprepare(pod)
        assert b.picture_with_disciplines("nic0") == before
        assert not b.gates()

        again = await b.start("nic0", parameters=config, share=share)
        assert b.names(again.netns) == {"dranet0"}
        await b.node.stop_pod(again)
        assert b.picture_with_disciplines("nic0") == before
