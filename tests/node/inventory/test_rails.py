"""Rails come from names, networks, routes or the operator; without a source they stay unknown."""

from __future__ import annotations

import pytest

from dranet.core.errors import InvalidInput
from dranet.linux import routes
from dranet.linux.addresses import Address
from dranet.linux.routes import Route
from dranet.node.inventory.inventory import Inventory
from dranet.node.inventory.options import InventoryOptions
from dranet.node.inventory.rails import RailSource, rail, subnet

from .conftest import Machine, World

GCE = {"gce.dra.net/networkName": "gpu-net-3"}


def of(source: str, interface: str, cloud_name: str = "", cloud: dict[str, str] | None = None) -> str:
    return rail(RailSource.parse(source), interface, cloud_name, cloud or {}, [], [])


@pytest.mark.parametrize(
    ("source", "interface", "cloud_name", "cloud", "expected"),
    [
        ("auto", "gpu3rdma0", "GCE", GCE, "3"),
        ("auto", "gpu3rdma0", "", {}, "3"),
        ("auto", "enp6s0", "GCE", GCE, "gpu-net-3"),
        ("auto", "rdma11", "OKE", {}, "11"),
        ("auto", "rdma11", "", {}, ""),
        ("auto", "eth0", "AWS", {}, ""),
        ("network", "gpu3rdma0", "GCE", GCE, "gpu-net-3"),
        ("off", "gpu3rdma0", "GCE", GCE, ""),
        (r"interface:ens(\d+)np0", "ens2005np0", "", {}, "2005"),
        (r"interface:ens(\d+)np0", "ens2005np01", "", {}, ""),
    ],
)
def test_a_rail_is_read_where_the_operator_says(
    source: str, interface: str, cloud_name: str, cloud: dict[str, str], expected: str
) -> None:
    assert of(source, interface, cloud_name, cloud) == expected


def route(destination: str, **fields: object) -> Route:
    return routes.to(destination, **fields)


def test_a_gce_subnet_is_the_route_and_not_the_address() -> None:
    ways = [route("0.0.0.0/0"), route("192.168.128.0/21"), route("192.168.128.1/32")]
    assert subnet(["192.168.128.4/32"], ways) == "192.168.128.0/21"


def test_a_route_in_a_table_of_its_own_counts() -> None:
    assert subnet(["192.168.136.4/32"], [route("192.168.136.0/21", table=107)]) == "192.168.136.0/21"


def test_the_way_to_other_rails_is_not_the_rail() -> None:
    assert subnet(["10.32.16.7/24"], [route("10.32.0.0/16"), route("10.32.16.0/24")]) == "10.32.16.0/24"


def test_an_address_without_a_network_tells_nothing() -> None:
    assert subnet(["192.168.1.4/32"], [route("0.0.0.0/0")]) == ""
    assert subnet([], [route("10.0.0.0/8")]) == ""


def test_ipv6_counts_where_there_is_no_ipv4() -> None:
    assert subnet(["fd00:3::7/64"], []) == "fd00:3::/64"


@pytest.mark.parametrize("text", ["ato", "interface:", "interface:eth[0-9]+", "interface:(", "interface:(a)(b)", ""])
def test_a_source_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        RailSource.parse(text)


def test_a_published_nic_carries_its_subnet_as_rail(machine: Machine, world: World) -> None:
    machine.nic("0000:8a:00.0", netdevs=["ens1"])
    world.link("ens1", 7)
    world.addresses_.append(Address(family=2, index=7, local="10.32.16.7", prefix=24))
    options = InventoryOptions(rails=RailSource.parse("subnet"))
    (device,) = Inventory(options, world).scan().devices
    assert device.device.attributes["dra.net/rail"] == "10.32.16.0/24"


def test_routes_are_not_even_asked_for_where_nobody_needs_them(machine: Machine, world: World) -> None:
    machine.nic("0000:8a:00.0", netdevs=["ens1"])
    world.link("ens1", 7)
    world.broken.add("routes")
    (device,) = Inventory(kernel=world).scan().devices
    assert "dra.net/rail" not in device.device.attributes
