"""Shares that hold: classes at the NIC, where no pod can lift them, and the NIC as before after the last one."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from typing import Any

import msgspec
import pytest

from dranet.core.device import Device
from dranet.core.errors import InvalidInput
from dranet.core.netconfig_parse import parse
from dranet.linux import links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.traffic import classifiers, htb
from dranet.node.claims.allocation import AllocatedDevice
from dranet.node.claims.planner import DeviceRequest
from dranet.node.records.plan import ClaimPlan

from .conftest import TestNode


@pytest.fixture
def sharing(node: TestNode) -> TestNode:
    """A node whose kernel can keep shares apart."""
    nic = node.link("nic1")
    try:
        node.host.route.request(htb.create(nic.index))
    except NetlinkError as error:
        pytest.skip(f"this kernel has no hierarchical token buckets: {error}")
    return node


def share(node: TestNode, number: int, bandwidth: str = "100M", total: str = "400M", **link: str) -> ClaimPlan:
    """A stored plan of pod `pod-N` with a macvlan and this share of nic0."""
    seen = msgspec.structs.replace(
        node.device("nic0"), device=Device(name="nic0", capacity={"dra.net/bandwidth": total})
    )
    asked = {"type": "Macvlan", "addresses": [f"10.1.0.{50 + number}/24"], "name": "net1", **link}
    config = parse({"interface": asked})
    given = AllocatedDevice("r", "node", "nic0", f"share-{number}", False, {"dra.net/bandwidth": bandwidth})
    others, request = tuple(node.store.plans.values()), DeviceRequest(given, seen, config)
    return node.put_plan([request], uid=f"uid-{number}", pod=f"pod-{number}", others=others)


def end(node: TestNode, plan: ClaimPlan) -> list[str]:
    problems = node.lifecycle.detach(plan.uid, stopping="")
    node.lifecycle.release(plan)
    return problems


def classes(node: TestNode) -> str:
    return node.run("tc", "class", "show", "dev", "nic0")


def discipline(node: TestNode) -> str:
    return node.run("tc", "qdisc", "show", "dev", "nic0", "root").strip()


def test_each_share_has_its_own_class_on_the_host(sharing: TestNode) -> None:
    pods = [sharing.pod(), sharing.pod()]
    for number, (pod, bandwidth) in enumerate(zip(pods, ("100M", "200M"), strict=True), 1):
        share(sharing, number, bandwidth)
        attached = sharing.lifecycle.attach(f"pod-{number}", pod.path)
        assert any("are guaranteed for sending" in c.message for c in attached[0].conditions)
    assert "rate 100Mbit ceil 400Mbit" in classes(sharing)
    assert "rate 200Mbit ceil 400Mbit" in classes(sharing)
    assert "htb" not in sharing.run("tc", "qdisc", "show", where=pods[0])


def test_ceiling_limits_the_share(sharing: TestNode) -> None:
    share(sharing, 1, "100M", bandwidthCeiling="150M")
    (attached,) = sharing.lifecycle.attach("pod-1", sharing.pod().path)
    assert "rate 100Mbit ceil 150Mbit" in classes(sharing)
    assert any("at most 150000000" in c.message for c in attached.conditions)


@pytest.mark.parametrize("ceiling", ["99M", "401M"])
def test_invalid_ceiling_is_refused(node: TestNode, ceiling: str) -> None:
    with pytest.raises(InvalidInput, match=r"interface\.bandwidthCeiling.*between the share \(100000000\)"):
        share(node, 1, "100M", bandwidthCeiling=ceiling)


def test_two_shares_of_a_claim_have_two_classes(sharing: TestNode) -> None:
    before = discipline(sharing)
    seen = msgspec.structs.replace(
        sharing.device("nic0"), device=Device(name="nic0", capacity={"dra.net/bandwidth": "400M"})
    )
    requests = [
        DeviceRequest(
            AllocatedDevice(f"r{n}", "node", "nic0", f"share-{n}", False, {"dra.net/bandwidth": f"{n}00M"}),
            seen,
            parse({"interface": {"type": "Macvlan", "addresses": [f"10.1.0.{50 + n}/24"], "name": f"net{n}"}}),
        )
        for n in (1, 2)
    ]
    plan = sharing.put_plan(requests)
    pod = sharing.pod()
    sharing.lifecycle.attach("pod-1", pod.path)
    assert sharing.names(pod) == {"net1", "net2"}
    assert "rate 100Mbit" in classes(sharing) and "rate 200Mbit" in classes(sharing)
    assert end(sharing, plan) == []
    assert discipline(sharing) == before


def test_detach_removes_only_its_own_class(sharing: TestNode) -> None:
    first, second = share(sharing, 1, "100M"), share(sharing, 2, "200M")
    for plan in (first, second):
        sharing.lifecycle.attach(plan.pod.uid, sharing.pod().path)
    assert end(sharing, first) == []
    assert "rate 100Mbit" not in classes(sharing)
    assert "rate 200Mbit ceil 400Mbit" in classes(sharing)


def test_last_share_restores_the_qdisc(sharing: TestNode) -> None:
    before = discipline(sharing)
    plans = [share(sharing, number) for number in (1, 2)]
    for plan in plans:
        sharing.lifecycle.attach(plan.pod.uid, sharing.pod().path)
    assert discipline(sharing).startswith("qdisc htb d7a0:")
    assert [end(sharing, plan) for plan in plans] == [[], []]
    assert discipline(sharing) == before


def test_qdisc_of_the_operator_is_restored(sharing: TestNode) -> None:
    sharing.run(
        "tc",
        "qdisc",
        "add",
        "dev",
        "nic0",
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
        sharing.lifecycle.attach(plan.pod.uid, sharing.pod().path)
    for plan in plans:
        assert end(sharing, plan) == []
    assert discipline(sharing) == before


def test_repeated_attach_changes_nothing(sharing: TestNode) -> None:
    share(sharing, 1)
    pod = sharing.pod()
    sharing.lifecycle.attach("pod-1", pod.path)
    before = classes(sharing), sharing.run("tc", "filter", "show", "dev", "nic0")
    sharing.lifecycle.attach("pod-1", pod.path)
    assert (classes(sharing), sharing.run("tc", "filter", "show", "dev", "nic0")) == before


def test_failed_attach_leaves_no_class(sharing: TestNode) -> None:
    before = discipline(sharing)
    share(sharing, 1)
    pod = sharing.pod()
    sharing.run("ip", "link", "add", "net1", "type", "veth", "peer", "name", "other", where=pod)
    with pytest.raises(Exception, match="already has an interface named net1"):
        sharing.lifecycle.attach("pod-1", pod.path)
    assert discipline(sharing) == before


_ON_THE_WIRE = 1514 / 1448
"""A full packet and the data in it: the NIC counts the one, we count the other."""


def sent(node: TestNode, pods: list[Namespace], seconds: float) -> list[float]:
    """Bits per second that each pod got through to the far end of the NIC, all sending TCP at once."""
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
                with contextlib.suppress(OSError):  # slow, or the other side has closed first
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
    """The other end of nic0 answers."""
    sharing.run("ip", "addr", "add", "10.1.0.99/24", "dev", "nic0", where=sharing.fabric)


def started(node: TestNode, *shares: str, total: str = "80M") -> list[Namespace]:
    pods = [node.pod() for _ in shares]
    for number, (pod, bandwidth) in enumerate(zip(pods, shares, strict=True), 1):
        share(node, number, bandwidth, total)
        node.lifecycle.attach(f"pod-{number}", pod.path)
    return pods


@pytest.mark.usefixtures("far_end")
def test_under_contention_each_gets_its_share(sharing: TestNode) -> None:
    """Small rates, so that not this machine but the NIC is the limit."""
    got = sent(sharing, started(sharing, "20M", "60M"), 4)
    assert got == pytest.approx([20e6, 60e6], rel=0.1)


@pytest.mark.usefixtures("far_end")
def test_single_share_may_use_the_whole_nic(sharing: TestNode) -> None:
    pods = started(sharing, "20M", "60M")
    assert sent(sharing, pods[:1], 3) == pytest.approx([80e6], rel=0.1)


@pytest.mark.usefixtures("far_end")
def test_forged_address_does_not_take_bandwidth(sharing: TestNode) -> None:
    pods = started(sharing, "20M", "60M")
    with NetlinkSocket(namespace_fd=pods[0].fd) as route:
        link = links.get_link(route, "net1")
        assert link is not None
        route.request(links.change(link.index, mac="02:66:66:66:66:66"))
    got: list[Any] = sent(sharing, pods, 4)
    assert got[1] >= 60e6 * 0.9


def packets(node: TestNode) -> dict[str, int]:
    """Packets by class, as tc counts them: those of the shares, and 2 for all others."""
    found = re.findall(
        r"class htb d7a0:(\w+).*\n Sent \d+ bytes (\d+) pkt", node.run("tc", "-s", "class", "show", "dev", "nic0")
    )
    return {name: int(count) for name, count in found}


def forge(pod: Namespace, source: str, count: int = 200, priority: int = 0) -> None:
    """Raw frames with a source MAC and a socket priority, as a pod with CAP_NET_RAW can send them."""
    with pod.run(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) as raw:
        if priority:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)
        pod.run(lambda: raw.bind(("net1", 0x88B5)))
        frame = bytes.fromhex("ffffffffffff" + source.replace(":", "") + "88b5") + bytes(100)
        for _ in range(count):
            raw.send(frame)


needs_cookies = pytest.mark.skipif(not classifiers.has_cookies(), reason="this kernel gives classifiers no cookie")


@needs_cookies
def test_forged_mac_of_a_neighbour_counts_for_its_sender(sharing: TestNode) -> None:
    pods = started(sharing, "20M", "60M")
    victim = sharing.ip("link", "show", "net1", where=pods[1])[0]["address"]
    before = packets(sharing)
    forge(pods[0], victim)
    spent = {name: count - before[name] for name, count in packets(sharing).items()}
    assert spent["10"] >= 200
    assert spent["11"] < 200


@pytest.mark.parametrize("priority", [htb.class_id(0x11), htb.HANDLE], ids=["class of a neighbour", "not limited"])
def test_priority_of_a_socket_chooses_no_class(sharing: TestNode, priority: int) -> None:
    pods = started(sharing, "20M", "60M")
    own = sharing.ip("link", "show", "net1", where=pods[0])[0]["address"]
    before = packets(sharing)
    forge(pods[0], own, priority=priority - (1 << 32))
    spent = {name: count - before[name] for name, count in packets(sharing).items()}
    assert spent["10"] >= 200
    assert spent["11"] < 200


@needs_cookies
def test_pod_that_renames_and_renumbers_its_child_stays_in_its_class(sharing: TestNode) -> None:
    (pod,) = started(sharing, "20M")
    sharing.run("ip", "link", "set", "net1", "address", "02:66:66:66:66:66", where=pod)
    before = packets(sharing)
    forge(pod, "02:77:77:77:77:77")
    assert packets(sharing)["10"] - before["10"] >= 200


def test_programs_are_removed_with_the_last_share(sharing: TestNode) -> None:
    plans = [share(sharing, number) for number in (1, 2)]
    for plan in plans:
        sharing.lifecycle.attach(plan.pod.uid, sharing.pod().path)
    assert "dranet-0" in sharing.run("tc", "filter", "show", "dev", "nic0", "egress")
    for plan in plans:
        assert end(sharing, plan) == []
    assert "clsact" not in sharing.run("tc", "qdisc", "show", "dev", "nic0")


def test_programs_of_the_operator_stay(sharing: TestNode) -> None:
    sharing.run("tc", "qdisc", "add", "dev", "nic0", "clsact")
    sharing.run("tc", "filter", "add", "dev", "nic0", "egress", "u32", "match", "u32", "0", "0", "classid", "1:1")
    before = sharing.run("tc", "filter", "show", "dev", "nic0", "egress")
    plan = share(sharing, 1)
    sharing.lifecycle.attach("pod-1", sharing.pod().path)
    assert end(sharing, plan) == []
    assert sharing.run("tc", "filter", "show", "dev", "nic0", "egress") == before
