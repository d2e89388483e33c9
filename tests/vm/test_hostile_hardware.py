"""Real cards in the hands of a hostile pod: they come home as they were, and none is ever given up."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dranet.driver.moving.cards import CardsAway
from tests import pictures
from tests.vm.hostile_node import BURNT_IN
from tests.vm.machine import E1000E_NODE0, SRIOV_NODE1, VIRTIO_NODE0, Card
from tests.vm.parts import Driver, name_at
from tests.vm.world import NamedNamespace, has_link, named_namespace, netdev_at, netdev_of, tool, wait_for

ADDRESS = "10.44.0.1/24"


@pytest.fixture(params=[E1000E_NODE0, SRIOV_NODE1], ids=["e1000e", "igb"])
def card(request: pytest.FixtureRequest) -> Iterator[Card]:
    found: Card = request.param
    name = netdev_of(found)
    tool("ip", "link", "set", name, "up")
    tool("ip", "address", "replace", ADDRESS, "dev", name)
    tool("ip", "link", "property", "add", "dev", name, "altname", "rail7")
    wait_for(lambda: "LOWER_UP" in tool("ip", "link", "show", name), "the carrier")
    yield found
    wait_for(lambda: has_link(found.address), "the card to be at home")
    now = netdev_of(found)
    tool("ip", "address", "flush", "dev", now)
    tool("ip", "link", "set", now, "down")
    if now != name:
        tool("ip", "link", "set", now, "name", name)
    subprocess.run(["ip", "link", "property", "del", "dev", name, "altname", "rail7"], capture_output=True, check=False)


def picture(driver: Driver, card: Card) -> pictures.Picture:
    return pictures.take(driver.host.namespace.fd, netdev_of(card))


def same_again(driver: Driver, card: Card, before: pictures.Picture) -> None:
    """A card that was just raised finds its carrier a moment later."""
    wait_for(lambda: picture(driver, card).get("operstate") == before["operstate"], "the carrier")
    assert pictures.differences(before, picture(driver, card)) == []


def spoil(pod: NamedNamespace, name: str) -> None:
    """What `ip` and `ethtool` can do to a card."""
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


def test_a_spoilt_card_comes_home_as_it_was(card: Card, pod: NamedNamespace, driver: Driver) -> None:
    before = picture(driver, card)
    plan = driver.prepare(name_at(card.address), "claim")
    driver.attach(plan, pod)
    spoil(pod, plan.devices[0].wanted.name)  # type: ignore[union-attr]
    assert driver.bring_home(plan) == []
    same_again(driver, card, before)


def test_a_spoilt_card_that_came_home_by_itself_is_made_as_it_was(card: Card, driver: Driver) -> None:
    before = picture(driver, card)
    with named_namespace("short-lived") as pod:
        plan = driver.prepare(name_at(card.address), "claim")
        driver.attach(plan, pod)
        spoil(pod, plan.devices[0].wanted.name)  # type: ignore[union-attr]
        driver.cards.close()
    wait_for(lambda: has_link(card.address), "the card to come home by itself")
    assert driver.bring_home(plan) == []
    same_again(driver, card, before)


@contextmanager
def hidden(pod: NamedNamespace, name: str) -> Iterator[None]:
    """In a namespace that only a mount keeps alive, where nobody looks."""
    tool("ip", "netns", "add", "hideout")
    try:
        pod.tool("ip", "link", "set", name, "down")
        keeper = subprocess.Popen(["ip", "netns", "exec", "hideout", "sleep", "30"])
        wait_for(lambda: "sleep" in tool("ps", "-o", "comm=", "-p", str(keeper.pid)), "the keeper")
        pod.tool("ip", "link", "set", name, "netns", str(keeper.pid))
        keeper.kill()
        keeper.wait()
        yield
    finally:
        tool("ip", "netns", "del", "hideout")


def test_a_card_that_nobody_finds_is_rebound_and_comes_home_as_it_was(
    card: Card, pod: NamedNamespace, driver: Driver
) -> None:
    before = picture(driver, card)
    plan = driver.prepare(name_at(card.address), "claim")
    driver.attach(plan, pod)
    with hidden(pod, plan.devices[0].wanted.name):  # type: ignore[union-attr]
        driver.host.may_rebind = False
        with pytest.raises(CardsAway, match="--rebind-lost-cards"):
            driver.cards.bring_home(plan.uid, stopping="")
        assert driver.store.get(plan.uid) is not None
        driver.host.may_rebind = True
        assert driver.cards.bring_home(plan.uid, stopping="") == []
        same_again(driver, card, before)


def test_a_rebound_virtual_function_is_known_again_although_its_burnt_in_address_is_another(
    virtual_functions: list[str], pod: NamedNamespace, driver: Driver
) -> None:
    address, home = virtual_functions[0], driver.host.namespace.fd
    before = pictures.take(home, netdev_at(address))
    plan = driver.prepare(name_at(address), "claim")
    driver.attach(plan, pod)
    with hidden(pod, plan.devices[0].wanted.name):  # type: ignore[union-attr]
        assert driver.cards.bring_home(plan.uid, stopping="") == []
        now = pictures.take(home, netdev_at(address))
        assert now.pop(BURNT_IN) != before.pop(BURNT_IN), "this card says nothing about those that draw a new one"
        assert pictures.differences(before, now) == []


def test_a_card_that_a_process_outside_of_the_pod_keeps_is_fetched(
    card: Card, pod: NamedNamespace, driver: Driver
) -> None:
    before = picture(driver, card)
    plan = driver.prepare(name_at(card.address), "claim")
    driver.attach(plan, pod)
    keeper = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    try:
        wait_for(lambda: "sleep" in tool("ps", "-o", "comm=", "-p", str(keeper.pid)), "the keeper")
        pod.tool("ip", "link", "set", plan.devices[0].wanted.name, "netns", str(keeper.pid))  # type: ignore[union-attr]
        assert driver.bring_home(plan) == []
        same_again(driver, card, before)
    finally:
        keeper.kill()
        keeper.wait()
