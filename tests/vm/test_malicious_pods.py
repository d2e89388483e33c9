"""Real NICs in the hands of a malicious pod: they return to the host as they were, and none is ever given up."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dranet.node.lifecycle.device_lifecycle import DetachError
from dranet.testing.waiting import wait_until
from tests import pictures
from tests.vm.attacked_node import BURNT_IN
from tests.vm.machine import E1000E_NODE0, SRIOV_NODE1, VIRTIO_NODE0, Nic
from tests.vm.parts import Driver, name_at
from tests.vm.world import NamedNamespace, has_link, named_namespace, netdev_at, netdev_of, tool

ADDRESS = "10.44.0.1/24"


@pytest.fixture(params=[E1000E_NODE0, SRIOV_NODE1], ids=["e1000e", "igb"])
def nic(request: pytest.FixtureRequest) -> Iterator[Nic]:
    found: Nic = request.param
    name = netdev_of(found)
    tool("ip", "link", "set", name, "up")
    tool("ip", "address", "replace", ADDRESS, "dev", name)
    tool("ip", "link", "property", "add", "dev", name, "altname", "rail7")
    wait_until(lambda: "LOWER_UP" in tool("ip", "link", "show", name), "the carrier")
    yield found
    wait_until(lambda: has_link(found.address), "the NIC to be on the host")
    now = netdev_of(found)
    tool("ip", "address", "flush", "dev", now)
    tool("ip", "link", "set", now, "down")
    if now != name:
        tool("ip", "link", "set", now, "name", name)
    subprocess.run(["ip", "link", "property", "del", "dev", name, "altname", "rail7"], capture_output=True, check=False)


def picture(driver: Driver, nic: Nic) -> pictures.Picture:
    return pictures.take(driver.host.namespace.fd, netdev_of(nic))


def same_again(driver: Driver, nic: Nic, before: pictures.Picture) -> None:
    """A NIC that was just raised finds its carrier a moment later."""
    wait_until(lambda: picture(driver, nic).get("operstate") == before["operstate"], "the carrier")
    assert pictures.differences(before, picture(driver, nic)) == []


def spoil(pod: NamedNamespace, name: str) -> None:
    """What `ip` and `ethtool` can do to a NIC."""
    pod.tool("ip", "link", "set", name, "down")
    pod.tool(
        "ip", "link", "set", name, "address", "02:00:00:00:00:66", "mtu", "1280", "alias", "mine", "txqueuelen", "7"
    )
    pod.tool("ip", "link", "set", name, "gso_max_segs", "9", "gso_max_size", "9000", "mode", "dormant", "group", "5")
    pod.tool("ip", "link", "set", name, "promisc", "on", "allmulticast", "on", "arp", "off")
    pod.tool("ip", "link", "property", "add", "dev", name, "altname", netdev_of(VIRTIO_NODE0), "altname", "evil")
    pod.tool("ethtool", "-G", name, "rx", "512", "tx", "512")
    pod.tool("ethtool", "-K", name, "gro", "off", "tso", "off", "rx", "off")
    pod.tool("ip", "link", "set", name, "name", "spoilt")


def test_a_spoilt_nic_returns_to_the_host_as_it_was(nic: Nic, pod: NamedNamespace, driver: Driver) -> None:
    before = picture(driver, nic)
    plan = driver.prepare(name_at(nic.address), "claim")
    driver.attach(plan, pod)
    spoil(pod, plan.devices[0].pod_config.name)  # type: ignore[union-attr]
    assert driver.detach(plan) == []
    same_again(driver, nic, before)


def test_a_spoilt_nic_that_returned_by_itself_is_made_as_it_was(nic: Nic, driver: Driver) -> None:
    before = picture(driver, nic)
    with named_namespace("short-lived") as pod:
        plan = driver.prepare(name_at(nic.address), "claim")
        driver.attach(plan, pod)
        spoil(pod, plan.devices[0].pod_config.name)  # type: ignore[union-attr]
        driver.lifecycle.close()
    wait_until(lambda: has_link(nic.address), "the NIC to return to the host by itself")
    assert driver.detach(plan) == []
    same_again(driver, nic, before)


@contextmanager
def hidden(pod: NamedNamespace, name: str) -> Iterator[None]:
    """In a namespace that only a mount keeps alive, where nothing looks."""
    tool("ip", "netns", "add", "hideout")
    try:
        pod.tool("ip", "link", "set", name, "down")
        keeper = subprocess.Popen(["ip", "netns", "exec", "hideout", "sleep", "30"])
        wait_until(lambda: "sleep" in tool("ps", "-o", "comm=", "-p", str(keeper.pid)), "the keeper")
        pod.tool("ip", "link", "set", name, "netns", str(keeper.pid))
        keeper.kill()
        keeper.wait()
        yield
    finally:
        tool("ip", "netns", "del", "hideout")


def test_a_nic_that_is_not_found_is_rebound_and_returns_to_the_host_as_it_was(
    nic: Nic, pod: NamedNamespace, driver: Driver
) -> None:
    before = picture(driver, nic)
    plan = driver.prepare(name_at(nic.address), "claim")
    driver.attach(plan, pod)
    with hidden(pod, plan.devices[0].pod_config.name):  # type: ignore[union-attr]
        driver.host.may_rebind = False
        with pytest.raises(DetachError, match="--rebind-lost-cards"):
            driver.lifecycle.detach(plan.uid, stopping="")
        assert driver.store.get(plan.uid) is not None
        driver.host.may_rebind = True
        assert driver.lifecycle.detach(plan.uid, stopping="") == []
        same_again(driver, nic, before)


def test_a_rebound_virtual_function_is_known_again_although_its_burnt_in_address_is_another(
    virtual_functions: list[str], pod: NamedNamespace, driver: Driver
) -> None:
    address, home = virtual_functions[0], driver.host.namespace.fd
    before = pictures.take(home, netdev_at(address))
    plan = driver.prepare(name_at(address), "claim")
    driver.attach(plan, pod)
    with hidden(pod, plan.devices[0].pod_config.name):  # type: ignore[union-attr]
        assert driver.lifecycle.detach(plan.uid, stopping="") == []
        now = pictures.take(home, netdev_at(address))
        assert now.pop(BURNT_IN) != before.pop(BURNT_IN), "this NIC says nothing about those that draw a new one"
        assert pictures.differences(before, now) == []


def test_a_nic_that_a_process_outside_of_the_pod_keeps_is_fetched(
    nic: Nic, pod: NamedNamespace, driver: Driver
) -> None:
    before = picture(driver, nic)
    plan = driver.prepare(name_at(nic.address), "claim")
    driver.attach(plan, pod)
    keeper = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    try:
        wait_until(lambda: "sleep" in tool("ps", "-o", "comm=", "-p", str(keeper.pid)), "the keeper")
        pod.tool("ip", "link", "set", plan.devices[0].pod_config.name, "netns", str(keeper.pid))  # type: ignore[union-attr]
        assert driver.detach(plan) == []
        same_again(driver, nic, before)
    finally:
        keeper.kill()
        keeper.wait()
