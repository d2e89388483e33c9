"""Drivers hold the namespaces of pods with devices, and of no others, also while two drivers share a node."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dranet.linux.namespaces import Namespace
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.testing.processes import Child
from dranet.testing.waiting import until

from .conftest import OpenStore, TestNode
from .daemon_bench import bench


def descriptors(inode: int, process: object = "self") -> int:
    """How many descriptors of a process lead to this namespace."""
    found = 0
    for path in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed since
            found += path.stat().st_ino == inode
    return found


@pytest.fixture
def second(node: TestNode, open_store: OpenStore) -> Iterator[DeviceLifecycle]:
    """Another driver on the same node."""
    lifecycle = DeviceLifecycle(node.host, open_store(), node.lifecycle.gates)
    yield lifecycle
    lifecycle.close()


def attached_by_both(node: TestNode, second: DeviceLifecycle) -> Namespace:
    pod = node.attach("nic0")
    second.attach("pod-1", pod.path)
    assert descriptors(pod.identity().inode) == 3
    return pod


def test_both_drivers_release_the_namespace_of_a_stopped_pod(node: TestNode, second: DeviceLifecycle) -> None:
    pod = attached_by_both(node, second)
    for lifecycle in (node.lifecycle, second):
        lifecycle.detach("uid-1", stopping=pod.path)
    assert descriptors(pod.identity().inode) == 1  # that of this test


def test_namespace_of_a_claim_that_the_other_driver_released_is_closed(node: TestNode, second: DeviceLifecycle) -> None:
    pod = attached_by_both(node, second)
    node.lifecycle.detach("uid-1", stopping=pod.path)
    node.store.delete("uid-1")
    second.release_namespaces()
    assert descriptors(pod.identity().inode) == 1


def test_namespace_of_a_running_pod_stays_open(node: TestNode, second: DeviceLifecycle) -> None:
    pod = attached_by_both(node, second)
    node.attach("nic1", uid="uid-2", pod_uid="pod-2")
    node.lifecycle.detach("uid-2", stopping="")
    second.release_namespaces()
    assert descriptors(pod.identity().inode) == 3


@pytest.mark.usefixtures("may_make_namespaces")
async def test_two_drivers_hold_no_namespace_of_a_deleted_pod() -> None:
    async with bench(flags=["--pod-uid=old"]) as b:
        old = b.driver
        b.node.flags[:] = ["--pod-uid=new"]
        log = b.node.folder / "log" / "new.log"
        b.node.driver = await Child.start(b.node.command(), inside=b.node.namespace, log=log)
        await b.node.kubelet.wait_for(lambda plugins: len(plugins) == 2)
        await b.node.runtime.wait_for(lambda plugins: len(plugins) == 2)
        inodes = []
        for _ in range(4):
            pod = await b.start("nic0", "nic1")
            inodes.append(os.stat(pod.path).st_ino)
            await b.node.stop_pod(pod)
        drivers = (old, b.driver)
        await until(lambda: not any(descriptors(inode, driver.pid) for inode in inodes for driver in drivers))
        await old.stop()
