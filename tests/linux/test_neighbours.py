"""Neighbours: reading and writing agree with pyroute2; permanent and proxy entries can be put back."""

from __future__ import annotations

import errno
import socket

import pytest

from dranet.linux import neighbours
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.neighbours import NTF_PROXY, Neighbour
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from tests.linux.conftest import ask_pyroute2

V4, V6 = socket.AF_INET, socket.AF_INET6


def wanted(index: int) -> list[Neighbour]:
    return [
        neighbours.permanent(index, "192.168.1.1", "00:11:22:33:44:55"),
        neighbours.permanent(index, "2001:db8::1", "00:aa:bb:cc:dd:ee"),
        Neighbour(family=V4, index=index, destination="10.0.0.8", mac="00:11:22:33:44:66", protocol=4),
        Neighbour(family=V4, index=index, destination="10.0.0.9", state=neighbours.NUD_STALE, mac="00:11:22:33:44:77"),
    ]


@pytest.fixture
def populated(route: NetlinkSocket, veth: Link) -> NetlinkSocket:
    assert not any(route.batch([neighbours.add(entry) for entry in wanted(veth.index)]))
    return route


def mine(route: NetlinkSocket) -> list[Neighbour]:
    return [entry for entry in neighbours.list_neighbours(route) if not entry.destination.startswith(("ff", "224."))]


def test_reading_agrees_with_pyroute2(netns: Namespace, populated: NetlinkSocket) -> None:
    entries = ask_pyroute2(netns, lambda handle: [*handle.get_neighbours(family=V4), *handle.get_neighbours(family=V6)])
    ours = {(e.index, e.destination): (e.mac, e.state, e.flags) for e in mine(populated)}
    theirs = {
        (found["ifindex"], found.get_attr("NDA_DST")): (
            found.get_attr("NDA_LLADDR") or "",
            found["state"],
            found["flags"],
        )
        for found in entries
        if not found.get_attr("NDA_DST").startswith(("ff", "224."))  # the kernel's own, which come and go
    }
    assert ours == theirs


def test_entries_are_read_back_as_they_were_written(populated: NetlinkSocket, veth: Link) -> None:
    found = {entry.destination: entry for entry in mine(populated)}
    for entry in wanted(veth.index):
        read = found[entry.destination]
        assert (read.mac, read.state, read.protocol) == (entry.mac, entry.state, entry.protocol)


def test_permanent_entries_are_put_back_exactly_as_they_were_found(populated: NetlinkSocket) -> None:
    before = [entry for entry in mine(populated) if entry.is_permanent]
    assert len(before) == 3
    assert not any(populated.batch([neighbours.delete(entry) for entry in before]))
    assert not [entry for entry in mine(populated) if entry.is_permanent]
    assert not any(populated.batch([neighbours.add(entry) for entry in before]))
    assert [entry for entry in mine(populated) if entry.is_permanent] == before


def test_proxy_entries_have_a_list_of_their_own_and_are_put_back(route: NetlinkSocket, veth: Link) -> None:
    for family, address in ((V4, "10.0.0.8"), (V6, "fd00::8")):
        entry = Neighbour(family=family, index=veth.index, destination=address, flags=NTF_PROXY, state=0)
        route.request(neighbours.add(entry))
    before = neighbours.list_neighbours(route, proxies=True)
    assert [entry.destination for entry in before if entry.is_proxy] == ["10.0.0.8", "fd00::8"]
    assert not any(route.batch([neighbours.delete(entry) for entry in before]))
    assert neighbours.list_neighbours(route, proxies=True) == []
    assert not any(route.batch([neighbours.add(entry) for entry in before]))
    assert neighbours.list_neighbours(route, proxies=True) == before


def test_an_entry_that_is_there_is_refused_and_can_be_replaced(populated: NetlinkSocket, veth: Link) -> None:
    entry = neighbours.permanent(veth.index, "192.168.1.1", "00:11:22:33:44:99")
    with pytest.raises(NetlinkError) as caught:
        populated.request(neighbours.add(entry))
    assert caught.value.errno == errno.EEXIST
    populated.request(neighbours.add(entry, replace=True))
    assert "00:11:22:33:44:99" in {found.mac for found in mine(populated)}
