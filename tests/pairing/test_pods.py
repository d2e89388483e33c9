"""`dranet check pair` between namespaces, with real TCP: the fault that was made is named, and no other."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet.kernel.namespaces import Namespace, NamespaceError
from tests.pairing.fabric import Fabric, inside

SHORT = ("--seconds", "0.15")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Fabric]]:
    try:
        Namespace.create().close()
    except NamespaceError as error:
        pytest.skip(f"needs the right to make network namespaces: {error}")
    made: list[Fabric] = []

    def build(pods: int, rails: int, **more: Any) -> Fabric:
        made.append(Fabric(pods, rails, tmp_path, **more))
        return made[-1]

    yield build
    for fabric in made:
        fabric.close()


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON of the first pod, which must end by itself."""
    said, complaint = process.communicate(timeout=90)
    assert said, complaint
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert process.returncode == (0 if found["healthy"] else 1)
    return found


def check(fabric: Fabric, *more: str) -> dict[str, Any]:
    processes = [fabric.start(pod, *SHORT, "-o", "json", *more) for pod in fabric.pods]
    found = result(processes[0])
    for process in processes[1:]:
        said, complaint = process.communicate(timeout=30)
        assert (process.returncode, complaint) == (0, ""), said
    return found


def blamed(found: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(f["kind"], [(end["node"], end["card"]) for end in f["cards"]]) for f in found["findings"]]


def test_pods_whose_cards_are_alike_have_no_fault_and_every_figure(make: Callable[..., Fabric]) -> None:
    found = check(make(2, 3))
    assert found["findings"] == []
    assert len(found["paths"]) == 6 and len(found["totals"]) == 2
    for path in found["paths"]:
        seen = path["seen"]
        assert (seen["reached"], seen["path_mtu"], seen["lost"]) == (True, 1500, 0)
        assert 0.1 < seen["gbits"] < 0.3 and seen["rtt_us"] > 0
        assert path["expected"] == 9.15  # a veth says 10 Gbit/s; what plan takes for the wire of it
    assert all(0.3 < total["gbits"] < 0.9 for total in found["totals"])
    assert "cards are paired by interface name" in found["notes"]


def test_the_one_card_with_a_tenth_is_named_and_no_other(make: Callable[..., Fabric]) -> None:
    fabric = make(3, 2)
    fabric.limit(fabric.pods[1], "gpu1rdma0", "20mbit")
    found = check(fabric)
    assert blamed(found) == [("slow", [("n2", "gpu1rdma0")])]
    (finding,) = found["findings"]
    share = int(finding["words"].removeprefix("card gpu1rdma0 on n2 gives ").partition(" %")[0])
    assert 5 <= share <= 20


def test_of_two_pods_whose_rails_do_not_meet_both_ends_are_named_and_it_is_said_why(
    make: Callable[..., Fabric],
) -> None:
    fabric = make(2, 3)
    fabric.limit(fabric.pods[1], "gpu1rdma0", "20mbit")
    found = check(fabric)
    assert blamed(found) == [("slow", [("n1", "gpu1rdma0"), ("n2", "gpu1rdma0")])]
    assert "which of the two cannot be told" in found["findings"][0]["words"]


def test_of_two_pods_whose_rails_are_routed_the_slow_sender_is_named(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 2)
    fabric.limit(fabric.pods[1], "gpu1rdma0", "20mbit", both=False)
    route_between_rails(fabric)
    assert blamed(check(fabric)) == [("slow", [("n2", "gpu1rdma0")])]


def route_between_rails(fabric: Fabric) -> None:
    """The switch has an address on both rails and forwards; pods have a route by every card, as a driver would give."""
    fabric.on_switch("sysctl -qw net.ipv4.ip_forward=1")
    for rail in range(2):
        fabric.on_switch(f"ip addr add 10.{rail}.0.254/24 dev rail{rail}")
        for pod in fabric.pods:
            metric = f"via 10.{rail}.0.254 dev gpu{rail}rdma0 metric {100 + rail}"
            inside(pod.namespace, f"ip route add 10.0.0.0/8 {metric}")
            inside(pod.namespace, f"sysctl -qw net.ipv4.conf.gpu{rail}rdma0.rp_filter=0")


def test_a_path_narrower_than_the_cards_is_found_to_the_byte(make: Callable[..., Fabric]) -> None:
    fabric = make(3, 1, mtu=9000)
    fabric.on_switch(f"ip link set {fabric.port(fabric.pods[2], 'gpu0rdma0')} mtu 4200")
    found = check(fabric)
    assert blamed(found) == [("path-mtu", [("n3", "gpu0rdma0")])]
    assert "has MTU 9000, but packets of more than 4200 bytes are lost" in found["findings"][0]["words"]


def test_a_rail_whose_cable_is_pulled_is_named_and_the_others_are_measured(make: Callable[..., Fabric]) -> None:
    fabric = make(3, 2)
    fabric.on_switch(f"ip link set {fabric.port(fabric.pods[0], 'gpu1rdma0')} nomaster")
    found = check(fabric)
    assert blamed(found) == [("unreachable", [("n1", "gpu1rdma0")])]
    assert all(path["seen"]["gbits"] for path in found["paths"] if path["rail"] == "gpu0rdma0")


def test_swapped_cables_are_suspected(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 2)
    other = fabric.pods[1]
    for card, rail in (("gpu0rdma0", 1), ("gpu1rdma0", 0)):
        fabric.on_switch(f"ip link set {fabric.port(other, card)} master rail{rail}")
        inside(other.namespace, f"ip route add 10.{rail}.0.0/24 dev {card} metric 5")
    for rail in range(2):
        inside(fabric.pods[0].namespace, f"ip route add 10.{1 - rail}.0.0/24 dev gpu{rail}rdma0 metric 5")
    found = check(fabric)
    assert {kind for kind, _ in blamed(found)} == {"unreachable"}
    assert all("are cables swapped?" in finding["words"] for finding in found["findings"])


def test_a_pod_that_never_comes_is_named_and_the_others_are_measured(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 1)
    processes = [fabric.start(pod, *SHORT, "-o", "json", "--wait", "4", members=3) for pod in fabric.pods]
    found = result(processes[0])
    assert [f["words"] for f in found["findings"]] == ["pod 2 did not come within 4 s: does it run?"]
    assert len(found["paths"]) == 2


def test_a_pod_that_dies_while_it_measures_is_named_once_and_ends_nothing(make: Callable[..., Fabric]) -> None:
    fabric = make(3, 2)
    processes = [fabric.start(pod, "--seconds", "0.8", "-o", "json") for pod in fabric.pods]
    wait_for_traffic(fabric, 2)
    processes[2].kill()
    found = result(processes[0])
    assert [f["kind"] for f in found["findings"]] == ["absent"]
    assert found["findings"][0]["words"].startswith("n3 was lost: it closed its connection")
    assert {path["source"]["node"] for path in found["paths"]} == {"n1", "n2"}


def test_a_pod_that_is_stuck_is_named_after_ten_seconds(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 1)
    processes = [fabric.start(pod, "--seconds", "0.8", "-o", "json") for pod in fabric.pods]
    wait_for_traffic(fabric, 0)
    processes[1].send_signal(signal.SIGSTOP)
    found = result(processes[0])
    assert [f["words"] for f in found["findings"]] == ["n2 was lost: it did not answer within 10 s (it was to reach)"]


def wait_for_traffic(fabric: Fabric, number: int) -> None:
    """Till the card of this pod sends."""
    for _ in range(600):
        links = json.loads(inside(fabric.pods[number].namespace, "ip -j -s link show dev gpu0rdma0"))
        if links[0]["stats64"]["tx"]["bytes"] > 1_000_000:
            return
        subprocess.run(["sleep", "0.05"], check=True)
    raise AssertionError(f"pod {number} sent nothing within 30 s")


def test_a_pod_that_finds_no_first_one_says_so(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 1)
    process = fabric.start(fabric.pods[1], "--wait", "1")
    _, complaint = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "the first pod (10.99.0.1 port 7471) could not be reached within 1 s" in complaint
