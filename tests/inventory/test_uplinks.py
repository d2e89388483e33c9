"""Which links a node lives by."""

from __future__ import annotations

from typing import Any

from dranet.inventory.uplinks import default_route_links, uplinks
from dranet.kernel.routes import NextHop


def left_alone(world: Any) -> set[str]:
    names = {link.index: link.name for link in world.links_}
    return {names[index] for index in uplinks(world.links_, world.routes_)}


def test_the_link_of_the_default_route_is_an_uplink(world: Any) -> None:
    world.link("eth0", 2)
    world.link("eth1", 3)
    world.default_route(2, gateway="10.0.0.1")
    assert left_alone(world) == {"eth0"}


def test_a_default_route_needs_no_gateway(world: Any) -> None:
    world.link("ppp0", 2)
    world.default_route(2)
    assert left_alone(world) == {"ppp0"}


def test_only_the_lowest_metric_of_a_family_counts(world: Any) -> None:
    for index in (2, 3, 4):
        world.link(f"eth{index}", index)
    world.default_route(2, metric=100)
    world.default_route(3, metric=200)
    world.default_route(4, family=10, destination="::/0", metric=1024)
    assert left_alone(world) == {"eth2", "eth4"}


def test_all_routes_that_tie_and_all_legs_of_a_multipath_route_count(world: Any) -> None:
    for index in (2, 3, 4, 5):
        world.link(f"eth{index}", index)
    world.default_route(2, metric=5)
    world.default_route(None, metric=5, next_hops=(NextHop(index=3), NextHop(index=4)))
    assert left_alone(world) == {"eth2", "eth3", "eth4"}


def test_other_tables_wide_routes_and_unreachable_ones_do_not_count(world: Any) -> None:
    world.link("eth0", 2)
    world.default_route(2, table=100)
    world.default_route(2, destination="0.0.0.0/8")
    world.default_route(2, type=7)
    assert default_route_links(world.routes_) == set()


def test_ports_of_an_uplink_bridge_go_with_it_however_deep(world: Any) -> None:
    world.link("br0", 2, kind="bridge")
    world.link("bond0", 3, kind="bond", master=2)
    world.link("eth0", 4, master=3)
    world.link("eth1", 5, master=3)
    world.link("eth2", 6)
    world.default_route(2)
    assert left_alone(world) == {"br0", "bond0", "eth0", "eth1"}


def test_the_virtual_function_under_a_hyper_v_uplink_goes_with_it(world: Any) -> None:
    world.link("eth0", 2)
    world.link("enP1s1", 3, master=2)
    world.default_route(2)
    assert left_alone(world) == {"eth0", "enP1s1"}


def test_the_link_below_an_uplink_vlan_goes_with_it(world: Any) -> None:
    world.link("eth0", 2)
    world.link("eth0.7", 3, kind="vlan", parent_index=2)
    world.default_route(3)
    assert left_alone(world) == {"eth0", "eth0.7"}


def test_links_that_merely_stand_on_the_uplink_may_be_given_away(world: Any) -> None:
    world.link("eth0", 2)
    world.link("macvlan0", 3, kind="macvlan", parent_index=2)
    world.default_route(2)
    assert left_alone(world) == {"eth0"}


def test_the_other_end_of_an_uplink_veth_goes_with_it_if_it_is_here(world: Any) -> None:
    world.link("here", 2, kind="veth", parent_index=3)
    world.link("peer", 3, kind="veth", parent_index=2)
    world.default_route(2)
    assert left_alone(world) == {"here", "peer"}


def test_an_index_that_counts_in_another_namespace_is_not_followed(world: Any) -> None:
    world.link("eth0", 2, kind="veth", parent_index=3, parent_netnsid=0)
    world.link("eth1", 3)
    world.default_route(2)
    assert left_alone(world) == {"eth0"}


def test_the_master_of_an_uplink_is_left_alone_but_not_its_other_members(world: Any) -> None:
    world.link("vrf-mgmt", 2, kind="vrf")
    world.link("eth0", 3, master=2)
    world.link("eth1", 4, master=2)
    world.default_route(3)
    assert left_alone(world) == {"vrf-mgmt", "eth0"}


def test_links_that_stand_on_each_other_end_the_walk(world: Any) -> None:
    world.link("a", 2, parent_index=3)
    world.link("b", 3, parent_index=2, master=2)
    world.default_route(2)
    assert left_alone(world) == {"a", "b"}


def test_a_route_through_a_link_that_vanished_is_ignored(world: Any) -> None:
    world.default_route(99)
    assert left_alone(world) == set()
