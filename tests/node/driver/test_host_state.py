"""What administrators and routing daemons configure on a NIC is there again after a pod, as `ip -j` shows it.

Nothing here is read with the driver's own code.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from dranet.core.errors import DranetError

from .conftest import TestNode


def with_nexthops(node: TestNode) -> None:
    """As FRR installs routes."""
    node.run("ip", "nexthop", "add", "id", "10", "via", "10.1.0.254", "dev", "nic0", "proto", "zebra")
    node.run("ip", "nexthop", "add", "id", "11", "dev", "nic0")
    node.run("ip", "nexthop", "add", "id", "12", "via", "fd00:1::fe", "dev", "nic0")
    node.run("ip", "route", "add", "10.9.0.0/16", "nhid", "10", "proto", "bgp")
    node.run("ip", "route", "add", "10.8.0.0/16", "nhid", "11")
    node.run("ip", "-6", "route", "add", "fd00:9::/64", "nhid", "12")


def routing(node: TestNode) -> list[Any]:
    """Without what the kernel adds itself, some of it late, and without the order in a group."""
    objects = node.ip("-d", "nexthop")
    for one in objects:
        one.get("group", []).sort(key=lambda member: member["id"])
    routes = [*node.ip("-d", "route", "show", "table", "all"), *node.ip("-d", "-6", "route", "show", "table", "all")]
    made = [route for route in routes if route["protocol"] != "kernel"]
    for route in made:
        route.get("nh_info", {}).get("group", []).sort(key=lambda member: member["id"])
        route.get("nexthops", []).sort(key=lambda hop: hop["gateway"])
    assert objects and made
    return [objects, sorted(map(str, made))]


@pytest.mark.parametrize("compatible", ["1", "0"])
def test_routes_by_nexthop_objects_work_in_the_pod_and_return(node: TestNode, compatible: str) -> None:
    with_nexthops(node)
    node.run("sysctl", "-qw", f"net.ipv4.nexthop_compat_mode={compatible}")
    node.picture("nic0")
    before = routing(node)
    pod = node.attach("nic0")
    routes = {route["dst"]: route for route in [*node.ip("route", where=pod), *node.ip("-6", "route", where=pod)]}
    assert (routes["10.9.0.0/16"]["gateway"], routes["10.9.0.0/16"]["dev"]) == ("10.1.0.254", "nic0")
    assert routes["10.8.0.0/16"]["dev"] == "nic0"
    assert routes["fd00:9::/64"]["gateway"] == "fd00:1::fe"
    assert node.lifecycle.detach("uid-1") == []
    node.picture("nic0")
    assert routing(node) == before


def with_group(node: TestNode) -> None:
    node.run("ip", "nexthop", "add", "id", "10", "via", "10.1.0.254", "dev", "nic0")
    node.run("ip", "nexthop", "add", "id", "20", "via", "10.2.0.254", "dev", "nic1")
    node.run("ip", "nexthop", "add", "id", "30", "group", "10,3/20")
    node.run("ip", "route", "add", "10.9.0.0/16", "nhid", "30")


@pytest.mark.parametrize("given", [("nic0",), ("nic1",), ("nic0", "nic1")])
def test_groups_of_nexthops_are_complete_again(node: TestNode, given: tuple[str, ...]) -> None:
    with_group(node)
    before = routing(node)
    node.attach(*given)
    assert node.lifecycle.detach("uid-1") == []
    assert routing(node) == before


def test_groups_are_complete_after_two_claims(node: TestNode) -> None:
    with_group(node)
    before = routing(node)
    node.attach("nic0")
    node.attach("nic1", uid="uid-2", pod_uid="pod-2")
    assert node.ip("nexthop") == []
    assert node.lifecycle.detach("uid-1") == []
    assert node.lifecycle.detach("uid-2") == []
    assert routing(node) == before


def test_number_of_a_nexthop_taken_meanwhile_stays_with_its_user(node: TestNode) -> None:
    with_nexthops(node)
    node.attach("nic0")
    node.run("ip", "nexthop", "add", "id", "10", "via", "10.2.0.254", "dev", "nic1")
    assert node.lifecycle.detach("uid-1") == []
    (taken,) = node.ip("nexthop", "show", "id", "10")
    assert taken["gateway"] == "10.2.0.254"
    (route,) = node.ip("route", "show", "10.9.0.0/16")
    assert (route["gateway"], route["dev"], "nhid" in route) == ("10.1.0.254", "nic0", False)


def test_proxy_and_noarp_neighbours_return(node: TestNode) -> None:
    node.run("ip", "neigh", "add", "proxy", "10.1.0.77", "dev", "nic0")
    node.run("ip", "neigh", "add", "proxy", "fd00:1::77", "dev", "nic0")
    node.run("ip", "neigh", "add", "10.1.0.9", "lladdr", "02:00:00:00:00:09", "nud", "noarp", "dev", "nic0")

    def configured() -> list[Any]:
        found = node.ip("neigh", "show", "dev", "nic0", "nud", "all")
        return [*node.ip("neigh", "show", "proxy"), [one for one in found if one["dst"] == "10.1.0.9"]]

    before = configured()
    assert len(before) == 3 and before[-1]
    pod = node.attach("nic0")
    assert node.ip("neigh", "show", "proxy", where=pod) == []  # the pod answers for itself only
    assert node.lifecycle.detach("uid-1") == []
    assert configured() == before


def test_local_routes_return_and_stay_on_the_host(node: TestNode) -> None:
    node.run("ip", "route", "add", "local", "10.66.0.0/24", "dev", "nic0")
    before = node.ip("-d", "route", "show", "table", "local")
    pod = node.attach("nic0")
    assert not any(route["dst"] == "10.66.0.0/24" for route in node.ip("route", "show", "table", "all", where=pod))
    assert node.lifecycle.detach("uid-1") == []
    assert node.ip("-d", "route", "show", "table", "local") == before


def test_ipv6_token_returns(node: TestNode) -> None:
    node.run("ip", "token", "set", "::aa", "dev", "nic0")
    node.attach("nic0")
    assert node.lifecycle.detach("uid-1") == []
    assert node.ip("token", "show", "dev", "nic0") == [{"token": "::aa", "ifname": "nic0"}]


def test_token_that_the_link_refuses_is_reported(node: TestNode) -> None:
    node.run("ip", "token", "set", "::aa", "dev", "nic0")
    node.run("sysctl", "-qw", "net.ipv6.conf.nic0.accept_ra=0")
    node.attach("nic0")
    (problem,) = node.lifecycle.detach("uid-1")
    assert "set the IPv6 token" in problem


def traffic_control(node: TestNode, name: str = "nic0") -> list[Any]:
    """As `tc -j` shows it, without counters and without the numbers that the kernel chooses."""
    words = [("qdisc",), ("filter", "ingress"), ("filter", "egress"), ("filter",)]
    shown = [_without(_tc(node, name, *some), *_CHOSEN) for some in words]
    return [*shown, sorted(node.run("tc", "-d", "class", "show", "dev", name).splitlines())]  # tc has no JSON for these


_CHOSEN = ("stats", "direct_packets_stat", "index", "used", "installed", "expires", "fh", "ht", "key_ht")


def _tc(node: TestNode, name: str, what: str, *where: str) -> list[Any]:
    try:
        found: list[Any] = json.loads(node.run("tc", "-j", "-d", what, "show", "dev", name, *where) or "[]")
    except subprocess.CalledProcessError:  # this qdisc has no such side
        return []
    return found


def _without(value: Any, *keys: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(one, *keys) for key, one in value.items() if key not in keys}
    return [_without(one, *keys) for one in value] if isinstance(value, list) else value


def tc(node: TestNode, *words: str) -> None:
    node.run("tc", *words[:2], "dev", "nic0", *words[2:])


def test_htb_with_classes_and_filters_returns(node: TestNode) -> None:
    tc(node, "qdisc", "add", "root", "handle", "1:", "htb", "default", "20")
    tc(node, "class", "add", "parent", "1:", "classid", "1:1", "htb", "rate", "100mbit", "ceil", "100mbit")
    tc(node, "class", "add", "parent", "1:1", "classid", "1:10", "htb", "rate", "60mbit", "ceil", "90mbit", "prio", "1")
    tc(node, "class", "add", "parent", "1:1", "classid", "1:20", "htb", "rate", "40mbit", "ceil", "100mbit")
    tc(node, "qdisc", "add", "parent", "1:10", "handle", "10:", "tbf", "rate", "50mbit", "burst", "32k", "limit", "64k")
    u32 = ("u32", "match", "ip", "dst", "10.7.0.0/16", "flowid", "1:10")
    tc(node, "filter", "add", "parent", "1:", "protocol", "ip", "prio", "5", *u32)
    before = traffic_control(node)
    assert before[3] and len(before[4]) >= 3
    node.attach("nic0")
    assert node.lifecycle.detach("uid-1") == []
    assert traffic_control(node) == before


@pytest.mark.parametrize("qdisc", ["clsact", "ingress"])
def test_filters_on_ingress_return(node: TestNode, qdisc: str) -> None:
    tc(node, "qdisc", "add", qdisc)
    mirror = ("action", "mirred", "egress", "mirror", "dev", "nic1")
    u32 = ("u32", "match", "ip", "src", "10.7.0.0/16")
    for prio in ("9", "3"):
        tc(node, "filter", "add", "ingress", "protocol", "ip", "prio", prio, *u32, *mirror)
    tc(node, "filter", "add", "ingress", "protocol", "ip", "prio", "3", *u32, "flowid", "1:1")
    before = traffic_control(node)
    assert before[1]
    node.attach("nic0")
    assert node.lifecycle.detach("uid-1") == []
    assert traffic_control(node) == before
    node.run("ip", "neigh", "add", "10.1.0.9", "lladdr", "02:00:00:00:00:09", "dev", "nic0")
    node.lifecycle.detach("uid-1")  # once more changes nothing
    assert traffic_control(node) == before


def test_filters_that_cannot_be_restored_are_refused_at_prepare(node: TestNode) -> None:
    tc(node, "qdisc", "add", "clsact")
    tc(node, "filter", "add", "ingress", "protocol", "ip", "prio", "5", "handle", "1:", "u32", "divisor", "16")
    with pytest.raises(
        DranetError, match="cannot move interface nic0: the kernel would drop a hash table of tc filters"
    ):
        node.plan("nic0")


def test_additional_hardware_addresses_return(node: TestNode) -> None:
    node.run("bridge", "fdb", "add", "02:00:00:00:00:aa", "dev", "nic0")
    node.run("ip", "maddr", "add", "01:00:5e:00:00:55", "dev", "nic0")

    def added() -> list[Any]:
        fdb = json.loads(node.run("bridge", "-j", "fdb", "show", "dev", "nic0"))
        (shown,) = node.ip("maddr", "show", "dev", "nic0")
        static = [one for one in shown["maddr"] if one.get("features") == "static"]
        return [[one for one in fdb if not int(one["mac"][:2], 16) & 1], static]

    before = added()
    assert all(before)
    node.attach("nic0")
    assert node.lifecycle.detach("uid-1") == []
    assert added() == before
    assert node.lifecycle.detach("uid-1") == []
