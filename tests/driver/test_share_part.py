"""Shares that hold: classes at the card, where no pod can lift them, and the card as before after the last one."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

import msgspec
import pytest

from dranet.driver.claims.allotment import Allotted
from dranet.driver.claims.planner import Wish
from dranet.driver.records.plan import ClaimPlan, PodRef
from dranet.kernel import links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkError, NetlinkSocket
from dranet.kernel.traffic import htb
from dranet.model.device import Device
from dranet.model.errors import InvalidInput
from dranet.model.netconfig_parse import parse

from .conftest import TestNode


@pytest.fixture
def sharing(node: TestNode) -> TestNode:
    """A node whose kernel can keep shares apart."""
    card = links.get_link(node.host.route, "card1")
    assert card is not None
    try:
        node.host.route.request(htb.create(card.index))
    except NetlinkError as error:
        pytest.skip(f"this kernel has no hierarchical token buckets: {error}")
    return node


def share(node: TestNode, number: int, bandwidth: str = "100M", total: str = "400M", **link: str) -> ClaimPlan:
    """A stored plan of pod `pod-N` with a macvlan and this share of card0."""
    seen = msgspec.structs.replace(
        node.device("card0"), device=Device(name="card0", capacity={"dra.net/bandwidth": total})
    )
    asked = {"type": "Macvlan", "addresses": [f"10.1.0.{50 + number}/24"], "name": "net1", **link}
    config = parse({"interface": asked})
    given = Allotted("r", "node", "card0", f"share-{number}", False, {"dra.net/bandwidth": bandwidth})
    others = [device for plan in node.store.plans.values() for device in plan.devices]
    devices = tuple(node.planner.plan([Wish(given, seen, config)], others=others))
    user = PodRef(uid=f"pod-{number}", name=f"pod-{number}", namespace="default")
    plan = ClaimPlan(uid=f"uid-{number}", namespace="default", name=f"claim-{number}", pod=user, devices=devices)
    node.store.put(plan)
    return plan


def end(node: TestNode, plan: ClaimPlan) -> list[str]:
    problems = node.cards.bring_home(plan.uid, stopping="")
    node.cards.forget(plan)
    return problems


def classes(node: TestNode) -> str:
    return node.run("tc", "class", "show", "dev", "card0")


def discipline(node: TestNode) -> str:
    return node.run("tc", "qdisc", "show", "dev", "card0", "root").strip()


def test_each_share_has_a_class_of_its_own_and_the_pod_sees_none_of_it(sharing: TestNode) -> None:
    pods = [sharing.pod(), sharing.pod()]
    for number, (pod, bandwidth) in enumerate(zip(pods, ("100M", "200M"), strict=True), 1):
        share(sharing, number, bandwidth)
        attached = sharing.cards.attach(f"pod-{number}", pod.path)
        assert any("are kept for what it sends" in c.message for c in attached[0].conditions)
    assert "rate 100Mbit ceil 400Mbit" in classes(sharing)
    assert "rate 200Mbit ceil 400Mbit" in classes(sharing)
    assert "htb" not in sharing.run("tc", "qdisc", "show", where=pods[0])


def test_a_ceiling_is_the_most_a_share_may_send(sharing: TestNode) -> None:
    share(sharing, 1, "100M", bandwidthCeiling="150M")
    (attached,) = sharing.cards.attach("pod-1", sharing.pod().path)
    assert "rate 100Mbit ceil 150Mbit" in classes(sharing)
    assert any("at most 150000000" in c.message for c in attached.conditions)


@pytest.mark.parametrize("ceiling", ["99M", "401M"])
def test_a_ceiling_below_the_share_or_above_the_card_is_refused(node: TestNode, ceiling: str) -> None:
    with pytest.raises(InvalidInput, match=r"interface\.bandwidthCeiling.*between the share, 100000000"):
        share(node, 1, "100M", bandwidthCeiling=ceiling)


def test_two_shares_in_one_claim_have_two_classes_and_leave_the_card_as_it_was(sharing: TestNode) -> None:
    before = discipline(sharing)
    seen = msgspec.structs.replace(
        sharing.device("card0"), device=Device(name="card0", capacity={"dra.net/bandwidth": "400M"})
    )
    wishes = [
        Wish(
            Allotted(f"r{n}", "node", "card0", f"share-{n}", False, {"dra.net/bandwidth": f"{n}00M"}),
            seen,
            parse({"interface": {"type": "Macvlan", "addresses": [f"10.1.0.{50 + n}/24"], "name": f"net{n}"}}),
        )
        for n in (1, 2)
    ]
    user = PodRef(uid="pod-1", name="pod-1", namespace="default")
    devices = tuple(sharing.planner.plan(wishes))
    plan = ClaimPlan(uid="uid-1", namespace="default", name="claim-1", pod=user, devices=devices)
    sharing.store.put(plan)
    pod = sharing.pod()
    sharing.cards.attach("pod-1", pod.path)
    assert sharing.names(pod) == {"net1", "net2"}
    assert "rate 100Mbit" in classes(sharing) and "rate 200Mbit" in classes(sharing)
    assert end(sharing, plan) == []
    assert discipline(sharing) == before


def test_a_share_that_leaves_takes_only_its_own_class(sharing: TestNode) -> None:
    first, second = share(sharing, 1, "100M"), share(sharing, 2, "200M")
    for plan in (first, second):
        sharing.cards.attach(plan.pod.uid, sharing.pod().path)
    assert end(sharing, first) == []
    assert "rate 100Mbit" not in classes(sharing)
    assert "rate 200Mbit ceil 400Mbit" in classes(sharing)


def test_the_card_has_its_own_discipline_again_after_the_last_share(sharing: TestNode) -> None:
    before = discipline(sharing)
    plans = [share(sharing, number) for number in (1, 2)]
    for plan in plans:
        sharing.cards.attach(plan.pod.uid, sharing.pod().path)
    assert discipline(sharing).startswith("qdisc htb d7a0:")
    assert [end(sharing, plan) for plan in plans] == [[], []]
    assert discipline(sharing) == before


def test_what_an_operator_had_put_there_is_put_back(sharing: TestNode) -> None:
    sharing.run(
        "tc",
        "qdisc",
        "add",
        "dev",
        "card0",
        "root",
        "handle",
        "9:",
        "tbf",
        "rate",
        "1gbit",
        "burst",
        "1m",
        "latency",
        "50ms",
    )
    before = discipline(sharing)
    plans = [share(sharing, number) for number in (1, 2)]
    for plan in plans:
        sharing.cards.attach(plan.pod.uid, sharing.pod().path)
    for plan in plans:
        assert end(sharing, plan) == []
    assert discipline(sharing) == before


def test_attach_repeated_changes_nothing(sharing: TestNode) -> None:
    share(sharing, 1)
    pod = sharing.pod()
    sharing.cards.attach("pod-1", pod.path)
    before = classes(sharing), sharing.run("tc", "filter", "show", "dev", "card0")
    sharing.cards.attach("pod-1", pod.path)
    assert (classes(sharing), sharing.run("tc", "filter", "show", "dev", "card0")) == before


def test_a_failed_attach_leaves_no_class(sharing: TestNode) -> None:
    before = discipline(sharing)
    share(sharing, 1)
    pod = sharing.pod()
    sharing.run("ip", "link", "add", "net1", "type", "veth", "peer", "name", "other", where=pod)
    with pytest.raises(Exception, match="already has an interface named net1"):
        sharing.cards.attach("pod-1", pod.path)
    assert discipline(sharing) == before


_ON_THE_WIRE = 1514 / 1448
"""A full packet and the data in it: the card counts the one, we count the other."""


def sent(node: TestNode, pods: list[Namespace], seconds: float) -> list[float]:
    """Bits per second that each pod got through to the far end of the card, all sending TCP at once."""
    far = node.fabric.run(lambda: socket.create_server(("10.1.0.99", 7000), backlog=16))
    received: dict[str, int] = {}
    ended = threading.Event()

    def take(connection: socket.socket, who: str) -> None:
        with connection:
            connection.settimeout(1)
            while not ended.is_set():
                try:
                    received[who] = received.get(who, 0) + len(connection.recv(1 << 16))
                except TimeoutError:
                    continue

    def give(pod: Namespace) -> None:
        with pod.run(lambda: socket.create_connection(("10.1.0.99", 7000), timeout=10)) as connection:
            connection.settimeout(1)
            while not ended.is_set():
                with contextlib.suppress(OSError):  # slow, or the other side was told first that it is over
                    connection.send(bytes(1 << 16))

    with far:
        threads = [threading.Thread(target=give, args=(pod,)) for pod in pods]
        for thread in threads:
            thread.start()
        for _ in pods:
            connection, (address, _) = far.accept()
            threads.append(threading.Thread(target=take, args=(connection, address)))
            threads[-1].start()
        time.sleep(seconds / 2)  # until TCP has found its speed
        start, began = dict(received), time.monotonic()
        time.sleep(seconds)
        spent, now = time.monotonic() - began, dict(received)
        ended.set()
        for thread in threads:
            thread.join()
    return [(now[who] - start.get(who, 0)) * 8 * _ON_THE_WIRE / spent for who in sorted(now)]


@pytest.fixture
def far_end(sharing: TestNode) -> None:
    """The other end of card0 answers."""
    sharing.run("ip", "addr", "add", "10.1.0.99/24", "dev", "card0", where=sharing.fabric)


def started(node: TestNode, *shares: str, total: str = "80M") -> list[Namespace]:
    pods = [node.pod() for _ in shares]
    for number, (pod, bandwidth) in enumerate(zip(pods, shares, strict=True), 1):
        share(node, number, bandwidth, total)
        node.cards.attach(f"pod-{number}", pod.path)
    return pods


@pytest.mark.usefixtures("far_end")
def test_under_contention_each_gets_its_share(sharing: TestNode) -> None:
    """Small rates, so that not this machine but the card is the limit."""
    got = sent(sharing, started(sharing, "20M", "60M"), 4)
    assert got == pytest.approx([20e6, 60e6], rel=0.1)


@pytest.mark.usefixtures("far_end")
def test_alone_a_share_may_use_the_whole_card(sharing: TestNode) -> None:
    pods = started(sharing, "20M", "60M")
    assert sent(sharing, pods[:1], 3) == pytest.approx([80e6], rel=0.1)


@pytest.mark.usefixtures("far_end")
def test_a_pod_that_forges_its_address_does_not_take_from_others(sharing: TestNode) -> None:
    pods = started(sharing, "20M", "60M")
    with NetlinkSocket(namespace_fd=pods[0].fd) as route:
        link = links.get_link(route, "net1")
        assert link is not None
        route.request(links.change(link.index, mac="02:66:66:66:66:66"))
    got: list[Any] = sent(sharing, pods, 4)
    assert got[1] >= 60e6 * 0.9
