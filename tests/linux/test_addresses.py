"""Addresses: reading and writing agree with pyroute2, and a record can be put back as it was."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

import msgspec
import pytest

from dranet.linux import addresses, links
from dranet.linux.addresses import FOREVER, IFA_F_NODAD, IFA_F_NOPREFIXROUTE, Address
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from tests.linux.conftest import ask_pyroute2


def wanted(index: int) -> list[Address]:
    """One address of every sort."""
    nodad = IFA_F_NODAD
    return [
        addresses.from_cidr("10.1.0.1/24", index, broadcast="10.1.0.255", label="v0"),
        addresses.from_cidr("10.1.0.2/24", index),
        addresses.from_cidr("10.2.0.1/32", index, peer="10.2.0.9"),
        addresses.from_cidr("169.254.7.7/16", index, scope=addresses.SCOPE_LINK, label="v0:1"),
        addresses.from_cidr("10.3.0.1/24", index, flags=IFA_F_NOPREFIXROUTE, metric=77, protocol=4),
        addresses.from_cidr("10.4.0.1/24", index, valid=5000, preferred=3000),
        addresses.from_cidr("fd00::1/64", index, flags=nodad),
        addresses.from_cidr("fd01::1/128", index, flags=nodad | IFA_F_NOPREFIXROUTE, metric=99, protocol=4),
        addresses.from_cidr("fd02::1/64", index, flags=nodad, valid=4000, preferred=2000),
    ]


@pytest.fixture
def addressed(route: NetlinkSocket, veth: Link) -> NetlinkSocket:
    assert not any(route.batch([addresses.add(address) for address in wanted(veth.index)]))
    return route


def test_reading_agrees_with_pyroute2(netns: Namespace, addressed: NetlinkSocket) -> None:
    ours = {(a.index, a.family, a.local, a.prefix): a for a in addresses.list_addresses(addressed)}
    theirs = {}
    for found in ask_pyroute2(netns, lambda handle: handle.get_addr()):
        local = found.get_attr("IFA_LOCAL") or found.get_attr("IFA_ADDRESS")
        theirs[(found["index"], found["family"], local, found["prefixlen"])] = found
    assert ours.keys() == theirs.keys()
    for key, found in theirs.items():
        ours_ = ours[key]
        assert (ours_.flags, ours_.scope) == (found.get_attr("IFA_FLAGS"), found["scope"])
        assert ours_.broadcast == found.get_attr("IFA_BROADCAST")
        assert ours_.label == (found.get_attr("IFA_LABEL") or "")
        assert (ours_.peer or ours_.local) == found.get_attr("IFA_ADDRESS")
        assert ours_.metric == (found.get_attr("IFA_RT_PRIORITY") or 0)


@pytest.mark.parametrize(
    "field", [f for f in Address.__struct_fields__ if f not in ("flags", "valid", "preferred", "label")]
)
def test_every_field_is_read_back_as_it_was_written(addressed: NetlinkSocket, veth: Link, field: str) -> None:
    found = {address.cidr: address for address in addresses.list_addresses(addressed)}
    for address in wanted(veth.index):
        assert getattr(found[address.cidr], field) == getattr(address, field)


def test_lifetimes_are_kept_and_end(addressed: NetlinkSocket, veth: Link) -> None:
    found = {address.cidr: address for address in addresses.list_addresses(addressed)}
    assert 4990 <= found["10.4.0.1/24"].valid <= 5000
    assert 1990 <= found["fd02::1/64"].preferred <= 2000
    assert found["10.1.0.1/24"].valid == FOREVER


def test_an_address_is_put_back_exactly_as_it_was_found(addressed: NetlinkSocket, veth: Link) -> None:
    def configured() -> list[Address]:  # without those that the kernel adds
        found = addresses.list_addresses(addressed, veth.index)
        return [a for a in found if a.local.startswith(("10.", "169.", "fd"))]

    def settled() -> list[Address]:  # lifetimes tick
        found = (msgspec.structs.replace(a, valid=0, preferred=0) for a in configured())
        return sorted(found, key=lambda a: a.local)

    before, originals = settled(), configured()
    assert not any(addressed.batch([addresses.delete(a) for a in reversed(originals)]))
    assert not any(addressed.batch([addresses.add(a) for a in originals]))
    assert settled() == before


def test_an_address_that_is_there_is_refused_and_can_be_replaced(addressed: NetlinkSocket, veth: Link) -> None:
    address = addresses.from_cidr("10.1.0.1/24", veth.index)
    with pytest.raises(NetlinkError) as caught:
        addressed.request(addresses.add(address))
    assert caught.value.errno == errno.EEXIST
    addressed.request(addresses.add(address, replace=True))


def test_deleting_leaves_the_others(addressed: NetlinkSocket, veth: Link) -> None:
    addressed.request(addresses.delete(addresses.from_cidr("10.1.0.2/24", veth.index)))
    found = {a.cidr for a in addresses.list_addresses(addressed, veth.index)}
    assert "10.1.0.2/24" not in found
    assert "10.1.0.1/24" in found


def test_the_addresses_of_one_link_can_be_listed(addressed: NetlinkSocket, veth: Link) -> None:
    assert {a.index for a in addresses.list_addresses(addressed, veth.index)} == {veth.index}
    assert {a.index for a in addresses.list_addresses(addressed)} > {veth.index}


def test_an_address_without_prefix_length_is_a_host_address() -> None:
    assert addresses.from_cidr("10.0.0.1", 3).prefix == 32
    assert addresses.from_cidr("fd00::1", 3).prefix == 128


def test_pyroute2_writes_what_we_read(netns: Namespace, route: NetlinkSocket, veth: Link) -> None:
    new = {"address": "10.9.0.1", "prefixlen": 20, "broadcast": "10.9.15.255", "scope": 253}
    ask_pyroute2(netns, lambda handle: handle.addr("add", index=veth.index, **new))
    (found,) = [a for a in addresses.list_addresses(route, veth.index) if a.family == socket.AF_INET]
    assert (found.cidr, found.broadcast, found.scope) == ("10.9.0.1/20", "10.9.15.255", 253)


def test_three_hundred_addresses_on_one_link_are_read(route: NetlinkSocket, veth: Link, ip: Callable[..., str]) -> None:
    many = [addresses.from_cidr(f"10.7.{n // 200}.{n % 200}/32", veth.index) for n in range(300)]
    assert not any(route.batch([addresses.add(address) for address in many]))
    assert [a.cidr for a in addresses.list_addresses(route, veth.index) if a.family == socket.AF_INET] == [
        a.cidr for a in many
    ]


def test_setting_a_link_down_deletes_its_ipv6_addresses(addressed: NetlinkSocket, veth: Link) -> None:
    addressed.request(links.change(veth.index, up=False))
    assert not [a for a in addresses.list_addresses(addressed, veth.index) if a.family == socket.AF_INET6]
