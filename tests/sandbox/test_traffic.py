"""Ping and throughput between two namespaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dranet.kernel import links
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.model.pci import PciAddress
from dranet.sandbox.fabric import Fabric, rail_subnet
from dranet.sandbox.traffic import End, Lane, ping, throughput
from dranet.topology.shape_devices import ShapeLink

pytestmark = pytest.mark.usefixtures("may_make_namespaces")


def card(name: str, address: str, mac: str) -> ShapeLink:
    return ShapeLink(name, mac, 8896, (address,), PciAddress.parse("0000:91:00.0"), "mlx5_0")


@pytest.fixture
def fabric(may_make_namespaces: None) -> Iterator[Fabric]:
    made = Fabric()
    yield made
    made.close()


@pytest.fixture
def machines(fabric: Fabric) -> Iterator[tuple[Namespace, Namespace]]:
    """Two machines with one card each on the rail `rail0`."""
    with Namespace.create() as one, Namespace.create() as other:
        for number, machine in enumerate((one, other), 4):
            with NetlinkSocket(namespace_fd=machine.fd) as route:
                route.request(links.change(1, up=True))
                fabric.plug(route, card("gpu0rdma0", f"192.168.1.{number}/32", f"02:00:00:00:00:0{number}"))
        yield one, other


def test_a_ping_comes_back_over_the_rail(machines: tuple[Namespace, Namespace]) -> None:
    one, other = machines
    rtt = ping(Lane(End(one, "192.168.1.4"), End(other, "192.168.1.5")))
    assert rtt is not None and rtt > 0


def test_a_ping_to_nobody_is_not_answered(machines: tuple[Namespace, Namespace]) -> None:
    one, other = machines
    assert ping(Lane(End(one, "192.168.1.4"), End(other, "192.168.1.9")), seconds=0.05, attempts=1) is None


def test_a_card_that_is_down_answers_no_ping(machines: tuple[Namespace, Namespace]) -> None:
    one, other = machines
    with NetlinkSocket(namespace_fd=other.fd) as route:
        found = links.get_link(route, "gpu0rdma0")
        assert found is not None
        route.request(links.change(found.index, up=False))
    assert ping(Lane(End(one, "192.168.1.4"), End(other, "192.168.1.5")), seconds=0.05, attempts=1) is None


def test_data_flows_and_is_counted_at_the_receiving_card(machines: tuple[Namespace, Namespace]) -> None:
    one, other = machines
    (gbit,) = throughput([Lane(End(one, "192.168.1.4"), End(other, "192.168.1.5"))], seconds=0.05)
    with NetlinkSocket(namespace_fd=other.fd) as route:
        found = links.get_link(route, "gpu0rdma0", counters=True)
    assert found is not None and found.counters is not None
    assert gbit > 0 and found.counters.rx_bytes > 1 << 20


def test_a_card_gets_the_name_mac_mtu_and_address_of_its_shape(machines: tuple[Namespace, Namespace]) -> None:
    with NetlinkSocket(namespace_fd=machines[0].fd) as route:
        found = links.get_link(route, "gpu0rdma0")
    assert found is not None
    assert (found.mac, found.mtu, found.is_up) == ("02:00:00:00:00:04", 8896, True)


@pytest.mark.parametrize(
    ("cidr", "subnet"),
    [("192.168.3.7/32", "192.168.3.0/24"), ("10.0.0.1/24", None), ("fd00::1/128", None)],
)
def test_only_a_lone_address_needs_its_rails_subnet(cidr: str, subnet: str | None) -> None:
    assert rail_subnet(cidr) == subnet
