"""Shares of a link's bandwidth: what we write is what `tc` reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dranet.linux.links import Link
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.traffic import htb, tc

Ip = Callable[..., str]


def create_or_skip(route: NetlinkSocket, index: int) -> None:
    try:
        route.request(htb.create(index))
    except NetlinkError as error:
        pytest.skip(f"this kernel has no hierarchical token buckets: {error}")


@pytest.fixture
def shared(route: NetlinkSocket, veth: Link) -> int:
    create_or_skip(route, veth.index)
    route.request(htb.replace_class(veth.index, htb.ROOT_CLASS, 400 * 10**9, 400 * 10**9))
    route.request(htb.replace_class(veth.index, htb.DEFAULT_CLASS, 10**6, 400 * 10**9))
    return veth.index


def classes(ip: Ip) -> set[str]:
    return {line.split()[2] for line in ip("class", "show", "dev", "v0", command="tc").splitlines()}


def test_rates_above_32_bits_are_kept(route: NetlinkSocket, shared: int, ip: Ip) -> None:
    route.request(htb.replace_class(shared, 0x10, 100 * 10**9, 400 * 10**9))
    text = ip("class", "show", "dev", "v0", command="tc")
    (line,) = (line for line in text.splitlines() if " d7a0:10 " in line)
    assert "parent d7a0:1 " in line and "rate 100Gbit ceil 400Gbit" in line


def test_a_class_that_exists_is_changed(route: NetlinkSocket, shared: int, ip: Ip) -> None:
    for rate in (5 * 10**6, 7 * 10**6):
        route.request(htb.replace_class(shared, 0x10, rate, 10**9))
    assert "rate 7Mbit" in ip("class", "show", "dev", "v0", command="tc")


def test_packets_are_classified_by_hardware_address_and_by_ip(route: NetlinkSocket, shared: int, ip: Ip) -> None:
    route.request(htb.replace_class(shared, 0x10, 10**6, 10**9))
    route.request(htb.match_mac(shared, 0x10, "02:11:22:33:44:55"))
    route.request(htb.match_source(shared, 0x10, "10.0.0.5"))
    route.request(htb.match_source(shared, 0x10, "fd00::5"))
    text = ip("filter", "show", "dev", "v0", command="tc")
    assert "match 02112233/ffffffff at -8" in text and "match 44550000/ffff0000 at -4" in text
    assert "match 0a000005/ffffffff at 12" in text
    assert "match fd000000/ffffffff at 8" in text and "match 00000005/ffffffff at 20" in text
    assert text.count("flowid d7a0:10") == 3


def test_one_share_is_removed_and_the_others_stay(route: NetlinkSocket, shared: int, ip: Ip) -> None:
    for minor in (0x10, 0x11):
        route.request(htb.replace_class(shared, minor, 10**6, 10**9))
        route.request(htb.match_source(shared, minor, f"10.0.0.{minor}"))
    route.batch(htb.delete_filters(shared, 0x10))
    route.request(htb.delete_class(shared, 0x10))
    assert classes(ip) == {"d7a0:1", "d7a0:2", "d7a0:11"}
    assert "flowid d7a0:11" in ip("filter", "show", "dev", "v0", command="tc")


def test_a_configured_qdisc_is_not_replaced_without_asking(route: NetlinkSocket, veth: Link, ip: Ip) -> None:
    create_or_skip(route, veth.index)
    ip("qdisc", "replace", "dev", "v0", "root", "handle", "7:", "htb", command="tc")
    with pytest.raises(NetlinkError):
        route.request(htb.create(veth.index))
    route.request(htb.create(veth.index, replace=True))
    (root,) = (d for d in tc.list_qdiscs(route) if d.index == veth.index and d.parent == tc.ROOT)
    assert root.handle == htb.HANDLE
