"""Which links a node lives by."""

from __future__ import annotations

from typing import Any

import pytest

from dranet.linux.addresses import Address
from dranet.linux.routes import PROTOCOL_RA, NextHop
from dranet.linux.rules import FLAG_INVERT, Rule
from dranet.node.inventory.uplinks import Tables, UplinkTargets, uplink_links, uplink_roots
from tests.node.inventory.conftest import World


def reasons(world: World, targets: UplinkTargets | None = None, **choice: Any) -> dict[str, str]:
    tables = Tables(world.links_, world.routes_, world.rules_, world.addresses_)
    names = {link.index: link.name for link in world.links_}
    found = uplink_links(world.links_, uplink_roots(tables, targets or UplinkTargets(), world.egress_link, **choice))
    return {names[index]: reason for index, reason in found.items()}


def left_alone(world: World, targets: UplinkTargets | None = None, **choice: Any) -> set[str]:
    return set(reasons(world, targets, **choice))


def address(index: int, cidr: str) -> Address:
    local, _, prefix = cidr.partition("/")
    return Address(family=10 if ":" in local else 2, index=index, local=local, prefix=int(prefix))


def test_the_link_of_the_default_route_is_an_uplink(world: World) -> None:
    world.link("eth0", 2)
    world.link("eth1", 3)
    world.default_route(2, gateway="10.0.0.1")
    assert left_alone(world) == {"eth0"}


def test_a_default_route_needs_no_gateway(world: World) -> None:
    world.link("ppp0", 2)
    world.default_route(2)
    assert left_alone(world) == {"ppp0"}


def test_standby_defaults_of_both_families_count_whatever_their_metric(world: World) -> None:
    for index in (2, 3, 4):
        world.link(f"eth{index}", index)
    world.default_route(2, metric=100)
    world.default_route(3, metric=200)
    world.default_route(4, family=10, destination="::/0", metric=1024)
    assert left_alone(world) == {"eth2", "eth3", "eth4"}


def test_all_routes_that_tie_and_all_legs_of_a_multipath_route_count(world: World) -> None:
    for index in (2, 3, 4, 5):
        world.link(f"eth{index}", index)
    world.default_route(2, metric=5)
    world.default_route(None, metric=5, next_hops=(NextHop(index=3), NextHop(index=4)))
    assert left_alone(world) == {"eth2", "eth3", "eth4"}


def test_unreachable_routes_and_tables_that_no_rule_asks_do_not_count(world: World) -> None:
    world.link("eth0", 2)
    world.default_route(2, table=100)
    world.default_route(2, type=7)
    assert left_alone(world) == set()


@pytest.mark.parametrize("destination", ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1", "2000::/3"])
def test_a_part_of_everywhere_counts_as_everywhere(world: World, destination: str) -> None:
    world.link("eth0", 2)
    world.default_route(2, family=10 if ":" in destination else 2, destination=destination)
    assert reasons(world) == {"eth0": f"it is an uplink: the node's route to {destination} uses it"}


@pytest.mark.parametrize(
    "rule",
    [
        Rule(family=2, table=100),
        Rule(family=2, table=100, mark=0x80),
        Rule(family=2, table=100, source="10.244.0.0/16"),
        Rule(family=2, table=100, source="10.1.0.77/32"),
        Rule(family=2, table=100, incoming="cni0"),
        Rule(family=2, table=100, source="10.1.0.5/32", flags=FLAG_INVERT),
    ],
    ids=["for all", "by mark", "for pods", "for another address of its network", "from another link", "all but"],
)
def test_the_default_of_a_policy_table_that_others_are_led_to_counts(world: World, rule: Rule) -> None:
    world.link("eth1", 2)
    world.addresses_.append(address(2, "10.1.0.5/24"))
    world.default_route(2, table=100)
    world.rules_.append(rule)
    assert reasons(world) == {"eth1": "it is an uplink: a default route of the node (table 100) uses it"}


@pytest.mark.parametrize(
    "rule",
    [
        Rule(family=2, table=100, source="10.1.0.5/32"),
        Rule(family=2, table=100, source="10.1.0.0/24"),
        Rule(family=2, table=100, outgoing="eth1"),
        Rule(family=2, table=100, incoming="eth1"),
    ],
    ids=["from its address", "from its network", "out of it", "into it"],
)
def test_a_nic_with_a_table_for_its_own_traffic_is_no_uplink(world: World, rule: Rule) -> None:
    world.link("eth1", 2)
    world.addresses_.append(address(2, "10.1.0.5/24"))
    world.default_route(2, table=100)
    world.rules_.append(rule)
    assert left_alone(world) == set()


def test_defaults_that_routers_advertise_on_rdma_nics_do_not_count(world: World) -> None:
    for index in (2, 3, 4):
        world.link(f"eth{index}", index)
    world.default_route(2)
    world.default_route(3, family=10, destination="::/0", protocol=PROTOCOL_RA)
    world.default_route(4, family=10, destination="::/0", protocol=PROTOCOL_RA)
    assert left_alone(world, rdma={3}) == {"eth2", "eth4"}


def test_an_advertised_default_is_nobodys_standby(world: World) -> None:
    world.link("eth0", 2)
    world.link("eth1", 3)
    world.default_route(2, family=10, destination="::/0", metric=100)
    world.default_route(3, family=10, destination="::/0", metric=1024, protocol=PROTOCOL_RA)
    assert left_alone(world) == {"eth0"}


def test_an_advertised_default_on_an_rdma_nic_counts_where_nothing_else_leads_out(world: World) -> None:
    world.link("eth0", 2)
    world.default_route(2, family=10, destination="::/0", protocol=PROTOCOL_RA)
    assert left_alone(world, rdma={2}) == {"eth0"}
    world.link("mgmt", 3)
    world.addresses_.append(address(3, "10.0.0.5/24"))
    assert left_alone(world, UplinkTargets(node_addresses=("10.0.0.5",)), rdma={2}) == {"mgmt"}


def test_the_link_of_the_nodes_address_is_an_uplink(world: World) -> None:
    world.link("mgmt", 2)
    world.addresses_.append(address(2, "10.0.0.5/24"))
    found = reasons(world, UplinkTargets(node_addresses=("10.0.0.5", "fd00::9")))
    assert found == {"mgmt": "it is an uplink: the node's address 10.0.0.5 is on it"}


def test_the_link_of_the_way_to_the_api_server_is_an_uplink(world: World) -> None:
    world.link("mgmt", 2)
    world.ways["10.96.0.1"] = 2
    found = reasons(world, UplinkTargets(api_servers=("10.96.0.1", "fd00::1")))
    assert found == {"mgmt": "it is an uplink: the route to the API server (10.96.0.1) uses it"}


def test_named_uplinks_replace_default_routes_but_not_the_nodes_address(world: World) -> None:
    for index, name in ((2, "eth0"), (3, "eth1"), (4, "roce0"), (5, "mgmt")):
        world.link(name, index)
    world.default_route(4)
    world.addresses_.append(address(5, "10.0.0.5/24"))
    found = reasons(world, UplinkTargets(node_addresses=("10.0.0.5",)), named=("eth?",))
    assert found["eth0"] == found["eth1"] == "it is an uplink: --uplink-interfaces names it"
    assert found.keys() == {"eth0", "eth1", "mgmt"}


def test_ports_of_an_uplink_bridge_go_with_it_however_deep(world: World) -> None:
    world.link("br0", 2, kind="bridge")
    world.link("bond0", 3, kind="bond", master=2)
    world.link("eth0", 4, master=3)
    world.link("eth1", 5, master=3)
    world.link("eth2", 6)
    world.default_route(2)
    assert left_alone(world) == {"br0", "bond0", "eth0", "eth1"}


def test_the_virtual_function_under_a_hyper_v_uplink_goes_with_it(world: World) -> None:
    world.link("eth0", 2)
    world.link("enP1s1", 3, master=2)
    world.default_route(2)
    assert left_alone(world) == {"eth0", "enP1s1"}


def test_the_link_below_an_uplink_vlan_goes_with_it(world: World) -> None:
    world.link("eth0", 2)
    world.link("eth0.7", 3, kind="vlan", parent_index=2)
    world.default_route(3)
    assert left_alone(world) == {"eth0", "eth0.7"}


def test_links_that_merely_are_stacked_on_the_uplink_may_be_given_away(world: World) -> None:
    world.link("eth0", 2)
    world.link("macvlan0", 3, kind="macvlan", parent_index=2)
    world.default_route(2)
    assert left_alone(world) == {"eth0"}


def test_the_other_end_of_an_uplink_veth_goes_with_it_if_it_is_here(world: World) -> None:
    world.link("here", 2, kind="veth", parent_index=3)
    world.link("peer", 3, kind="veth", parent_index=2)
    world.default_route(2)
    assert left_alone(world) == {"here", "peer"}


def test_an_index_that_counts_in_another_namespace_is_not_followed(world: World) -> None:
    world.link("eth0", 2, kind="veth", parent_index=3, parent_netnsid=0)
    world.link("eth1", 3)
    world.default_route(2)
    assert left_alone(world) == {"eth0"}


def test_the_master_of_an_uplink_is_not_offered_but_not_its_other_members(world: World) -> None:
    world.link("vrf-mgmt", 2, kind="vrf")
    world.link("eth0", 3, master=2)
    world.link("eth1", 4, master=2)
    world.default_route(3)
    assert left_alone(world) == {"vrf-mgmt", "eth0"}


def test_links_that_are_stacked_on_each_other_end_the_walk(world: World) -> None:
    world.link("a", 2, parent_index=3)
    world.link("b", 3, parent_index=2, master=2)
    world.default_route(2)
    assert left_alone(world) == {"a", "b"}


def test_a_route_through_a_link_that_vanished_is_ignored(world: World) -> None:
    world.default_route(99)
    assert left_alone(world) == set()
