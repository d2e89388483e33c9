"""IP addresses of links: the record, one dump for both families, and the messages to add and delete.

For IPv4 the kernel has two addresses: `local` is ours, `peer` differs only on point-to-point links. A record can be
written back unchanged. Note that setting a link down deletes its global IPv6 addresses.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

import msgspec

from dranet.linux import codec
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message, number, string
from dranet.linux.netlink import NetlinkSocket

RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
IFA_F_SECONDARY, IFA_F_NODAD, IFA_F_TENTATIVE, IFA_F_PERMANENT = 0x01, 0x02, 0x40, 0x80
IFA_F_MANAGETEMPADDR, IFA_F_NOPREFIXROUTE, IFA_F_MCAUTOJOIN = 0x100, 0x200, 0x400
SCOPE_UNIVERSE, SCOPE_LINK, SCOPE_HOST = 0, 253, 254
FOREVER = 0xFFFFFFFF

# Flags that a request may set; the kernel sets the others (tentative, secondary, permanent, ...).
_SETTABLE_FLAGS = IFA_F_NODAD | 0x04 | 0x10 | IFA_F_MANAGETEMPADDR | IFA_F_NOPREFIXROUTE | IFA_F_MCAUTOJOIN

_IFADDR = struct.Struct("=BBBBI")
_CACHEINFO = struct.Struct("=IIII")
_ADDRESS, _LOCAL, _LABEL, _BROADCAST, _CACHE, _FLAGS, _PRIORITY, _PROTOCOL = 1, 2, 3, 4, 6, 8, 9, 11


class Address(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One address on a link; `preferred` and `valid` are lifetimes in seconds, or FOREVER."""

    family: int
    index: int
    local: str
    prefix: int
    peer: str | None = None
    broadcast: str | None = None
    scope: int = SCOPE_UNIVERSE
    flags: int = 0
    label: str = ""
    preferred: int = FOREVER
    valid: int = FOREVER
    metric: int = 0
    protocol: int = 0

    @property
    def cidr(self) -> str:
        return f"{self.local}/{self.prefix}"


def list_addresses(socket: NetlinkSocket, index: int | None = None) -> list[Address]:
    """All addresses of both families, in the kernel's order within a link; `index` selects one link."""
    request = Message(RTM_GETADDR, 0, _IFADDR.pack(0, 0, 0, 0, 0), "list the addresses")
    found = [parse(reply.payload) for reply in socket.dump(request) if reply.type == RTM_NEWADDR]
    wanted = found if index is None else [address for address in found if address.index == index]
    return sorted(wanted, key=lambda address: (address.index, address.family))


@lru_cache(maxsize=1024)
def parse(payload: bytes) -> Address:
    """An Address from the payload of an RTM_NEWADDR or RTM_DELADDR. Cached, because dumps repeat."""
    family, prefix, flags, scope, index = _IFADDR.unpack_from(payload)
    found = codec.attributes(payload, _IFADDR.size)
    address = found.get(_ADDRESS) or found[_LOCAL]
    local = found.get(_LOCAL) or address
    preferred, valid, _, _ = _CACHEINFO.unpack_from(found[_CACHE]) if _CACHE in found else (FOREVER, FOREVER, 0, 0)
    return Address(
        family=family,
        index=index,
        local=inet_ntop(family, local),
        prefix=prefix,
        peer=inet_ntop(family, address) if address != local else None,
        broadcast=inet_ntop(family, found[_BROADCAST]) if _BROADCAST in found else None,
        scope=scope,
        flags=number(found[_FLAGS]) if _FLAGS in found else flags,
        label=string(found.get(_LABEL, b"")),
        preferred=preferred,
        valid=valid,
        metric=number(found.get(_PRIORITY, b"")),
        protocol=number(found.get(_PROTOCOL, b"")),
    )


def from_cidr(cidr: str, index: int, **fields: object) -> Address:
    """An Address to add, from `address/prefix`."""
    local, _, prefix = cidr.partition("/")
    family = AF_INET6 if ":" in local else AF_INET
    length = int(prefix) if prefix else (128 if family == AF_INET6 else 32)
    plain = Address(family=family, index=index, local=local, prefix=length)
    return msgspec.structs.replace(plain, **fields)


def add(address: Address, *, replace: bool = False) -> Message:
    """Add; EEXIST if the address exists, unless `replace`."""
    flags = NLM_F_CREATE | (NLM_F_REPLACE if replace else NLM_F_EXCL)
    return Message(RTM_NEWADDR, flags, _payload(address), f"add {address.cidr} to link {address.index}")


def delete(address: Address) -> Message:
    """Delete; the kernel identifies an address by address, prefix and link."""
    return Message(RTM_DELADDR, 0, _payload(address), f"delete {address.cidr} from link {address.index}")


def _payload(address: Address) -> bytes:
    family, flags = address.family, address.flags & _SETTABLE_FLAGS
    parts = [
        _IFADDR.pack(family, address.prefix, flags & 0xFF, address.scope, address.index),
        codec.attribute(_LOCAL, inet_pton(family, address.local)),
        codec.attribute(_ADDRESS, inet_pton(family, address.peer or address.local)),
        codec.u32(_FLAGS, flags),
    ]
    if address.broadcast:
        parts.append(codec.attribute(_BROADCAST, inet_pton(family, address.broadcast)))
    if address.label:
        parts.append(codec.text(_LABEL, address.label))
    if address.valid != FOREVER or address.preferred != FOREVER:
        parts.append(codec.attribute(_CACHE, _CACHEINFO.pack(address.preferred, address.valid, 0, 0)))
    if address.metric:
        parts.append(codec.u32(_PRIORITY, address.metric))
    if address.protocol:
        parts.append(codec.u8(_PROTOCOL, address.protocol))
    return b"".join(parts)
