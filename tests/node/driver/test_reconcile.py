"""Repair after a restart, while hooks continue."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dranet.core.backoff import Backoff
from dranet.linux.namespaces import Namespace
from dranet.node.records.plan import ClaimPlan
from dranet.node.server.attach import Attacher
from dranet.node.server.recovery import Reconciler
from dranet.node.server.runtime import Sandbox

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
    attacher = Attacher(node.lifecycle, meanwhile, meanwhile, Backoff(random.Random()))
    asyncio.run(Reconciler(attacher).run(listed))


@pytest.fixture
def first_pod(node: TestNode) -> Namespace:
    """A pod in good order; the reconciler comes to it first."""
    return node.attach("nic0", uid="uid-1", pod_uid="pod-1")


def test_reconcile_detaches_devices_of_deleted_pods(node: TestNode, first_pod: Namespace) -> None:
    node.plan("nic1", uid="uid-2", pod_uid="pod-2")
    node.lifecycle.attach("pod-2", node.pod().path)
    reconcile(node, {"pod-1": [Sandbox(first_pod.path)]}, lambda: None)
    assert node.names() == {"nic1"}


def test_sandbox_restarted_during_reconcile_keeps_its_device(node: TestNode, first_pod: Namespace) -> None:
    node.plan("nic1", uid="uid-2", pod_uid="pod-2")
    node.lifecycle.attach("pod-2", node.pod().path)
    new = node.pod()

    def restart() -> None:
        node.lifecycle.detach("uid-2", stopping="")
        node.lifecycle.attach("pod-2", new.path)

    reconcile(node, {"pod-1": [Sandbox(first_pod.path)]}, restart)
    assert node.names(new) == {"nic1"}
    assert node.lifecycle.gates.exists("uid-2")


def test_sandbox_newer_than_the_list_keeps_its_device(node: TestNode, first_pod: Namespace) -> None:
    node.plan("nic1", uid="uid-2", pod_uid="pod-2")
    old, new = node.pod(), node.pod()
    picture = {"pod-1": [Sandbox(first_pod.path)], "pod-2": [Sandbox(old.path)]}
    reconcile(node, picture, lambda: node.lifecycle.attach("pod-2", new.path))
    assert node.names(new) == {"nic1"}
    assert node.lifecycle.gates.exists("uid-2")
