"""Announcements: the frames, and that neighbours learn from them."""

from __future__ import annotations

import socket

import pytest

from dranet.core.errors import KernelError
from dranet.linux import addresses, announce, links, neighbours, sysctl
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.testing.waiting import wait_until
from tests.linux.conftest import MakeRoute

NEW = "02:00:00:00:00:01"
MAC = bytes.fromhex(NEW.replace(":", ""))


def listen(netns: Namespace, interface: str) -> socket.socket:
    def make() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        opened.bind((interface, 0x0003))
        opened.settimeout(5)
        return opened

    return netns.run(make)


def test_an_ipv4_address_is_announced_by_arp_broadcast() -> None:
    frame = announce.frame(MAC, "10.0.0.1")
    assert frame.hex() == (
        "ffffffffffff" "020000000001" "0806" "0001" "0800" "06" "04" "0001"
        "020000000001" "0a000001" "000000000000" "0a000001"
    )  # fmt: skip


def test_an_ipv6_address_is_announced_to_all_nodes_with_override() -> None:
    frame = announce.frame(MAC, "fd00::1")
    assert frame[:14].hex() == "33330000000102000000000186dd"
    assert frame[14 + 7] == 255
    assert frame[54:56] == b"\x88\0"
    assert frame[58:62] == b"\x20\0\0\0"
    assert frame[62:78] == socket.inet_pton(socket.AF_INET6, "fd00::1")
    assert frame[78:] == b"\x02\x01" + MAC


def test_the_checksum_of_the_advertisement_is_right() -> None:
    frame = announce.advertisement(MAC, "fd00::1")
    body, pseudo = frame[54:], frame[22:54] + (32).to_bytes(4, "big") + (58).to_bytes(4, "big")
    assert announce.checksum(pseudo + body) == 0


def test_the_frames_leave_on_the_interface(netns: Namespace, veth: Link) -> None:
    with listen(netns, "v1") as other:
        sent = announce.announce("v0", "02:00:00:00:00:01", ["10.0.0.1/24", "fd00::1/64"], namespace_fd=netns.fd)
        heard: set[bytes] = set()
        while len(heard) < 2:
            frame = other.recv(2048)
            if frame[6:12] == MAC:
                heard.add(frame)
    assert sent == 2
    assert heard == {announce.frame(MAC, "10.0.0.1"), announce.frame(MAC, "fd00::1")}


def test_a_neighbour_that_knew_the_old_hardware_address_learns_the_new_one(
    netns: Namespace, route: NetlinkSocket, veth: Link, far: Namespace, make_route: MakeRoute
) -> None:
    inside, peer_index = make_route(far), veth.index - 1
    sysctl.write_all(far.fd, {"net/ipv4/neigh/v1/locktime": "0"})
    entries = [
        neighbours.Neighbour(
            family=f, index=peer_index, destination=d, mac="02:00:00:00:00:99", state=neighbours.NUD_STALE
        )
        for f, d in ((socket.AF_INET, "10.0.0.1"), (socket.AF_INET6, "fd00::1"))
    ]
    prepared = [
        links.change(peer_index, up=True),
        addresses.add(addresses.from_cidr("10.0.0.2/24", peer_index)),
        addresses.add(addresses.from_cidr("fd00::2/64", peer_index, flags=addresses.IFA_F_NODAD)),
        *(neighbours.add(entry) for entry in entries),
    ]
    assert not any(inside.batch(prepared))
    wait_until(lambda: is_up(route, "v0"))  # the carrier was gone with its peer; without one, frames are dropped
    with listen(far, "v1") as heard:
        announce.announce("v0", "02:00:00:00:00:01", ["10.0.0.1", "fd00::1"], namespace_fd=netns.fd)
        seen = 0
        while seen < 2:
            seen += heard.recv(2048)[6:12] == MAC
    wait_until(lambda: known(inside) == {"10.0.0.1": NEW, "fd00::1": NEW})  # the kernel may read a frame after us


def is_up(route: NetlinkSocket, name: str) -> bool:
    link = links.get_link(route, name)
    return link is not None and link.operstate == "up"


def known(route: NetlinkSocket) -> dict[str, str]:
    found = {entry.destination: entry.mac for entry in neighbours.list_neighbours(route)}
    return {address: found[address] for address in ("10.0.0.1", "fd00::1")}


def test_nothing_is_sent_on_links_that_are_not_ethernet(netns: Namespace) -> None:
    assert announce.announce("ib0", "80:" * 19 + "01", ["10.0.0.1"], namespace_fd=netns.fd) == 0


def test_no_addresses_need_no_packet(netns: Namespace) -> None:
    assert announce.announce("nothere", "02:00:00:00:00:01", [], namespace_fd=netns.fd) == 0


def test_an_interface_that_is_not_there_is_named(netns: Namespace) -> None:
    with pytest.raises(KernelError, match="cannot announce addresses on nothere: No such device"):
        announce.announce("nothere", "02:00:00:00:00:01", ["10.0.0.1"], namespace_fd=netns.fd)
