"""A card's way into a pod, on the real kernel."""

from __future__ import annotations

import errno

import pytest

from dranet.driver.parts.base import AttachError
from dranet.model.errors import DranetError

from .conftest import TestNode


def test_a_card_arrives_with_the_hosts_name_and_addresses(node: TestNode) -> None:
    node.plan("card0")
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    (found,) = node.ip("addr", "show", "card0", where=pod)
    assert {a["local"] for a in found["addr_info"] if a["scope"] == "global"} == {"10.1.0.1", "fd00:1::1"}
    assert "UP" in found["flags"]
    assert node.names() == {"card1"}


def test_every_step_of_a_card_is_counted_when_it_begins_and_ends(node: TestNode) -> None:
    moves, counted = node.cards.moves, []
    plan = node.plan("card0")
    node.cards.ready(plan)
    counted.append(moves.count("card0"))
    node.cards.attach("pod-1", node.pod().path)
    counted.append(moves.count("card0"))
    node.cards.bring_home(plan.uid)
    assert [*counted, moves.count("card0"), moves.count("card1")] == [2, 4, 6, 0]


def test_a_card_that_could_not_be_had_is_not_on_its_way_for_ever(node: TestNode) -> None:
    node.plan("card0", config={"interface": {"name": "lo"}})
    with pytest.raises(AttachError):
        node.cards.attach("pod-1", node.pod().path)
    assert node.cards.moves.count("card0") % 2 == 0


def test_everything_asked_is_done(node: TestNode) -> None:
    config = {
        "interface": {
            "name": "dranet0",
            "addresses": ["169.254.169.14/24"],
            "mtu": 4321,
            "hardwareAddr": "00:11:22:33:44:55",
            "gsoMaxSize": 60000,
            "groMaxSize": 61000,
            "arpIgnore": 1,
            "arpAnnounce": 2,
            "forwarding": True,
        },
        "routes": [
            {"destination": "10.50.0.0/16", "gateway": "169.254.169.1"},
            {"destination": "10.60.0.0/16", "scope": 253},
            {"destination": "10.70.0.0/16", "gateway": "169.254.169.1", "table": 100},
        ],
        "rules": [{"priority": 500, "source": "10.20.30.0/24", "table": 100}],
        "neighbors": [{"destination": "169.254.169.9", "hardwareAddr": "00:aa:bb:cc:dd:ee"}],
        "ethtool": {"features": {"tcp-segmentation-offload": False, "gro": False}},
    }
    node.plan("card0", config=config)
    pod = node.pod()
    node.cards.attach("pod-1", pod.path)
    (link,) = node.ip("-d", "link", "show", "dranet0", where=pod)
    assert (link["mtu"], link["address"]) == (4321, "00:11:22:33:44:55")
    assert (link["gso_max_size"], link["gro_max_size"]) == (60000, 61000)
    (found,) = node.ip("addr", "show", "dranet0", where=pod)
    assert [a["local"] for a in found["addr_info"] if a["scope"] == "global"] == ["169.254.169.14"]
    routes = {r["dst"]: r for r in node.ip("route", where=pod)}
    assert routes["10.50.0.0/16"]["gateway"] == "169.254.169.1"
    assert routes["10.60.0.0/16"]["scope"] == "link"
    assert [r["dst"] for r in node.ip("route", "show", "table", "100", where=pod)] == ["10.70.0.0/16"]
    assert any(r["priority"] == 500 and r["src"] == "10.20.30.0" for r in node.ip("rule", where=pod))
    assert node.ip("neigh", where=pod)[0]["lladdr"] == "00:aa:bb:cc:dd:ee"
    settings = ("arp_ignore", "arp_announce", "forwarding")
    read = [node.run("cat", f"/proc/sys/net/ipv4/conf/dranet0/{key}", where=pod).strip() for key in settings]
    assert read == ["1", "2", "1"]


def test_the_receipt_appears_only_when_all_cards_are_in(node: TestNode) -> None:
    plan = node.plan("card0", "card1")
    assert not node.cards.receipts.exists(plan.uid)
    node.cards.attach("pod-1", node.pod().path)
    assert node.cards.receipts.exists(plan.uid)


def test_a_failing_card_takes_the_others_back_and_leaves_no_receipt(node: TestNode) -> None:
    before = {name: node.picture(name) for name in ("card0", "card1")}
    plan = node.plan("card0", "card1", config={"routes": [{"destination": "10.9.0.0/16", "gateway": "192.0.2.1"}]})
    pod = node.pod()
    with pytest.raises(AttachError, match=r"10\.9\.0\.0/16 via 192\.0\.2\.1"):
        node.cards.attach("pod-1", pod.path)
    assert node.names(pod) == set()
    assert {name: node.picture(name) for name in before} == before
    assert not node.cards.receipts.exists(plan.uid)


def test_a_name_that_the_pod_has_already_is_refused_in_words(node: TestNode) -> None:
    node.plan("card0", config={"interface": {"name": "lo"}})
    with pytest.raises(AttachError, match="the pod already has an interface named lo"):
        node.cards.attach("pod-1", node.pod().path)


def test_attach_twice_changes_nothing(node: TestNode) -> None:
    node.plan("card0", "card1")
    pod = node.pod()
    first = node.cards.attach("pod-1", pod.path)
    second = node.cards.attach("pod-1", pod.path)
    assert [(a.device.name, a.link and a.link.name) for a in first] == [
        (a.device.name, a.link and a.link.name) for a in second
    ]


def test_a_sandbox_made_anew_gets_the_card_out_of_the_old_one(node: TestNode) -> None:
    """A runtime that crashed while it started a sandbox makes another, and never says that the first has ended."""
    before = node.picture("card0")
    plan = node.plan("card0")
    old, anew = node.pod(), node.pod()
    node.cards.attach("pod-1", old.path)
    node.cards.attach("pod-1", anew.path)
    assert (node.names(old), node.names(anew)) == (set(), {"card0"})
    assert node.cards.receipts.exists(plan.uid)
    assert node.cards.bring_home(plan.uid, stopping="") == []
    assert node.picture("card0") == before


def test_a_receipt_that_cannot_be_written_takes_the_cards_back(node: TestNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = node.picture("card0")
    node.plan("card0")
    pod = node.pod()
    monkeypatch.setattr(node.cards.receipts, "write", no_space)
    with pytest.raises(OSError, match="No space left"):
        node.cards.attach("pod-1", pod.path)
    assert node.names(pod) == set()
    assert node.picture("card0") == before


def test_cards_come_in_the_order_of_the_claim(node: TestNode) -> None:
    node.plan("card1", "card0")
    attached = node.cards.attach("pod-1", node.pod().path)
    assert [a.device.name for a in attached] == ["card1", "card0"]


def test_a_namespace_that_is_gone_fails_the_attach_and_keeps_the_card(node: TestNode) -> None:
    node.plan("card0")
    with pytest.raises(DranetError, match="cannot open the network namespace"):
        node.cards.attach("pod-1", str(node.folder / "nowhere"))
    assert "card0" in node.names()


def test_a_request_nobody_waits_for_any_more_moves_nothing(node: TestNode) -> None:
    before = node.picture("card0")
    node.plan("card0")
    with pytest.raises(AttachError, match="given up"):
        node.cards.attach("pod-1", node.pod().path, given_up=lambda: True)
    assert node.picture("card0") == before


def test_an_attach_past_its_budget_is_taken_back(node: TestNode) -> None:
    node.plan("card0")
    with pytest.raises(AttachError, match="longer than"):
        node.cards.attach("pod-1", node.pod().path, seconds=-1)
    assert "card0" in node.names()


def test_a_route_that_the_pod_has_by_another_interface_is_said_and_not_replaced(node: TestNode) -> None:
    config = {"routes": [{"destination": "0.0.0.0/0", "gateway": "10.1.0.254"}]}
    node.plan("card0", config=config)
    pod = node.pod()
    node.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "p0", where=pod)
    node.run("ip", "addr", "add", "10.200.0.2/24", "dev", "eth0", where=pod)
    node.run("ip", "link", "set", "eth0", "up", where=pod)
    node.run("ip", "link", "set", "p0", "up", where=pod)
    node.run("ip", "route", "add", "default", "via", "10.200.0.1", where=pod)
    (attached,) = node.cards.attach("pod-1", pod.path)
    said = {condition.type: condition for condition in attached.conditions}["NetworkReady"]
    assert said.reason == "RoutesTaken"
    assert "0.0.0.0/0" in said.message
    assert [r["dev"] for r in node.ip("route", "show", "default", where=pod)] == ["eth0"]


def test_a_repair_does_not_take_its_own_routes_for_somebody_elses(node: TestNode) -> None:
    node.plan("card0", config={"routes": [{"destination": "0.0.0.0/0", "gateway": "10.1.0.254"}]})
    pod = node.pod()
    for _ in range(2):
        (attached,) = node.cards.attach("pod-1", pod.path)
        assert [c.reason for c in attached.conditions] == ["NetworkDeviceReady", "NetworkReady"]


def test_both_ends_of_a_pair_are_cards_of_two_pods_and_come_home(node: TestNode) -> None:
    node.run("ip", "link", "add", "left0", "type", "veth", "peer", "name", "right0")
    for name in ("left0", "right0"):
        node.run("ip", "link", "set", name, "up")
    before = {name: node.picture(name) for name in ("left0", "right0")}
    plans = [
        node.plan(name, uid=f"uid-{name}", pod_uid=f"pod-{name}", config={"interface": {"name": "eth1"}})
        for name in before
    ]
    pods = {plan.pod.uid: node.pod() for plan in plans}
    for plan in plans:
        node.cards.ready(plan)
    for plan in plans:
        node.cards.attach(plan.pod.uid, pods[plan.pod.uid].path)
    assert [node.names(pod) for pod in pods.values()] == [{"eth1"}, {"eth1"}]
    for plan in plans:
        assert node.cards.bring_home(plan.uid, stopping="") == []
    assert {name: node.picture(name) for name in before} == before
