"""A card comes home exactly as it was found."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from dranet.driver.moving.cards import Cards, CardsAway
from dranet.driver.parts.rdma import RdmaPart
from dranet.driver.parts.registry import PARTS
from dranet.driver.records.plan import RdmaRecord
from dranet.kernel.netlink import NetlinkError, NetlinkSocket

from .conftest import TestNode

RICH = {
    "interface": {
        "name": "eth9",
        "addresses": ["192.168.7.1/24"],
        "mtu": 1400,
        "hardwareAddr": "02:00:00:00:00:99",
        "gsoMaxSize": 50000,
    },
    "ethtool": {"features": {"tso": False}},
}


@pytest.fixture
def rich_node(node: TestNode) -> TestNode:
    """card0 has everything a card can have."""
    node.run("ip", "link", "set", "card0", "alias", "rail zero", "mtu", "1600", "txqueuelen", "500")
    node.run("ip", "addr", "add", "10.1.0.5/24", "dev", "card0", "label", "card0:x")
    node.run("ip", "route", "add", "10.77.0.0/16", "via", "10.1.0.254", "dev", "card0", "metric", "7", "mtu", "1300")
    node.run("ip", "route", "add", "10.78.0.0/16", "via", "10.1.0.254", "dev", "card0", "table", "100")
    node.run("ip", "rule", "add", "from", "10.20.30.0/24", "table", "100", "priority", "500")
    node.run("ip", "-6", "route", "add", "fd00:77::/64", "via", "fd00:1::fe", "dev", "card0")
    node.run("ip", "neigh", "add", "10.1.0.9", "lladdr", "00:11:22:33:44:55", "dev", "card0", "nud", "permanent")
    return node


@pytest.mark.parametrize("config", [None, RICH], ids=["nothing-asked", "much-asked"])
def test_after_a_round_trip_the_card_is_as_it_was(rich_node: TestNode, config: object) -> None:
    before, rules = rich_node.picture("card0"), rich_node.ip("rule")
    plan = rich_node.plan("card0", config=config)
    rich_node.cards.ready(plan)
    rich_node.cards.attach("pod-1", rich_node.pod().path)
    assert rich_node.cards.bring_home(plan.uid) == []
    assert rich_node.picture("card0") == before
    assert rich_node.ip("rule") == rules


def test_a_card_that_was_down_comes_home_down(node: TestNode) -> None:
    node.run("ip", "link", "set", "card0", "down")
    before = node.picture("card0")
    plan = node.plan("card0")
    node.cards.attach("pod-1", node.pod().path)
    node.cards.bring_home(plan.uid)
    assert node.picture("card0") == before


def test_a_card_made_ready_but_never_attached_is_put_back(node: TestNode) -> None:
    before = node.picture("card0")
    plan = node.plan("card0", config=RICH)
    node.cards.ready(plan)
    assert node.picture("card0") != before
    node.cards.bring_home(plan.uid)
    assert node.picture("card0") == before


def test_a_card_renamed_inside_the_pod_is_found(node: TestNode) -> None:
    before = node.picture("card0")
    plan = node.plan("card0")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    node.run("ip", "link", "set", "card0", "down", where=pod)
    node.run("ip", "link", "set", "card0", "name", "mine", where=pod)
    assert node.cards.bring_home(plan.uid) == []
    assert node.picture("card0") == before


def test_a_name_taken_meanwhile_costs_only_the_name(node: TestNode) -> None:
    plan = node.plan("card0")
    node.cards.attach("pod-1", node.pod().path)
    node.run("ip", "link", "add", "card0", "type", "bridge")
    problems = node.cards.bring_home(plan.uid)
    assert any("card0" in problem for problem in problems)
    assert len([link for link in node.ip("-d", "link") if link.get("linkinfo", {}).get("info_kind") == "veth"]) == 2


def test_a_namespace_that_the_runtime_removed_without_a_word_still_gives_the_card_back(node: TestNode) -> None:
    before = node.picture("card0")
    plan = node.plan("card0")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    pod.close()
    assert node.cards.bring_home(plan.uid) == []
    assert node.picture("card0") == before


def test_a_virtual_card_that_died_while_no_driver_ran_is_said_and_is_no_error(node: TestNode) -> None:
    plan = node.plan("card0")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    next_driver = Cards(node.host, node.store, node.cards.receipts)
    node.cards.close()
    pod.close()
    problems = next_driver.bring_home(plan.uid)
    assert len(problems) == 1 and "destroyed with the pod's namespace" in problems[0]


def test_after_a_reboot_cards_are_left_as_the_machine_set_them_up(node: TestNode) -> None:
    plan = node.plan("card0", boot="the boot before", netns="/gone")
    node.run("ip", "addr", "replace", "10.1.0.77/24", "dev", "card0")
    now = node.picture("card0")
    assert node.cards.bring_home(plan.uid) == []
    assert node.picture("card0") == now


def test_a_pod_that_starts_again_after_a_reboot_gets_its_card_and_gives_it_back_as_it_is_now(node: TestNode) -> None:
    plan = node.plan("card0", boot="the boot before", config=RICH)
    node.run("ip", "addr", "replace", "10.1.0.77/24", "dev", "card0")
    now = node.picture("card0")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    assert node.names(pod) == {"eth9"}
    assert node.cards.bring_home(plan.uid) == []
    assert node.picture("card0") == now


def test_settings_of_the_ip_layers_and_flags_come_back(node: TestNode) -> None:
    """The kernel forgets the settings with every move; the flags are the pod's doing."""
    for path in ("ipv4/conf/card0/rp_filter=2", "ipv4/conf/card0/arp_ignore=1", "ipv6/conf/card0/accept_ra=0"):
        node.run("sysctl", "-qw", f"net/{path}")
    before = node.picture("card0")
    plan = node.plan("card0", "card1", config={"interface": {"arpIgnore": 2, "forwarding": True}})
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    node.run("ip", "link", "set", "card0", "promisc", "on", "allmulticast", "on", "arp", "off", where=pod)
    assert node.cards.bring_home(plan.uid) == []
    assert node.picture("card0") == before


def test_forwarding_switched_on_for_the_node_meanwhile_stays_on(node: TestNode) -> None:
    plan = node.plan("card0")
    node.cards.attach("pod-1", node.pod().path)
    node.run("sysctl", "-qw", "net/ipv4/ip_forward=1")
    assert node.cards.bring_home(plan.uid) == []
    assert node.run("cat", "/proc/sys/net/ipv4/conf/card0/forwarding").strip() == "1"


def test_bringing_home_twice_is_harmless(node: TestNode) -> None:
    before = node.picture("card0")
    plan = node.plan("card0", config=RICH)
    node.cards.attach("pod-1", node.pod().path)
    node.cards.bring_home(plan.uid)
    node.cards.bring_home(plan.uid)
    assert node.picture("card0") == before


def test_the_receipt_is_gone_before_the_card(node: TestNode) -> None:
    plan = node.plan("card0")
    node.cards.attach("pod-1", node.pod().path)
    node.cards.bring_home(plan.uid)
    assert not node.cards.receipts.exists(plan.uid)


def test_a_pod_started_again_gets_its_card_again(node: TestNode) -> None:
    plan = node.plan("card0", config=RICH)
    node.cards.attach("pod-1", node.pod().path)
    node.cards.bring_home(plan.uid)
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    (link,) = node.ip("link", "show", "eth9", where=pod)
    assert (link["mtu"], link["address"]) == (1400, "02:00:00:00:00:99")


def test_a_card_comes_home_also_when_its_rdma_device_will_not(node: TestNode) -> None:
    def refuse(_: int) -> NetlinkSocket | None:
        raise NetlinkError(errno.EBUSY, "", "move the RDMA device mlx5_0")

    before = node.picture("card0")
    plan = node.plan("card0")
    node.cards.attach("pod-1", node.pod().path)
    with_rdma = msgspec.structs.replace(plan.devices[0], rdma=RdmaRecord(device="mlx5_0"))
    node.store.change(plan.uid, devices=(with_rdma,))
    stuck = Cards(node.host, node.store, node.cards.receipts, parts=PARTS.with_part(RdmaPart(refuse)))
    (problem,) = stuck.bring_home(plan.uid)
    assert problem.startswith("RDMA device mlx5_0 did not come home: cannot move")
    assert node.picture("card0") == before


def test_a_driver_that_may_open_nothing_more_does_not_take_the_pod_for_gone(node: TestNode) -> None:
    plan = node.plan("card0")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    node.cards.close()  # as after a restart: the namespace has to be opened
    with no_descriptors_left(), pytest.raises(CardsAway, match="Too many open files"):
        node.cards.bring_home(plan.uid)
    kept = node.store.get(plan.uid)
    assert kept is not None
    assert kept.netns == pod.path
    assert node.cards.bring_home(plan.uid) == []
    assert node.names() == {"card0", "card1"}


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """The limit is what is open now, with the one that the lock of the pod takes."""
    _, most = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open("/dev/null", os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_plan_whose_cards_are_home_names_no_namespace(node: TestNode) -> None:
    plan = node.plan("card0")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    node.cards.bring_home(plan.uid)
    kept = node.store.get(plan.uid)
    assert kept is not None
    assert kept.netns is None


def test_a_rule_that_is_gone_comes_back_with_the_table_it_leads_to(rich_node: TestNode) -> None:
    """Some network managers remove the rules of a table whose last route has left with a card."""
    rules = rich_node.ip("rule")
    plan = rich_node.plan("card0")
    rich_node.cards.attach("pod-1", rich_node.pod().path)
    rich_node.run("ip", "rule", "del", "from", "10.20.30.0/24", "table", "100", "priority", "500")
    assert rich_node.cards.bring_home(plan.uid) == []
    assert rich_node.ip("rule") == rules
