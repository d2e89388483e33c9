"""`dranet check pair` between network namespaces: it reports exactly the injected fault."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dranet.linux.namespaces import Namespace, NamespaceError
from dranet.testing.waiting import wait_until
from tests.advise.preflight.fabric import Fabric, inside

SHORT = ("--seconds", "0.15")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Fabric]]:
    try:
        Namespace.create().close()
    except NamespaceError as error:
        pytest.skip(f"needs the right to create network namespaces: {error}")
    made: list[Fabric] = []

    def build(pods: int, rails: int, **more: Any) -> Fabric:
        made.append(Fabric(pods, rails, tmp_path, **more))
        return made[-1]

    yield build
    for fabric in made:
        fabric.close()


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The JSON of the pod of rank 0, after it exits."""
    output, errors = process.communicate(timeout=90)
    assert output, errors
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert process.returncode == (0 if found["healthy"] else 1)
    return found


def check(fabric: Fabric, *more: str) -> dict[str, Any]:
    processes = [fabric.start(pod, *SHORT, "-o", "json", *more) for pod in fabric.pods]
    found = result(processes[0])
    for process in processes[1:]:
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, ""), output
    return found


def faults(found: dict[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    return [(f["kind"], [(end["node"], end["nic"]) for end in f["nics"]]) for f in found["findings"]]


def test_measures_everything_and_finds_no_fault_between_equal_nics(make: Callable[..., Fabric]) -> None:
    found = check(make(2, 3))
    assert found["findings"] == []
    assert len(found["paths"]) == 6 and len(found["totals"]) == 2
    for path in found["paths"]:
        result = path["result"]
        assert (result["reached"], result["path_mtu"], result["lost"]) == (True, 1500, 0)
        assert 0 < result["gbits"] < 0.3 and result["rtt_us"] > 0  # shaped to 0.2; a busy machine sends less
        assert path["expected"] == 9.25  # a veth reports 10 Gbit/s; times the network efficiency of the plan
    assert all(0 < total["gbits"] < 0.9 for total in found["totals"])
    assert "NICs are paired by interface name" in found["notes"]


def test_names_only_the_slow_nic(make: Callable[..., Fabric]) -> None:
    fabric = make(3, 2)
    fabric.limit(fabric.pods[1], "gpu1rdma0", "20mbit")
    found = check(fabric)
    assert faults(found) == [("slow", [("n2", "gpu1rdma0")])]
    (finding,) = found["findings"]
    share = int(finding["message"].removeprefix("NIC gpu1rdma0 on n2 reaches ").partition(" %")[0])
    assert 5 <= share <= 20


def test_two_pods_on_isolated_rails_leave_both_ends_as_suspects(
    make: Callable[..., Fabric],
) -> None:
    fabric = make(2, 3)
    fabric.limit(fabric.pods[1], "gpu1rdma0", "20mbit")
    found = check(fabric)
    assert faults(found) == [("slow", [("n1", "gpu1rdma0"), ("n2", "gpu1rdma0")])]
    assert "cannot tell which of the two" in found["findings"][0]["message"]


def test_two_pods_on_routed_rails_name_the_slow_sender(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 2)
    fabric.limit(fabric.pods[1], "gpu1rdma0", "20mbit", both=False)
    route_between_rails(fabric)
    assert faults(check(fabric)) == [("slow", [("n2", "gpu1rdma0")])]


def route_between_rails(fabric: Fabric) -> None:
    """Let the switch forward between the rails, and add a route through every NIC in the pods."""
    fabric.on_switch("sysctl -qw net.ipv4.ip_forward=1")
    for rail in range(2):
        fabric.on_switch(f"ip addr add 10.{rail}.0.254/24 dev rail{rail}")
        for pod in fabric.pods:
            metric = f"via 10.{rail}.0.254 dev gpu{rail}rdma0 metric {100 + rail}"
            inside(pod.namespace, f"ip route add 10.0.0.0/8 {metric}")
            inside(pod.namespace, f"sysctl -qw net.ipv4.conf.gpu{rail}rdma0.rp_filter=0")


def test_finds_a_small_path_mtu_to_the_byte(make: Callable[..., Fabric]) -> None:
    fabric = make(3, 1, mtu=9000)
    fabric.on_switch(f"ip link set {fabric.port(fabric.pods[2], 'gpu0rdma0')} mtu 4200")
    found = check(fabric)
    assert faults(found) == [("path-mtu", [("n3", "gpu0rdma0")])]
    assert "has MTU 9000, but packets larger than 4200 bytes are dropped" in found["findings"][0]["message"]


def test_names_a_disconnected_nic_and_measures_the_others(make: Callable[..., Fabric]) -> None:
    fabric = make(3, 2)
    fabric.on_switch(f"ip link set {fabric.port(fabric.pods[0], 'gpu1rdma0')} nomaster")
    found = check(fabric)
    assert faults(found) == [("unreachable", [("n1", "gpu1rdma0")])]
    assert all(path["result"]["gbits"] for path in found["paths"] if path["rail"] == "gpu0rdma0")


def test_suspects_swapped_cables(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 2)
    other = fabric.pods[1]
    for nic, rail in (("gpu0rdma0", 1), ("gpu1rdma0", 0)):
        fabric.on_switch(f"ip link set {fabric.port(other, nic)} master rail{rail}")
        inside(other.namespace, f"ip route add 10.{rail}.0.0/24 dev {nic} metric 5")
    for rail in range(2):
        inside(fabric.pods[0].namespace, f"ip route add 10.{1 - rail}.0.0/24 dev gpu{rail}rdma0 metric 5")
    found = check(fabric)
    assert {kind for kind, _ in faults(found)} == {"unreachable"}
    assert all("check for swapped cables" in finding["message"] for finding in found["findings"])


def test_names_a_pod_that_never_connects_and_measures_the_others(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 1)
    processes = [fabric.start(pod, *SHORT, "-o", "json", "--wait", "4", members=3) for pod in fabric.pods]
    found = result(processes[0])
    assert [f["message"] for f in found["findings"]] == ["pod 2 did not connect within 4 s: check that it is running"]
    assert len(found["paths"]) == 2


def test_names_a_killed_pod_once_and_continues(make: Callable[..., Fabric]) -> None:
    fabric = make(3, 2)
    processes = [fabric.start(pod, "--seconds", "0.8", "-o", "json") for pod in fabric.pods]
    wait_for_traffic(fabric, 2)
    processes[2].kill()
    found = result(processes[0])
    assert [f["kind"] for f in found["findings"]] == ["absent"]
    assert found["findings"][0]["message"].startswith("connection to n3 lost: connection closed")
    assert {path["source"]["node"] for path in found["paths"]} == {"n1", "n2"}


def test_names_a_stuck_pod_after_ten_seconds(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 1)
    processes = [fabric.start(pod, "--seconds", "0.8", "-o", "json") for pod in fabric.pods]
    wait_for_traffic(fabric, 0)
    processes[1].send_signal(signal.SIGSTOP)
    found = result(processes[0])
    assert [f["message"] for f in found["findings"]] == ["connection to n2 lost: no reply within 10 s (task reach)"]


def wait_for_traffic(fabric: Fabric, number: int) -> None:
    """Wait until the NIC of this pod sends."""

    def sent() -> bool:
        links = json.loads(inside(fabric.pods[number].namespace, "ip -j -s link show dev gpu0rdma0"))
        return int(links[0]["stats64"]["tx"]["bytes"]) > 1_000_000

    wait_until(sent, f"pod {number} to send")


def test_reports_an_unreachable_coordinator(make: Callable[..., Fabric]) -> None:
    fabric = make(2, 1)
    process = fabric.start(fabric.pods[1], "--wait", "1")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "cannot connect to the coordinator (10.99.0.1 port 7471) within 1 s" in errors
