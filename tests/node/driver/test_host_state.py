"""What administrators and routing daemons configure on a NIC is there again after a pod, as `ip -j` shows it.

Nothing here is read with the driver's own code.
"""

from __future__ import annotations

from typing import Any

import pytest

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
