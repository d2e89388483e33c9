"""Events: each kind of change is reported, bursts are merged, losses are reported."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator

import pytest

from dranet.linux import addresses, events, links, neighbours, routes, rules, virtual_links
from dranet.linux.codec import Message
from dranet.linux.events import EVERYTHING, Change, Monitor
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from tests.linux.conftest import MakeNamespace, MakeRoute


@pytest.fixture
def monitor(netns: Namespace, veth: Link) -> Iterator[Monitor]:
    with Monitor(namespace_fd=netns.fd) as opened:
        yield opened


def changes(monitor: Monitor) -> frozenset[Change]:
    assert select.select([monitor], [], [], 5)[0], "no event"
    return monitor.drain()


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda i: links.change(i, mtu=1400), Change.LINK),
        (lambda i: addresses.add(addresses.from_cidr("10.0.0.1/32", i)), Change.ADDRESS),
        (lambda i: routes.add(routes.to("10.9.0.0/16", index=i)), Change.ROUTE),
        (lambda i: routes.add(routes.to("0.0.0.0/0", index=i)), Change.DEFAULT_ROUTE),
        (lambda i: routes.add(routes.to("::/0", index=i)), Change.DEFAULT_ROUTE),
        (lambda i: routes.add(routes.to("128.0.0.0/1", index=i)), Change.DEFAULT_ROUTE),
        (lambda i: rules.add(rules.Rule(family=2, table=100)), Change.RULE),
        (lambda i: neighbours.add(neighbours.permanent(i, "10.0.0.7", "02:00:00:00:00:01")), Change.NEIGHBOUR),
    ],
)
def test_each_kind_of_change_is_reported(
    monitor: Monitor, route: NetlinkSocket, veth: Link, build: Callable[[int], Message], expected: Change
) -> None:
    monitor.drain()
    route.request(build(veth.index))
    assert expected in changes(monitor)


def test_a_specific_route_is_not_a_default_route(monitor: Monitor, route: NetlinkSocket, veth: Link) -> None:
    monitor.drain()
    route.request(routes.add(routes.to("10.9.0.0/16", index=veth.index)))
    assert Change.DEFAULT_ROUTE not in changes(monitor)


def test_a_burst_is_merged_into_one_answer(monitor: Monitor, route: NetlinkSocket) -> None:
    route.batch([virtual_links.create_veth(f"a{n}", f"b{n}") for n in range(50)])
    assert Change.LINK in changes(monitor)
    assert not select.select([monitor], [], [], 0)[0]
    assert monitor.drain() == frozenset()


def test_only_requested_kinds_are_reported(netns: Namespace, route: NetlinkSocket, veth: Link) -> None:
    with Monitor(frozenset({Change.RULE}), netns.fd) as monitor:
        route.request(links.change(veth.index, mtu=1400))
        route.request(rules.add(rules.Rule(family=2, table=100)))
        assert changes(monitor) == {Change.RULE}


def test_when_events_are_lost_everything_counts_as_changed(netns: Namespace, route: NetlinkSocket, veth: Link) -> None:
    with Monitor(namespace_fd=netns.fd) as monitor:
        monitor._route.reserve(4096)
        route.batch([links.change(veth.index, mtu=1000 + n) for n in range(400)])
        assert changes(monitor) == EVERYTHING
        route.request(links.change(veth.index, mtu=1500))
        assert changes(monitor) == {Change.LINK}


def test_events_of_other_namespaces_are_not_reported(
    monitor: Monitor, make_namespace: MakeNamespace, make_route: MakeRoute
) -> None:
    monitor.drain()
    make_route(make_namespace()).request(virtual_links.create_bridge("br0"))
    assert Change.LINK not in monitor.drain()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"add@/devices/pci0000:00/0000:00:05.0\0ACTION=add\0SUBSYSTEM=pci\0SEQNUM=7\0", {Change.PCI}),
        (b"remove@/devices/x/infiniband/mlx5_0\0ACTION=remove\0SUBSYSTEM=infiniband\0", {Change.RDMA}),
        (b"add@/devices/virtual/net/x\0ACTION=add\0SUBSYSTEM=net\0", set()),
        (b"libudev\0\xfe\xed\xca\xfe", set()),
        (b"", set()),
    ],
)
def test_device_events_are_read_by_subsystem(data: bytes, expected: set[Change]) -> None:
    assert events._device_changes(data) == expected
