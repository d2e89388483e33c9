"""A pod stacks a link on its NIC and hides it in a namespace that an accomplice keeps; attacks with plain `ip`."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dranet.core.errors import InvalidInput
from dranet.linux.namespaces import Namespace
from dranet.node.lifecycle.device_lifecycle import DeviceLifecycle
from dranet.testing.waiting import wait_until

from .conftest import TestNode
from .test_child_interfaces import datagram


@pytest.fixture
def accomplice(node: TestNode) -> Iterator[Namespace]:
    """A namespace that only the accomplice's process keeps alive."""
    process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    try:
        own = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{process.pid}/ns/net") != own)
        with Namespace.open(f"/proc/{process.pid}/ns/net") as namespace:
            yield namespace
    finally:
        process.kill()
        process.wait()


def hide(node: TestNode, pod: Namespace, accomplice: Namespace, *words: str) -> None:
    """In the pod: a link on its NIC, moved to the accomplice."""
    node.run("ip", "link", "add", "link", "nic0", "name", "evil", *words, where=pod)
    target = ["nsenter", f"--net=/proc/self/fd/{pod.fd}", "ip", "link", "set", "evil", "netns"]
    subprocess.run(
        [*target, f"/proc/{os.getpid()}/fd/{accomplice.fd}"], check=True, pass_fds=[pod.fd], capture_output=True
    )
    node.run("ip", "link", "set", "evil", "up", where=accomplice)


MACVLAN = ("type", "macvlan", "mode", "bridge")


def test_hidden_link_is_deleted_when_the_nic_returns(node: TestNode, accomplice: Namespace) -> None:
    pod = node.attach("nic0")
    hide(node, pod, accomplice, *MACVLAN)
    assert node.names(accomplice) == {"evil"}
    assert node.lifecycle.detach("uid-1", stopping="") == []
    assert node.names(accomplice) == set()
    assert node.lifecycle.occupied == {}
    node.plan("nic0", uid="uid-2", pod_uid="pod-2")


def blind(node: TestNode, folder: Path) -> DeviceLifecycle:
    """A driver that sees no processes, as with the chart's default values."""
    (folder / "proc").mkdir()
    (folder / "proc" / "sys").symlink_to("/proc/sys")
    host = msgspec.structs.replace(node.host, proc_root=str(folder / "proc"), _ethtool=node.host.ethtool)
    return DeviceLifecycle(host, node.store, node.lifecycle.gates)


def test_nic_is_withheld_while_a_hidden_link_is_on_it(node: TestNode, accomplice: Namespace, tmp_path: Path) -> None:
    pod = node.attach("nic0")
    hide(node, pod, accomplice, *MACVLAN)
    with contextlib.closing(blind(node, tmp_path)) as driver:
        (problem,) = driver.detach("uid-1", stopping="")
        assert "nic0: a macvlan in another network namespace is stacked on it" in problem
        assert set(driver.occupied) == {"nic0"}
        with pytest.raises(InvalidInput, match="device nic0: a macvlan in another network namespace is stacked on it"):
            node.plan("nic0", uid="uid-2", pod_uid="pod-2")
        node.run("ip", "link", "delete", "evil", where=accomplice)
        assert driver.occupied == {}
    node.plan("nic0", uid="uid-2", pod_uid="pod-2")


def test_links_in_the_pod_itself_are_deleted(node: TestNode, tmp_path: Path) -> None:
    """Also where the pod's namespace lives on and the driver sees no processes."""
    pod = node.attach("nic0")
    node.run("ip", "link", "add", "link", "nic0", "name", "own", *MACVLAN, where=pod)
    with contextlib.closing(blind(node, tmp_path)) as driver:
        assert driver.detach("uid-1", stopping="") == []
        assert node.names(pod) == set()
        assert driver.occupied == {}


def test_next_pod_hears_its_packets_and_the_old_one_does_not(node: TestNode, accomplice: Namespace) -> None:
    pod = node.attach("nic0")
    hide(node, pod, accomplice, *MACVLAN)
    node.lifecycle.detach("uid-1", stopping="")
    node.store.delete("uid-1")
    node.run("ip", "addr", "add", "10.1.0.9/24", "dev", "nic0", where=node.fabric)
    after = node.attach("nic0", uid="uid-2", pod_uid="pod-2")
    assert datagram(node.fabric, after, "10.1.0.1") == "10.1.0.9"
