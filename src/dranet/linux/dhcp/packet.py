"""Encoding and decoding of DHCPv4 messages for a client. Pure functions.

Only what a client needs: the lease and its times, mask, routers, classless routes, MTU. Names and name servers are
ignored. Replies come from the network and may contain anything, so parsing never raises: malformed parts are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from socket import AF_INET, inet_aton, inet_ntop

import msgspec

from dranet.linux.announce import checksum

DISCOVER, OFFER, REQUEST, DECLINE, ACK, NAK, RELEASE = range(1, 8)
SERVER_PORT, CLIENT_PORT = 67, 68
_COOKIE = b"\x63\x82\x53\x63"
_BOOTP = struct.Struct("!BBBBIHH4s4s4s4s16s64s128s")
_REQUEST, _REPLY, _BROADCAST_FLAG = 1, 2, 0x8000
_MASK, _ROUTER, _MTU, _REQUESTED, _LEASE, _TYPE, _SERVER = 1, 3, 26, 50, 51, 53, 54
_PARAMETERS, _T1, _T2, _CLIENT_ID, _CLASSLESS = 55, 58, 59, 61, 121
_WANTED = bytes((_MASK, _CLASSLESS, _ROUTER, _MTU, _LEASE, _T1, _T2))
_SMALLEST_LEASE, _SMALLEST_MTU = 60, 576
_ETHERNET, _INFINIBAND = 1, 32


class Lease(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a server granted. Times are seconds from the moment it was granted.

    Renew after `renew_after`, ask any server after `rebind_after`, stop using the address after `lifetime`. `routes`
    are pairs of destination and gateway; the gateway of an on-link route is empty.
    """

    address: str
    prefix: int
    server: str
    lifetime: int
    renew_after: int
    rebind_after: int
    routers: tuple[str, ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    mtu: int | None = None

    @property
    def effective_routes(self) -> tuple[tuple[str, str], ...]:
        """The routes to set: classless ones if there are any, else a default route by the first router (RFC 3442)."""
        if self.routes or not self.routers:
            return self.routes
        return (("0.0.0.0/0", self.routers[0]),)


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A server's message: its type, the address it speaks of and its options."""

    type: int
    transaction: int
    address: str
    options: dict[int, bytes]

    @property
    def server(self) -> str:
        value = self.options.get(_SERVER, b"")
        return inet_ntop(AF_INET, value) if len(value) == 4 else ""


def build(
    kind: int,
    transaction: int,
    mac: bytes,
    *,
    client: str = "0.0.0.0",
    requested: str | None = None,
    server: str | None = None,
) -> bytes:
    """A client's message, from the BOOTP header to the end option."""
    ethernet = len(mac) == 6
    hardware = (_ETHERNET, 6, mac.ljust(16, b"\0")) if ethernet else (_INFINIBAND, 0, bytes(16))
    flags = _BROADCAST_FLAG if client == "0.0.0.0" else 0
    head = (_REQUEST, hardware[0], hardware[1], 0, transaction, 0, flags, inet_aton(client))
    options = {_TYPE: bytes((kind,)), _CLIENT_ID: _client_identifier(mac)}
    if requested is not None:
        options[_REQUESTED] = inet_aton(requested)
    if server is not None:
        options[_SERVER] = inet_aton(server)
    if kind in (DISCOVER, REQUEST):
        options[_PARAMETERS] = _WANTED
    body = _BOOTP.pack(*head, bytes(4), bytes(4), bytes(4), hardware[2], bytes(64), bytes(128))
    packed = b"".join(bytes((code, len(value))) + value for code, value in sorted(options.items()))
    return (body + _COOKIE + packed + b"\xff").ljust(300, b"\0")


def _client_identifier(mac: bytes) -> bytes:
    """Ethernet: the hardware address. InfiniBand's 20 bytes do not fit the header (RFC 4390): an opaque identifier."""
    return b"\x01" + mac if len(mac) == 6 else b"\xff" + mac[-4:] + b"\0\x03\0\x20" + mac


def parse(data: bytes) -> Answer | None:
    """A server's message; None for anything else."""
    if len(data) < _BOOTP.size + 4 or data[_BOOTP.size : _BOOTP.size + 4] != _COOKIE:
        return None
    operation, _, _, _, transaction, _, _, _, address, *_ = _BOOTP.unpack_from(data)
    options = _read_options(data, _BOOTP.size + 4)
    kind = options.get(_TYPE, b"")
    if operation != _REPLY or len(kind) != 1:
        return None
    return Answer(kind[0], transaction, inet_ntop(AF_INET, address), options)


def _read_options(data: bytes, offset: int) -> dict[int, bytes]:
    """Options by code; the parts of a split option are joined (RFC 3396)."""
    found: dict[int, bytes] = {}
    while offset < len(data) and data[offset] != 255:
        if data[offset] == 0:
            offset += 1
            continue
        if offset + 2 > len(data):
            break
        code, length = data[offset], data[offset + 1]
        value = data[offset + 2 : offset + 2 + length]
        if len(value) < length:
            break
        found[code] = found.get(code, b"") + value
        offset += 2 + length
    return found


def lease_from(answer: Answer) -> Lease | None:
    """The lease an ACK grants; None if the server omitted something required."""
    options = answer.options
    mask = options.get(_MASK, b"")
    prefix = _prefix(mask) if len(mask) == 4 else 32
    lifetime = _number(options, _LEASE)
    if answer.address == "0.0.0.0" or prefix is None or not answer.server or lifetime is None:
        return None
    lifetime = max(lifetime, _SMALLEST_LEASE)
    rebind = min(_number(options, _T2) or lifetime * 7 // 8, lifetime)
    mtu = _number(options, _MTU)
    return Lease(
        address=answer.address,
        prefix=prefix,
        server=answer.server,
        lifetime=lifetime,
        renew_after=min(_number(options, _T1) or lifetime // 2, rebind),
        rebind_after=rebind,
        routers=_addresses(options.get(_ROUTER, b"")),
        routes=classless_routes(options.get(_CLASSLESS, b"")),
        mtu=mtu if mtu is not None and mtu >= _SMALLEST_MTU else None,
    )


def _number(options: Mapping[int, bytes], code: int) -> int | None:
    value = options.get(code, b"")
    return int.from_bytes(value, "big") if len(value) in (2, 4) else None


def _prefix(mask: bytes) -> int | None:
    bits = f"{int.from_bytes(mask, 'big'):032b}"
    length = bits.count("1")
    return length if bits.startswith("1" * length) else None


def _addresses(value: bytes) -> tuple[str, ...]:
    return tuple(inet_ntop(AF_INET, value[i : i + 4]) for i in range(0, len(value) - 3, 4))


def classless_routes(value: bytes) -> tuple[tuple[str, str], ...]:
    """Option 121: prefix length, the destination's significant bytes, the router; repeated."""
    found: list[tuple[str, str]] = []
    offset = 0
    while offset < len(value):
        length = value[offset]
        significant = (length + 7) // 8
        end = offset + 1 + significant + 4
        if length > 32 or end > len(value):
            break
        network = int.from_bytes(value[offset + 1 : offset + 1 + significant].ljust(4, b"\0"), "big")
        network &= (0xFFFFFFFF << (32 - length)) & 0xFFFFFFFF
        gateway = inet_ntop(AF_INET, value[end - 4 : end])
        destination = f"{inet_ntop(AF_INET, network.to_bytes(4, 'big'))}/{length}"
        found.append((destination, "" if gateway == "0.0.0.0" else gateway))
        offset = end
    return tuple(found)


def ip_packet(payload: bytes, source: str, destination: str) -> bytes:
    """IPv4 and UDP around a client's message."""
    udp_length = 8 + len(payload)
    pseudo = inet_aton(source) + inet_aton(destination) + struct.pack("!BBH", 0, 17, udp_length)
    udp = struct.pack("!HHHH", CLIENT_PORT, SERVER_PORT, udp_length, 0)
    udp = udp[:6] + struct.pack("!H", checksum(pseudo + udp + payload) or 0xFFFF)
    head = struct.pack("!BBHHHBBH", 0x45, 0x10, 20 + udp_length, 0, 0, 64, 17, 0)
    head += inet_aton(source) + inet_aton(destination)
    head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
    return head + udp + payload


def udp_payload(packet: bytes) -> bytes | None:
    """The payload of a packet to the client port, else None. Checksums are left to the NIC."""
    if len(packet) < 28 or packet[0] >> 4 != 4 or packet[9] != 17:
        return None
    start = (packet[0] & 0x0F) * 4
    if start < 20 or int.from_bytes(packet[6:8], "big") & 0x1FFF or len(packet) < start + 8:
        return None
    _, port, length, _ = struct.unpack_from("!HHHH", packet, start)
    return packet[start + 8 : start + length] if port == CLIENT_PORT and length >= 8 else None
