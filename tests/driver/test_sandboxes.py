"""A pod may have many sandboxes, most of them ended: its cards stay in the one that has them and runs."""

from __future__ import annotations

import random

import pytest

from dranet.driver.records.plan import ClaimPlan, PodRef
from dranet.driver.serving.sandboxes import Sandbox, by_pod, with_cards
from dranet.kernel.namespaces import Namespace
from dranet.nri import messages
from dranet.sandbox.node import SandboxPod

from .conftest import TestNode
from .daemon_bench import Bench, bench, until
from .test_reconcile import reconcile

ROUNDS = 5
"""Restarts a test: a fault that shows in one order out of two is seen in 31 of 32 runs, and the seed is printed."""


def plan_in(netns: str | None) -> ClaimPlan:
    return ClaimPlan(uid="u", namespace="d", name="c", pod=PodRef(uid="p", name="p", namespace="d"), netns=netns)


@pytest.fixture
def spaces(may_make_namespaces: None) -> list[str]:
    made = [Namespace.create() for _ in range(2)]
    return [f"/proc/self/fd/{one.fd}" for one in made]


@pytest.mark.parametrize("seed", range(4))
def test_ended_sandboxes_do_not_count_wherever_the_list_has_them(spaces: list[str], seed: int) -> None:
    listed = [Sandbox("/gone/1", runs=False), Sandbox(spaces[0]), Sandbox("/gone/2", runs=True), Sandbox("")] * 2
    random.Random(seed).shuffle(listed)
    assert with_cards(plan_in(spaces[0]), listed) == spaces[0]
    assert with_cards(plan_in("/gone/1"), listed) == spaces[0]
    assert with_cards(plan_in(None), listed) == spaces[0]


def test_a_pod_whose_sandboxes_are_all_gone_is_gone() -> None:
    assert with_cards(plan_in("/gone/1"), [Sandbox("/gone/1"), Sandbox("/gone/2", runs=False)]) is None
    assert with_cards(plan_in("/gone/1"), []) is None


@pytest.mark.parametrize("turn", [1, -1])
def test_of_two_that_run_the_one_with_the_cards_keeps_them(spaces: list[str], turn: int) -> None:
    listed = [Sandbox(path) for path in spaces][::turn]
    assert [with_cards(plan_in(path), listed) for path in spaces] == spaces


@pytest.mark.parametrize("turn", [1, -1])
def test_one_that_runs_gets_the_cards_of_one_that_has_ended_but_is_still_there(spaces: list[str], turn: int) -> None:
    listed = [Sandbox(spaces[0], runs=False), Sandbox(spaces[1])][::turn]
    assert with_cards(plan_in(spaces[0]), listed) == spaces[1]


def test_a_runtime_that_tells_no_processes_has_all_its_sandboxes_believed(spaces: list[str]) -> None:
    assert with_cards(plan_in(spaces[0]), [Sandbox(path, runs=False) for path in spaces]) == spaces[0]


def test_every_sandbox_is_kept_under_the_uid_of_its_pod() -> None:
    network = messages.LinuxPodSandbox(namespaces=[messages.LinuxNamespace(type="network", path="/a")])
    pods = [messages.PodSandbox(uid="p", pid=7, linux=network), messages.PodSandbox(uid="p")]
    assert by_pod(pods) == {"p": [Sandbox("/a"), Sandbox("", runs=False)]}


@pytest.mark.parametrize("turn", [1, -1])
def test_reconciling_leaves_a_pod_beside_its_ended_sandboxes_alone(node: TestNode, turn: int) -> None:
    node.plan("card0")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    reconcile(node, {"pod-1": [Sandbox("/gone", runs=False), Sandbox(pod.path)][::turn]}, lambda: None)
    assert node.names(pod) == {"card0"}


def test_a_late_stop_of_an_earlier_sandbox_leaves_the_later_one_its_cards(node: TestNode) -> None:
    node.plan("card0")
    earlier, later = node.pod(), node.pod()
    node.cards.attach("pod-1", earlier.path)
    node.cards.attach("pod-1", later.path)
    for _ in range(2):
        node.cards.bring_home("uid-1", stopping=earlier.path)
        assert node.names(later) == {"card0"}
    node.cards.bring_home("uid-1", stopping=later.path)
    assert node.names() == {"card0", "card1"}


def test_a_late_stop_of_an_earlier_sandbox_does_not_forbid_the_repair_of_the_later_one(node: TestNode) -> None:
    plan = node.plan("card0")
    earlier, later = node.pod(), node.pod()
    node.cards.bring_home("uid-1", stopping=earlier.path)
    node.cards.attach("pod-1", later.path, repair_of=plan)
    assert node.names(later) == {"card0"}


def test_a_sandbox_that_stops_is_not_repaired_afterwards(node: TestNode) -> None:
    plan = node.plan("card0")
    pod = node.pod()
    node.cards.bring_home("uid-1", stopping=pod.path)
    assert node.cards.attach("pod-1", pod.path, repair_of=plan) == []
    assert node.names() == {"card0", "card1"}


# The whole daemon, at a runtime that lists ended sandboxes in any order.


async def _pod_with_ended_sandboxes(b: Bench, device: str) -> SandboxPod:
    pod = b.claim(device)
    await b.node.start_pod(pod)
    for _ in range(3):
        await b.node.stop_sandbox(pod)
        await b.node.run_sandbox(pod)
    return pod


async def _reconciled(b: Bench, device: str) -> None:
    """The driver goes through claims in order: once a later one is put right, all earlier ones have been seen."""
    assert b.node.driver is not None
    mark = b.claim(device)
    await b.node.prepare(mark)
    await b.node.driver.kill()
    await b.node.runtime.wait_for(lambda plugins: not plugins)
    await b.node.run_sandbox(mark)
    await b.node.start_driver()
    await until(lambda: b.names(mark.netns) == {device})
    await b.node.stop_pod(mark)


async def test_a_restarted_driver_leaves_cards_in_pods_that_have_ended_sandboxes(may_make_namespaces: None) -> None:
    async with bench(cards=2) as b:
        pod = await _pod_with_ended_sandboxes(b, "card0")
        for _ in range(ROUNDS):
            await _reconciled(b, "card1")
            assert b.names(pod.netns) == {"card0"}
            assert (await b.node.create_container(pod)).environment
        await b.node.stop_pod(pod)
        assert b.names() == {"card0", "card1"}


async def test_a_rebuilt_store_finds_the_cards_in_the_sandbox_that_runs(may_make_namespaces: None) -> None:
    async with bench(cards=2, flags=["--db-path="]) as b:
        pod = await _pod_with_ended_sandboxes(b, "card0")
        before = b.node.ended
        await b.restart_driver()
        await b.compared()
        assert b.names(pod.netns) == {"card0"} and list((b.node.folder / "cdi").glob("*.json"))
        assert before
        await b.node.stop_pod(pod)
        assert b.names() == {"card0", "card1"}


async def test_a_stop_that_the_runtime_says_late_and_twice_takes_no_card(may_make_namespaces: None) -> None:
    async with bench(cards=1) as b:
        pod = b.claim("card0")
        await b.node.start_pod(pod)
        first = pod.message(b.node.manner)
        # The runtime lost the first sandbox in a crash and told nobody; its namespace is still there.
        await b.node.run_sandbox(pod)
        for _ in range(2):
            await b.node.runtime.stop_pod_sandbox(first)
            assert b.names(pod.netns) == {"card0"}
            assert (await b.node.create_container(pod)).environment
