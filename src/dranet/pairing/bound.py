"""Sockets that can use one card only: bound to its address and to its interface.

The address alone is not enough: with two cards in one subnet the kernel would send by the first of them. Linux lets
anybody bind a socket to an interface since 5.7, so the check needs no capability.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct

from dranet.pairing.values import Card

_MTU_DISCOVER, _MTU_DISCOVER_6, _PROBE, _DONT_FRAGMENT_6 = 10, 23, 3, 62
_TOTAL_RETRANS, _BYTES_ACKED = 100, 120
"""Where they lie in the kernel's struct tcp_info."""


def headers(address: str) -> int:
    """Bytes of IP and UDP before what a datagram carries."""
    return 48 if ":" in address else 28


def bound(card: Card, kind: socket.SocketKind, port: int = 0) -> socket.socket:
    """A socket of this card; the caller closes it."""
    family = socket.AF_INET6 if ipaddress.ip_address(card.address).version == 6 else socket.AF_INET
    made = socket.socket(family, kind)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, card.name.encode())
        made.bind((card.address, port))
    except OSError:
        made.close()
        raise
    return made


def never_fragment(made: socket.socket) -> None:
    """Set DF, and send whatever the interface takes even where the kernel believes that the path is narrower."""
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, _MTU_DISCOVER_6, _PROBE)
        made.setsockopt(socket.IPPROTO_IPV6, _DONT_FRAGMENT_6, 1)
    else:
        made.setsockopt(socket.IPPROTO_IP, _MTU_DISCOVER, _PROBE)


def acknowledged(made: socket.socket) -> tuple[int, int]:
    """Bytes that the other side has acknowledged, and segments that were sent again."""
    facts = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    (again,) = struct.unpack_from("=I", facts, _TOTAL_RETRANS)
    (bytes_acked,) = struct.unpack_from("=Q", facts, _BYTES_ACKED)
    return bytes_acked, again


_WORDS = {
    errno.ECONNREFUSED: "refused: nobody listens there",
    errno.ENETUNREACH: "no route to it",
    errno.EHOSTUNREACH: "no such neighbour on the wire",
    errno.ENODEV: "the pod has no such interface",
    errno.EADDRNOTAVAIL: "the interface does not have this address",
    errno.ENETDOWN: "the interface is down",
}


def in_words(error: OSError) -> str:
    """What the kernel refused, for people."""
    if isinstance(error, TimeoutError):
        return "no answer (time-out)"
    return _WORDS.get(error.errno or 0, error.strerror or str(error))
