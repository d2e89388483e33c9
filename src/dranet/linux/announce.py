"""Gratuitous ARP, and unsolicited neighbour advertisements for IPv6.

Switches and peers cache hardware addresses for minutes; an interface that moved with a new one would be unreachable
until then. A packet socket is used, so there is no wait for duplicate address detection. Only for Ethernet: on other
links the call does nothing.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

from dranet.core.errors import KernelError
from dranet.linux import codec, namespaces

_ETH_ARP, _ETH_IPV6 = 0x0806, 0x86DD
_ICMP6, _ADVERTISEMENT, _OVERRIDE, _TARGET_LINK_ADDRESS = 58, 136, 0x20000000, 2
_BROADCAST = b"\xff" * 6
_ALL_NODES_MAC = bytes.fromhex("333300000001")
_ALL_NODES = socket.inet_pton(socket.AF_INET6, "ff02::1")


def announce(interface: str, mac: str, addresses: Iterable[str], *, namespace_fd: int | None = None) -> int:
    """Announce addresses (with or without prefix length) on an interface that is up; returns the number of packets."""
    hardware = codec.mac_bytes(mac)
    if len(hardware) != 6:
        return 0
    frames = [frame(hardware, address.partition("/")[0]) for address in addresses]
    if not frames:
        return 0
    try:
        with _open(interface, namespace_fd) as opened:
            for data in frames:
                opened.send(data)
    except OSError as error:
        raise KernelError(f"cannot announce addresses on {interface}: {error.strerror}") from error
    return len(frames)


def _open(interface: str, namespace_fd: int | None) -> socket.socket:
    def make() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        try:
            opened.bind((interface, 0))
        except OSError:
            opened.close()
            raise
        return opened

    return make() if namespace_fd is None else namespaces.run_inside(namespace_fd, make)


def frame(mac: bytes, address: str) -> bytes:
    """The Ethernet frame that announces one address."""
    return advertisement(mac, address) if ":" in address else gratuitous_arp(mac, address)


def gratuitous_arp(mac: bytes, address: str) -> bytes:
    """An ARP request for our own address, which updates all caches on the link."""
    packed = socket.inet_pton(socket.AF_INET, address)
    head = _BROADCAST + mac + struct.pack("!H", _ETH_ARP)
    return head + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + packed + b"\0" * 6 + packed


def advertisement(mac: bytes, address: str) -> bytes:
    """An unsolicited neighbour advertisement to all nodes, with the override flag."""
    source = socket.inet_pton(socket.AF_INET6, address)
    option = struct.pack("!BB", _TARGET_LINK_ADDRESS, 1) + mac
    body = struct.pack("!BBHI", _ADVERTISEMENT, 0, 0, _OVERRIDE) + source + option
    pseudo = source + _ALL_NODES + struct.pack("!II", len(body), _ICMP6)
    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
    head = struct.pack("!IHBB", 6 << 28, len(body), _ICMP6, 255) + source + _ALL_NODES
    return _ALL_NODES_MAC + mac + struct.pack("!H", _ETH_IPV6) + head + body


def checksum(data: bytes) -> int:
    """The Internet checksum."""
    padded = data + b"\0" * (len(data) & 1)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
