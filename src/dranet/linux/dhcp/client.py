"""A small DHCPv4 client on one link: obtain, renew and release a lease.

It uses a packet socket, so the link needs no address, and a lease can be obtained before the link moves to another
namespace; the link must be up. Every call has a time budget. As RFC 2131 says, `renew` asks only the server that
granted the lease, and `rebind`, for the time after T2, any server. A NAK raises `LeaseRefused`: stop using the address.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import socket
import struct
import time
from collections.abc import Callable

from dranet.core.errors import KernelError
from dranet.linux import codec, namespaces
from dranet.linux.dhcp.packet import (
    ACK,
    CLIENT_PORT,
    DISCOVER,
    NAK,
    OFFER,
    RELEASE,
    REQUEST,
    SERVER_PORT,
    Answer,
    Lease,
    build,
    ip_packet,
    lease_from,
    parse,
    udp_payload,
)

__all__ = ["DhcpClient", "DhcpError", "Lease", "LeaseRefused"]

_ETH_IPV4 = 0x0800
_BROADCAST = "255.255.255.255"
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0
_SO_ATTACH_FILTER = 26
# Classic BPF, from the IP header on: UDP, not a later fragment, to the client port. So other traffic does not wake us.
_FILTER = (
    (0x30, 0, 0, 9),
    (0x15, 0, 6, 17),
    (0x28, 0, 0, 6),
    (0x45, 4, 0, 0x1FFF),
    (0xB1, 0, 0, 0),
    (0x48, 0, 0, 2),
    (0x15, 0, 1, CLIENT_PORT),
    (0x06, 0, 0, 0xFFFF),
    (0x06, 0, 0, 0),
)


class DhcpError(KernelError):
    """No lease was obtained."""


class LeaseRefused(DhcpError):
    """A server refused the lease; the address must not be used (any more)."""


class DhcpClient(namespaces.Closeable):
    """A client on one interface of one namespace. `clock` and `number` are for deterministic tests."""

    def __init__(
        self,
        interface: str,
        mac: str,
        *,
        namespace_fd: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        number: Callable[[], int] = lambda: int.from_bytes(os.urandom(4), "big"),
    ) -> None:
        self._interface = interface
        self._mac = codec.mac_bytes(mac)
        self._namespace_fd = namespace_fd
        self._clock = clock
        self._number = number
        self._packets = self._inside(self._open_packets)

    def close(self) -> None:
        self._packets.close()

    def obtain(self, budget: float) -> Lease:
        """A new lease within `budget` seconds."""
        deadline = self._clock() + budget
        number = self._number()
        discover = build(DISCOVER, number, self._mac)
        offer = self._ask(self._broadcast, discover, _answers(number, OFFER), deadline)
        if offer is None:
            raise self._silence("DISCOVER", budget)
        request = build(REQUEST, number, self._mac, requested=offer.address, server=offer.server or None)
        return self._grant(self._ask(self._broadcast, request, _answers(number, ACK, NAK), deadline), "REQUEST", budget)

    def renew(self, lease: Lease, budget: float) -> Lease:
        """The lease again, from its own server. Answers of other servers do not count, refusals included."""
        number = self._number()
        renewed = _renews(number, lease)
        with self._open_udp(lease) as server:
            answer = self._ask(
                _send_if_reachable(server),
                build(REQUEST, number, self._mac, client=lease.address),
                lambda answer: renewed(answer) and answer.server == lease.server,
                self._clock() + budget,
            )
        return self._grant(answer, f"REQUEST to {lease.server} to renew {lease.address}", budget)

    def rebind(self, lease: Lease, budget: float) -> Lease:
        """The lease again, from any server."""
        number = self._number()
        request = build(REQUEST, number, self._mac, client=lease.address)
        answer = self._ask(self._broadcast_from(lease), request, _renews(number, lease), self._clock() + budget)
        return self._grant(answer, f"REQUEST to all servers to renew {lease.address}", budget)

    def release(self, lease: Lease) -> None:
        """Release the lease; there is no reply."""
        message = build(RELEASE, self._number(), self._mac, client=lease.address, server=lease.server)
        self._send(ip_packet(message, lease.address, lease.server))

    def _grant(self, answer: Answer | None, asked: str, budget: float) -> Lease:
        if answer is None:
            raise self._silence(asked, budget)
        if answer.type == NAK:
            raise LeaseRefused(f"the DHCP server {answer.server or '(unnamed)'} refused the lease on {self._interface}")
        lease = lease_from(answer)
        if lease is None:
            raise DhcpError(
                f"the DHCP server {answer.server or '(unnamed)'} on {self._interface} granted {answer.address} without "
                "a usable mask, lease time or server identifier; check its configuration"
            )
        return lease

    def _silence(self, asked: str, budget: float) -> DhcpError:
        return DhcpError(
            f"no DHCP server answered the {asked} on {self._interface} within {budget:g} s; "
            "is the link up and does its network have a server?"
        )

    def _ask(
        self, send: Callable[[bytes], None], message: bytes, expected: Callable[[Answer], bool], deadline: float
    ) -> Answer | None:
        """Send, and resend after growing delays, until an expected answer or the deadline."""
        wait = _FIRST_WAIT
        while self._clock() < deadline:
            send(message)
            answer = self._await(expected, min(self._clock() + wait, deadline))
            if answer is not None:
                return answer
            wait = min(wait * 2, _LONGEST_WAIT)
        return None

    def _await(self, expected: Callable[[Answer], bool], deadline: float) -> Answer | None:
        """On the packet socket, also for answers to UDP: a server broadcasts its NAK."""
        waiting = select.poll()
        waiting.register(self._packets, select.POLLIN)
        while (left := deadline - self._clock()) > 0:
            if not waiting.poll(left * 1000):
                return None
            payload = udp_payload(self._packets.recv(65536))
            answer = parse(payload) if payload is not None else None
            if answer is not None and expected(answer):
                return answer
        return None

    def _broadcast(self, message: bytes) -> None:
        self._send(ip_packet(message, "0.0.0.0", _BROADCAST))

    def _broadcast_from(self, lease: Lease) -> Callable[[bytes], None]:
        return lambda message: self._send(ip_packet(message, lease.address, _BROADCAST))

    def _send(self, packet: bytes) -> None:
        try:
            self._packets.sendto(packet, (self._interface, _ETH_IPV4, 0, 0, b"\xff" * 6))
        except OSError as error:
            raise DhcpError(f"cannot send DHCP packets on {self._interface}: {error.strerror}; is it up?") from error

    def _inside(self, make: Callable[[], socket.socket]) -> socket.socket:
        return make() if self._namespace_fd is None else namespaces.run_inside(self._namespace_fd, make)

    def _open_packets(self) -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0)
        try:
            _attach_filter(opened)
            opened.bind((self._interface, _ETH_IPV4))
        except OSError as error:
            opened.close()
            raise DhcpError(f"cannot listen for DHCP on {self._interface}: {error.strerror}") from error
        return opened

    def _open_udp(self, lease: Lease) -> socket.socket:
        """A socket from the leased address to the lease's server, routed by the kernel."""
        try:
            return self._inside(lambda: _connected(self._interface, lease))
        except OSError as error:
            raise DhcpError(
                f"cannot reach the DHCP server {lease.server} from {lease.address} on {self._interface}: "
                f"{error.strerror}"
            ) from error


def _connected(interface: str, lease: Lease) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode() + b"\0")
        opened.bind((lease.address, CLIENT_PORT))
        opened.connect((lease.server, SERVER_PORT))
    except OSError:
        opened.close()
        raise
    return opened


def _send_if_reachable(opened: socket.socket) -> Callable[[bytes], None]:
    """A server that is unreachable now is asked again, like one that does not answer."""

    def send(message: bytes) -> None:
        with contextlib.suppress(OSError):
            opened.send(message)

    return send


def _answers(number: int, *types: int) -> Callable[[Answer], bool]:
    return lambda answer: answer.transaction == number and answer.type in types


def _renews(number: int, lease: Lease) -> Callable[[Answer], bool]:
    """Not a grant of another address: the pod uses this one, and that grant would leave it to others."""
    ours = _answers(number, ACK, NAK)
    return lambda answer: ours(answer) and (answer.type == NAK or answer.address == lease.address)


def _attach_filter(opened: socket.socket) -> None:
    code = b"".join(struct.pack("=HBBI", *step) for step in _FILTER)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(_FILTER), ctypes.addressof(buffer))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
