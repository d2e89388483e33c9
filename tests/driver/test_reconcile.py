"""Putting things right after a restart, while hooks go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dranet.driver.records.plan import ClaimPlan
from dranet.driver.serving.reconcile import Reconciler
from dranet.driver.serving.sandboxes import Sandbox
from dranet.kernel.namespaces import Namespace

from .conftest import TestNode


class Meanwhile:
    """Stands for leases and reports; the first time it hears of anything, something else happens on the node."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self._happenings = [happens]

    def keep(self, plans: Sequence[ClaimPlan], netns: str) -> None:
        if self._happenings:
            self._happenings.pop()()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


def reconcile(node: TestNode, listed: dict[str, list[Sandbox]], happens: Callable[[], object]) -> None:
    meanwhile: Any = Meanwhile(happens)
    asyncio.run(Reconciler(node.cards, meanwhile, meanwhile).run(listed))


@pytest.fixture
def first_pod(node: TestNode) -> Namespace:
    """A pod in good order; the reconciler comes to it first."""
    node.plan("card0", uid="uid-1", pod_uid="pod-1")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    return pod


def test_the_card_of_a_pod_that_is_gone_comes_home(node: TestNode, first_pod: Namespace) -> None:
    node.plan("card1", uid="uid-2", pod_uid="pod-2")
    node.cards.attach("pod-2", node.pod().path)
    reconcile(node, {"pod-1": [Sandbox(first_pod.path)]}, lambda: None)
    assert node.names() == {"card1"}


def test_a_sandbox_that_was_started_anew_meanwhile_keeps_its_card(node: TestNode, first_pod: Namespace) -> None:
    node.plan("card1", uid="uid-2", pod_uid="pod-2")
    node.cards.attach("pod-2", node.pod().path)
    anew = node.pod()

    def restart() -> None:
        node.cards.bring_home("uid-2", stopping="")
        node.cards.attach("pod-2", anew.path)

    reconcile(node, {"pod-1": [Sandbox(first_pod.path)]}, restart)
    assert node.names(anew) == {"card1"}
    assert node.cards.receipts.exists("uid-2")


def test_a_sandbox_in_another_namespace_than_the_picture_says_keeps_its_card(
    node: TestNode, first_pod: Namespace
) -> None:
    node.plan("card1", uid="uid-2", pod_uid="pod-2")
    old, anew = node.pod(), node.pod()
    picture = {"pod-1": [Sandbox(first_pod.path)], "pod-2": [Sandbox(old.path)]}
    reconcile(node, picture, lambda: node.cards.attach("pod-2", anew.path))
    assert node.names(anew) == {"card1"}
    assert node.cards.receipts.exists("uid-2")
