"""Routes of both families and all tables: the record, one dump, and the messages to add and delete.

A record can be written back unchanged: attributes without a field are kept as bytes in `others`, and metrics too. A
default route has the destination `0.0.0.0/0` or `::/0`. A gateway must be reachable when a route is added, so add
link-scope routes first. Setting a link down deletes its routes.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

import msgspec

from dranet.linux import codec
from dranet.linux.codec import NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, Message, Reply, number
from dranet.linux.netlink import NetlinkSocket

RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
TABLE_UNSPECIFIED, TABLE_DEFAULT, TABLE_MAIN, TABLE_LOCAL = 0, 253, 254, 255
SCOPE_UNIVERSE, SCOPE_LINK, SCOPE_HOST = 0, 253, 254
PROTOCOL_KERNEL, PROTOCOL_BOOT, PROTOCOL_STATIC, PROTOCOL_RA, PROTOCOL_DHCP = 2, 3, 4, 9, 16
TYPE_UNICAST = 1
FLAG_PERVASIVE, FLAG_ONLINK = 2, 4
METRIC_MTU = 2

_SETTABLE_FLAGS = FLAG_PERVASIVE | FLAG_ONLINK
_RTMSG = struct.Struct("=BBBBBBBBI")
_PROTOCOL_AT = 5
_NEXTHOP = struct.Struct("=HBBi")
_CACHEINFO_EXPIRES = struct.Struct("=8xi")
_DST, _SRC, _IIF, _OIF, _GATEWAY, _PRIORITY, _PREFSRC, _METRICS, _MULTIPATH = range(1, 10)
_CACHEINFO, _TABLE, _VIA, _PREF, _EXPIRES, _PAD, _NH_ID = 12, 15, 18, 20, 23, 24, 30
_NAMED = {_DST, _SRC, _IIF, _OIF, _GATEWAY, _PRIORITY, _PREFSRC, _METRICS, _MULTIPATH, _CACHEINFO, _TABLE, _VIA, _PAD}
_TICKS = os.sysconf("SC_CLK_TCK")

Attributes = tuple[tuple[int, bytes], ...]


class NextHop(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One next hop of a multipath route; `weight` counts from 1."""

    index: int
    gateway: str | None = None
    weight: int = 1
    flags: int = 0
    others: Attributes = ()


class Route(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One route. `index` is the outgoing link (None for multipath and for routes to nowhere)."""

    family: int
    destination: str
    index: int | None = None
    gateway: str | None = None
    preferred_source: str | None = None
    source: str | None = None
    table: int = TABLE_MAIN
    metric: int = 0
    scope: int = SCOPE_UNIVERSE
    protocol: int = PROTOCOL_BOOT
    type: int = TYPE_UNICAST
    tos: int = 0
    flags: int = 0
    metrics: Attributes = ()
    next_hops: tuple[NextHop, ...] = ()
    expires: int = 0
    others: Attributes = ()

    @property
    def is_default(self) -> bool:
        return self.destination in ("0.0.0.0/0", "::/0")

    @property
    def mtu(self) -> int | None:
        return next((number(value) for kind, value in self.metrics if kind == METRIC_MTU), None)

    @property
    def nexthop_id(self) -> int | None:
        """The number of its nexthop object; see `nexthops`."""
        return next((number(value) for kind, value in self.others if kind == _NH_ID), None)

    def leaves_by(self, index: int) -> bool:
        """Whether any of its next hops is on this link."""
        return self.index == index or any(hop.index == index for hop in self.next_hops)


def without_nexthop_object(others: Attributes) -> Attributes:
    """The attributes of a route that has its link and gateway itself."""
    return tuple((kind, value) for kind, value in others if kind != _NH_ID)


def to(destination: str, **fields: object) -> Route:
    """A route to add, from its destination in `address/prefix` form; `mtu` is accepted besides the fields."""
    family = AF_INET6 if ":" in destination else AF_INET
    mtu = fields.pop("mtu", None)
    if isinstance(mtu, int):
        fields["metrics"] = ((METRIC_MTU, struct.pack("=I", mtu)),)
    return msgspec.structs.replace(Route(family=family, destination=destination), **fields)


def list_routes(socket: NetlinkSocket, *, family: int = 0, table: int | None = None) -> list[Route]:
    """All IPv4 and IPv6 routes, or those of one table; one dump."""
    found = _parse_all(_dump(socket, family, table))
    return [route for route in found if table in (None, route.table)]


def list_default_like_routes(socket: NetlinkSocket) -> list[Route]:
    """Default routes and large parts of one (see `is_default_like`) of all tables except `local`, IPv4 first."""
    found = _parse_all(payload for payload in _dump(socket, 0, None) if payload[1] <= 3 and is_default_like(payload))
    wanted = [route for route in found if route.table != TABLE_LOCAL]
    return sorted(wanted, key=lambda route: (route.family, route.table, route.metric))


def is_default_like(payload: bytes) -> bool:
    """A default route, or a large part: halves (0/1, 128/1) override a default, and 2000::/3 is global IPv6."""
    return payload[1] <= (3 if payload[0] == AF_INET6 else 1)


def lookup_route(socket: NetlinkSocket, address: str, *, source: str = "", index: int = 0) -> Route | None:
    """The route of packets to this address (`ip route get`), or None. RDMA asks with its source and interface."""
    family = AF_INET6 if ":" in address else AF_INET
    packed = inet_pton(family, address)
    bits = len(packed) * 8
    head = _RTMSG.pack(family, bits, bits if source else 0, 0, 0, 0, 0, 0, 0)
    body = codec.attribute(_DST, packed)
    body += codec.attribute(_SRC, inet_pton(family, source)) if source else b""
    body += codec.attribute(_OIF, struct.pack("=I", index)) if index else b""
    question = Message(RTM_GETROUTE, 0, head + body, f"look up the route to {address}")
    (answer,) = socket.ask([question])
    if isinstance(answer, Reply):
        return parse(answer.payload)
    if answer.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL):
        return None  # no route, or an unreachable, prohibit or blackhole route
    raise answer


def list_configured_routes(socket: NetlinkSocket) -> list[Route]:
    """Routes of all types and tables that users and programs added.

    Those that the kernel creates itself are skipped without parsing.
    """
    return _parse_all(filter(_is_configured, _dump(socket, 0, None)))


def _is_configured(payload: bytes) -> bool:
    return payload[_PROTOCOL_AT] not in (PROTOCOL_KERNEL, PROTOCOL_RA)


def _parse_all(payloads: Iterable[bytes]) -> list[Route]:
    """Those of IPv4 and IPv6, by family and table."""
    found = (parse(payload) for payload in payloads)
    return sorted((route for route in found if route is not None), key=lambda route: (route.family, route.table))


def _dump(socket: NetlinkSocket, family: int, table: int | None) -> list[bytes]:
    """One dump; a kernel with strict checking (4.20 and newer) filters by table itself."""
    payload = _RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0) + (codec.u32(_TABLE, table) if table is not None else b"")
    replies = socket.dump(Message(RTM_GETROUTE, 0, payload, "list the routes"))
    return [reply.payload for reply in replies if reply.type == RTM_NEWROUTE]


def parse(payload: bytes) -> Route | None:
    """A Route from the payload of an RTM_NEWROUTE or RTM_DELROUTE; None for multicast routing and other families."""
    family, dst_len, src_len, tos, table, protocol, scope, kind, flags = _RTMSG.unpack_from(payload)
    if family not in (AF_INET, AF_INET6):
        return None
    found = codec.attributes(payload, _RTMSG.size)
    return Route(
        family=family,
        destination=_prefix(family, found.get(_DST), dst_len),
        index=number(found[_OIF]) if _OIF in found else None,
        gateway=_gateway(family, found),
        preferred_source=inet_ntop(family, found[_PREFSRC]) if _PREFSRC in found else None,
        source=_prefix(family, found.get(_SRC), src_len) if src_len else None,
        table=number(found[_TABLE]) if _TABLE in found else table,
        metric=number(found.get(_PRIORITY, b"")),
        scope=scope,
        protocol=protocol,
        type=kind,
        tos=tos,
        flags=flags,
        metrics=tuple(codec.attribute_list(found[_METRICS])) if _METRICS in found else (),
        next_hops=_next_hops(family, found[_MULTIPATH]) if _MULTIPATH in found else (),
        expires=_seconds_left(found.get(_CACHEINFO)),
        others=_others(family, found),
    )


def _prefix(family: int, address: bytes | None, length: int) -> str:
    unset = "::" if family == AF_INET6 else "0.0.0.0"
    return f"{inet_ntop(family, address) if address else unset}/{length}"


def _gateway(family: int, found: dict[int, bytes]) -> str | None:
    if _GATEWAY in found:
        return inet_ntop(family, found[_GATEWAY])
    if _VIA in found:
        via = found[_VIA]
        return inet_ntop(number(via[:2]), via[2:])
    return None


def _others(family: int, found: dict[int, bytes]) -> Attributes:
    """Attributes without a field. IPv6 reports its default preference on every route; that one is omitted."""
    return tuple(
        (kind, value)
        for kind, value in sorted(found.items())
        if kind not in _NAMED and not (kind == _PREF and value == b"\0")
    )


def _next_hops(family: int, data: bytes) -> tuple[NextHop, ...]:
    hops: list[NextHop] = []
    offset = 0
    while offset + _NEXTHOP.size <= len(data):
        length, flags, hop_count, index = _NEXTHOP.unpack_from(data, offset)
        if length < _NEXTHOP.size:
            break
        found = codec.attributes(data[offset : offset + length], _NEXTHOP.size)
        gateway = _gateway(family, found)
        others = _others(family, found)
        hops.append(NextHop(index=index, gateway=gateway, weight=hop_count + 1, flags=flags, others=others))
        offset += (length + 3) & ~3
    return tuple(hops)


def _seconds_left(cacheinfo: bytes | None) -> int:
    ticks: int = _CACHEINFO_EXPIRES.unpack_from(cacheinfo)[0] if cacheinfo and len(cacheinfo) >= 12 else 0
    return max(0, -(-ticks // _TICKS))


def add(route: Route, *, replace: bool = False, append: bool = False) -> Message:
    """Add; EEXIST if the route exists, unless `replace` or `append`."""
    how = NLM_F_REPLACE if replace else NLM_F_APPEND if append else NLM_F_EXCL
    return Message(RTM_NEWROUTE, NLM_F_CREATE | how, _payload(route), f"add the route {describe(route)}")


def delete(route: Route) -> Message:
    """Delete a route; contains all known attributes, so that similar routes stay."""
    return Message(RTM_DELROUTE, 0, _payload(route), f"delete the route {describe(route)}")


def describe(route: Route) -> str:
    """A short description, for errors and logs."""
    words = [route.destination]
    words += [f"via {route.gateway}"] if route.gateway else []
    words += [f"on link {route.index}"] if route.index is not None else []
    words += [f"in table {route.table}"] if route.table != TABLE_MAIN else []
    return " ".join(words)


def _payload(route: Route) -> bytes:
    family = route.family
    destination, dst_len = codec.pack_prefix(family, route.destination)
    source, src_len = codec.pack_prefix(family, route.source)
    table = route.table if route.table < 256 else TABLE_UNSPECIFIED
    flags = route.flags & _SETTABLE_FLAGS
    head = (family, dst_len, src_len, route.tos, table, route.protocol, route.scope, route.type, flags)
    parts = [_RTMSG.pack(*head), codec.u32(_TABLE, route.table)]
    if dst_len:
        parts.append(codec.attribute(_DST, destination))
    if src_len:
        parts.append(codec.attribute(_SRC, source))
    if route.preferred_source:
        parts.append(codec.attribute(_PREFSRC, inet_pton(family, route.preferred_source)))
    if route.metric:
        parts.append(codec.u32(_PRIORITY, route.metric))
    if route.metrics:
        parts.append(codec.nested(_METRICS, *(codec.attribute(kind, value) for kind, value in route.metrics)))
    if route.expires:
        parts.append(codec.u32(_EXPIRES, route.expires))
    parts += [codec.attribute(kind, value) for kind, value in route.others]
    return b"".join(parts) + _next_hop_payload(route)


def _next_hop_payload(route: Route) -> bytes:
    """Link and gateway, or all next hops. A route with a nexthop object has neither."""
    if route.nexthop_id is not None:
        return b""
    if route.next_hops:
        return codec.nested(_MULTIPATH, *(_packed_hop(route.family, hop) for hop in route.next_hops))
    link = codec.u32(_OIF, route.index) if route.index is not None else b""
    return link + _packed_gateway(route.family, route.gateway)


def _packed_hop(family: int, hop: NextHop) -> bytes:
    rest = _packed_gateway(family, hop.gateway) + b"".join(codec.attribute(k, v) for k, v in hop.others)
    return _NEXTHOP.pack(_NEXTHOP.size + len(rest), hop.flags & _SETTABLE_FLAGS, hop.weight - 1, hop.index) + rest


def _packed_gateway(family: int, gateway: str | None) -> bytes:
    if gateway is None:
        return b""
    if family == AF_INET and ":" in gateway:
        return codec.attribute(_VIA, struct.pack("=H", AF_INET6) + inet_pton(AF_INET6, gateway))
    return codec.attribute(_GATEWAY, inet_pton(family, gateway))
