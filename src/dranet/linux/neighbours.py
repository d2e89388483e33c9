"""Neighbour tables (ARP and NDP): the record, reading, and the messages to add and delete.

Proxy entries have their own table, which the kernel dumps only on an explicit request.
"""

from __future__ import annotations

import struct
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

import msgspec

from dranet.linux import codec
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message, mac_text, number
from dranet.linux.netlink import NetlinkSocket

RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
NUD_STALE, NUD_NOARP, NUD_PERMANENT = 0x04, 0x40, 0x80
NTF_PROXY = 0x08

_NDMSG = struct.Struct("=BxxxiHBB")
_ANY = 0xFFFF
_DESTINATION, _HARDWARE, _PROTOCOL, _FLAGS_EXT = 1, 2, 12, 15


class Neighbour(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One neighbour entry; `mac` is empty for proxy entries and those not yet resolved."""

    family: int
    index: int
    destination: str
    mac: str = ""
    state: int = NUD_PERMANENT
    flags: int = 0
    type: int = 0
    protocol: int = 0
    extended_flags: int = 0

    @property
    def is_permanent(self) -> bool:
        return bool(self.state & NUD_PERMANENT)

    @property
    def is_proxy(self) -> bool:
        return bool(self.flags & NTF_PROXY)


def list_neighbours(socket: NetlinkSocket, *, proxies: bool = False, states: int = _ANY) -> list[Neighbour]:
    """All IPv4 and IPv6 neighbours, or all proxy entries; one dump. Entries in other `states` are not parsed."""
    flags = NTF_PROXY if proxies else 0
    request = Message(RTM_GETNEIGH, 0, _NDMSG.pack(0, 0, 0, flags, 0), "list the neighbours")
    payloads = [reply.payload for reply in socket.dump(request) if reply.type == RTM_NEWNEIGH]
    found = [parse(payload) for payload in payloads if states == _ANY or _NDMSG.unpack_from(payload)[2] & states]
    return sorted(
        (entry for entry in found if entry is not None),
        key=lambda entry: (entry.index, entry.family, entry.destination),
    )


def parse(payload: bytes) -> Neighbour | None:
    """A Neighbour from the payload of an RTM_NEWNEIGH; None for bridge entries and other families."""
    family, index, state, flags, kind = _NDMSG.unpack_from(payload)
    found = codec.attributes(payload, _NDMSG.size)
    if family not in (AF_INET, AF_INET6) or _DESTINATION not in found:
        return None
    return Neighbour(
        family=family,
        index=index,
        destination=inet_ntop(family, found[_DESTINATION]),
        mac=mac_text(found.get(_HARDWARE, b"")),
        state=state,
        flags=flags,
        type=kind,
        protocol=number(found.get(_PROTOCOL, b"")),
        extended_flags=number(found.get(_FLAGS_EXT, b"")),
    )


def permanent(index: int, destination: str, mac: str) -> Neighbour:
    """A permanent entry to add."""
    family = AF_INET6 if ":" in destination else AF_INET
    return Neighbour(family=family, index=index, destination=destination, mac=mac)


def add(entry: Neighbour, *, replace: bool = False) -> Message:
    flags = NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    return Message(RTM_NEWNEIGH, flags, _payload(entry), f"add the neighbour {entry.destination} on link {entry.index}")


def delete(entry: Neighbour) -> Message:
    """Delete a neighbour, also a permanent one."""
    what = f"delete the neighbour {entry.destination} of link {entry.index}"
    return Message(RTM_DELNEIGH, 0, _payload(entry), what)


def _payload(entry: Neighbour) -> bytes:
    parts = [
        _NDMSG.pack(entry.family, entry.index, entry.state, entry.flags, 0),
        codec.attribute(_DESTINATION, inet_pton(entry.family, entry.destination)),
    ]
    if entry.mac:
        parts.append(codec.attribute(_HARDWARE, codec.mac_bytes(entry.mac)))
    if entry.protocol:
        parts.append(codec.u8(_PROTOCOL, entry.protocol))
    if entry.extended_flags:
        parts.append(codec.u32(_FLAGS_EXT, entry.extended_flags))
    return b"".join(parts)
