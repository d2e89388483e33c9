"""Nexthop objects: what routes with an `nhid` go through. The record, one dump, and the message to add one.

The kernel deletes the nexthops of a link that goes down or leaves its namespace, with the routes through them, and
takes them out of their groups.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping, Sequence
from socket import inet_ntop, inet_pton

import msgspec

from dranet.linux import codec
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message, number
from dranet.linux.netlink import NetlinkError, NetlinkSocket
from dranet.linux.routes import FLAG_ONLINK, Attributes, NextHop, Route

RTM_NEWNEXTHOP, _RTM_GETNEXTHOP = 104, 106
_NHMSG = struct.Struct("=BBBxI")
_MEMBER = struct.Struct("=IBBH")
_ID, _GROUP, _GROUP_TYPE, _OIF, _GATEWAY, _ENCAP_TYPE, _ENCAP, _FDB, _RESILIENT = 1, 2, 3, 5, 6, 7, 8, 11, 12
_KEPT = (_GROUP_TYPE, _ENCAP_TYPE, _ENCAP, _FDB, _RESILIENT)
_RESILIENT_SETTABLE = (1, 2, 3)  # the time it has been unbalanced is only reported
_ROUTE_ATTRIBUTES = {_ENCAP_TYPE: 21, _ENCAP: 22}


class Member(msgspec.Struct, frozen=True, gc=False):
    """A nexthop in a group, with its weight from 1."""

    id: int
    weight: int = 1


class Nexthop(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One nexthop object: a link with or without a gateway, or a group of others."""

    id: int
    family: int = 0
    index: int | None = None
    gateway: str | None = None
    protocol: int = 0
    flags: int = 0
    members: tuple[Member, ...] = ()
    others: Attributes = ()


def list_nexthops(socket: NetlinkSocket) -> list[Nexthop]:
    """All nexthop objects, by their number; none on a kernel without them (before 5.3)."""
    try:
        replies = socket.dump(Message(_RTM_GETNEXTHOP, 0, _NHMSG.pack(0, 0, 0, 0), "list the nexthops"))
    except NetlinkError as error:
        if error.errno == errno.EOPNOTSUPP:
            return []
        raise
    return sorted((_parse(reply.payload) for reply in replies if reply.type == RTM_NEWNEXTHOP), key=lambda one: one.id)


def _parse(payload: bytes) -> Nexthop:
    family, _, protocol, flags = _NHMSG.unpack_from(payload)
    found = codec.attributes(payload, _NHMSG.size)
    members = (_MEMBER.unpack_from(found[_GROUP], at) for at in range(0, len(found.get(_GROUP, b"")), _MEMBER.size))
    return Nexthop(
        id=number(found[_ID]),
        family=family,
        index=number(found[_OIF]) if _OIF in found else None,
        gateway=inet_ntop(family, found[_GATEWAY]) if _GATEWAY in found else None,
        protocol=protocol,
        flags=flags & FLAG_ONLINK,
        members=tuple(Member(id, (high << 8 | low) + 1) for id, low, high, _ in members),
        others=tuple((kind, found[kind]) for kind in _KEPT if kind in found),
    )


def add(one: Nexthop) -> Message:
    """Add a nexthop, EEXIST if its number is taken; a group is replaced."""
    parts = [_NHMSG.pack(one.family, 0, one.protocol, one.flags), codec.u32(_ID, one.id)]
    if one.members:
        packed = (_MEMBER.pack(m.id, (m.weight - 1) & 0xFF, (m.weight - 1) >> 8, 0) for m in one.members)
        parts.append(codec.attribute(_GROUP, b"".join(packed)))
    if one.index is not None:
        parts.append(codec.u32(_OIF, one.index))
    if one.gateway is not None:
        parts.append(codec.attribute(_GATEWAY, inet_pton(one.family, one.gateway)))
    parts += [_packed_other(kind, value) for kind, value in one.others]
    how = NLM_F_CREATE | (NLM_F_REPLACE if one.members else NLM_F_EXCL)
    return Message(RTM_NEWNEXTHOP, how, b"".join(parts), f"add the nexthop {one.id}")


def _packed_other(kind: int, value: bytes) -> bytes:
    if kind == _RESILIENT:
        settings = [(k, v) for k, v in codec.attribute_list(value) if k in _RESILIENT_SETTABLE]
        return codec.nested(kind, *(codec.attribute(k, v) for k, v in settings))
    return codec.nested(kind, value) if kind == _ENCAP else codec.attribute(kind, value)


def resolve(route: Route, known: Mapping[int, Nexthop]) -> Route:
    """The route with the links and gateways of its nexthop object. The kernel reports them only in compatible mode."""
    one = known.get(route.nexthop_id or 0)
    if one is None or route.index is not None or route.next_hops:
        return route
    if not one.members:
        encap = tuple((_ROUTE_ATTRIBUTES[kind], value) for kind, value in one.others if kind in _ROUTE_ATTRIBUTES)
        others = (*route.others, *encap)
        return msgspec.structs.replace(route, index=one.index, gateway=one.gateway, others=others)
    hops = [(known[member.id], member.weight) for member in one.members if member.id in known]
    return msgspec.structs.replace(
        route,
        next_hops=tuple(NextHop(index=hop.index or 0, gateway=hop.gateway, weight=weight) for hop, weight in hops),
    )


def of_link(index: int, known: Sequence[Nexthop]) -> list[Nexthop]:
    """The nexthops through a link, and the groups with one of them, in an order in which they can be added."""
    own = [one for one in known if one.index == index]
    ids = {one.id for one in own}
    return own + [one for one in known if any(member.id in ids for member in one.members)]
