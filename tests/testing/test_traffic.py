"""Ping and throughput between two namespaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dranet.core.pci import PciAddress
from dranet.linux import links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.machines.shape_devices import ShapeLink
from dranet.testing.fabric import Fabric, rail_subnet
from dranet.testing.traffic import End, Lane, ping, throughput

pytestmark = pytest.mark.usefixtures("may_make_namespaces")


def nic(name: str, address: str, mac: str) -> ShapeLink:
    return ShapeLink(name, mac, 8896, (address,), PciAddress.parse("0000:91:00.0"), "mlx5_0")


@pytest.fixture
def fabric(may_make_namespaces: None) -> Iterator[Fabric]:
    made = Fabric()
    yield made
    made.close()


@pytest.fixture
def machines(fabric: Fabric) -> Iterator[tuple[Namespace, Namespace]]:
    """Two machines with one NIC each on the rail `rail0`."""
    with Namespace.create() as one, Namespace.create() as other:
        for number, machine in enumerate((one, other), 4):
            with NetlinkSocket(namespace_fd=machine.fd) as route:
                route.request(links.change(1, up=True))
                fabric.plug(route, nic("gpu0rdma0", f"192.168.1.{number}/32", f"02:00:00:00:00:0{number}"))
        yield one, other


def test_ping_is_answered_on_the_rail(machines: tuple[Namespace, Namespace]) -> None:
    one, other = machines
    rtt = ping(Lane(End(one, "192.168.1.4"), End(other, "192.168.1.5")))
    assert rtt is not None and rtt > 0


def test_ping_to_unknown_address_is_not_answered(machines: tuple[Namespace, Namespace]) -> None:
    one, other = machines
    assert ping(Lane(End(one, "192.168.1.4"), End(other, "192.168.1.9")), seconds=0.05, attempts=1) is None


def test_interface_that_is_down_does_not_answer_ping(machines: tuple[Namespace, Namespace]) -> None:
    one, other = machines
    with NetlinkSocket(namespace_fd=other.fd) as route:
        found = links.get_link(route, "gpu0rdma0")
        assert found is not None
        route.request(links.change(found.index, up=False))
    assert ping(Lane(End(one, "192.168.1.4"), End(other, "192.168.1.5")), seconds=0.05, attempts=1) is None


def test_counts_data_at_the_receiving_interface(machines: tuple[Namespace, Namespace]) -> None:
    one, other = machines
    (gbit,) = throughput([Lane(End(one, "192.168.1.4"), End(other, "192.168.1.5"))], seconds=0.05)
    with NetlinkSocket(namespace_fd=other.fd) as route:
        found = links.get_link(route, "gpu0rdma0", counters=True)
    assert found is not None and found.counters is not None
    assert gbit > 0 and found.counters.rx_bytes > 1 << 20


def test_nic_has_mac_and_mtu_of_its_shape(machines: tuple[Namespace, Namespace]) -> None:
    with NetlinkSocket(namespace_fd=machines[0].fd) as route:
        found = links.get_link(route, "gpu0rdma0")
    assert found is not None
    assert (found.mac, found.mtu, found.is_up) == ("02:00:00:00:00:04", 8896, True)


@pytest.mark.parametrize(
    ("cidr", "subnet"),
    [("192.168.3.7/32", "192.168.3.0/24"), ("10.0.0.1/24", None), ("fd00::1/128", None)],
)
def test_only_a_32_prefix_needs_a_route_to_its_rail(cidr: str, subnet: str | None) -> None:
    assert rail_subnet(cidr) == subnet
