"""Pictures of NICs: everything the kernel tells about a link, raw, so that nothing is left out by a list of names.

`ip -d link` prints attributes of one message; here that message is taken apart as it comes and compared byte by byte.
What counts (packets, changes of carrier) and what time changes is left out. With it come the addresses, routes, rules
and neighbours that were configured, the queueing disciplines and filters, what ethtool knows, and every sysctl.
"""

from __future__ import annotations

import os
import struct
from contextlib import closing
from typing import Any

import msgspec

from dranet.core.errors import KernelError
from dranet.linux import addresses, codec, links, neighbours, routes
from dranet.linux.codec import Message
from dranet.linux.ethtool import Ethtool
from dranet.linux.namespaces import run_in_place
from dranet.linux.netlink import GENERIC_HEADER, GenericSocket, NetlinkError, NetlinkSocket

Picture = dict[str, Any]

_IFINFO = struct.Struct("=BxHiII")
_TCMSG = struct.Struct("=BxxxiIII")
_NAMES = {
    1: "address",
    2: "broadcast",
    3: "name",
    4: "mtu",
    5: "peer or lower link",
    10: "master",
    13: "txqlen",
    16: "operstate",
    17: "link mode",
    18: "kind",
    20: "alias",
    21: "number of VFs",
    22: "VFs",
    27: "group",
    30: "promiscuity",
    31: "tx queues",
    32: "rx queues",
    33: "carrier",
    37: "namespace of the peer",
    39: "proto down",
    40: "gso_max_segs",
    41: "gso_max_size",
    43: "xdp",
    50: "min mtu",
    51: "max mtu",
    52: "altnames",
    54: "permanent address",
    56: "parent device",
    57: "parent bus",
    58: "gro_max_size",
    59: "tso_max_size",
    60: "tso_max_segs",
    61: "allmulti",
    63: "gso_ipv4_max_size",
    64: "gro_ipv4_max_size",
}
_STATS, _MAP, _STATS64, _AF_SPEC, _CARRIER_CHANGES, _UP_COUNT, _DOWN_COUNT = 7, 14, 23, 26, 35, 47, 48
_QDISC = 6
"""A link that has never been up has another kernel's own discipline than one that has; made ones are listed below."""
_COUNTED = {_QDISC, _STATS, _MAP, _STATS64, _AF_SPEC, _CARRIER_CHANGES, _UP_COUNT, _DOWN_COUNT}
_AF_INET, _AF_INET6 = 2, 10
_ETHTOOL = {"coalescing": 19, "rings": 15, "channels": 17, "pauses": 21}
_UNSTABLE_SYSCTLS = {"stable_secret"}


def take(namespace_fd: int, name: str) -> Picture:
    """The whole picture; empty where there is no such link."""
    with NetlinkSocket(namespace_fd=namespace_fd) as route:
        nic = links.get_link(route, name)
        if nic is None:
            return {}
        found = {
            **_link(route, nic.index),
            **_layers(route, nic.index),
            "disciplines": _disciplines(route, nic.index),
        }
    found |= _ethtool(namespace_fd, nic.index)
    return found | run_in_place(namespace_fd, lambda: _sysctls(name))


def _link(route: NetlinkSocket, index: int) -> Picture:
    request = Message(links.RTM_GETLINK, 0, _IFINFO.pack(0, 0, index, 0, 0) + codec.u32(29, 1), "look at a link")
    (reply,) = route.request(request)
    _, kind, _, flags, _ = _IFINFO.unpack_from(reply.payload)
    raw = codec.attributes(reply.payload, _IFINFO.size)
    shown: Picture = {_NAMES.get(key, f"attribute {key}"): value for key, value in raw.items() if key not in _COUNTED}
    if 52 in raw:
        shown["altnames"] = tuple(sorted(codec.string(v) for _, v in codec.attribute_list(raw[52])))
    return {
        **shown,
        "flags": hex(flags),
        "up": bool(flags & links.IFF_UP),
        "link type": kind,
        "ip layers": _ip_layers(raw.get(_AF_SPEC, b"")),
    }


def _ip_layers(af_spec: bytes) -> tuple[bytes, bytes, bytes]:
    """Settings, and the token and address generation of IPv6; not its statistics and timers."""
    families = codec.attributes(af_spec)
    four = codec.attributes(families.get(_AF_INET, b""))
    six = codec.attributes(families.get(_AF_INET6, b""))
    return four.get(1, b""), six.get(2, b""), six.get(8, b"")


def _layers(route: NetlinkSocket, index: int) -> Picture:
    """What was configured; what the kernel makes by itself follows from it, some of it late."""
    made = [r for r in routes.list_configured_routes(route) if r.leaves_by(index)]
    held = [n for n in neighbours.list_neighbours(route) if n.index == index and n.is_permanent]
    found = addresses.list_addresses(route, index)
    return {
        "addresses": sorted((a.cidr, a.label, a.peer, a.metric) for a in found if a.scope == addresses.SCOPE_UNIVERSE),
        "routes": sorted(repr(msgspec.structs.replace(r, index=0)) for r in made),
        "neighbours": sorted((n.destination, n.mac) for n in held if n.mac),
    }


def _disciplines(route: NetlinkSocket, index: int) -> list[tuple[Any, ...]]:
    """Disciplines that were configured, without handles and statistics, and how many filters hang on them."""
    head = _TCMSG.pack(0, 0, 0, 0, 0)
    found = []
    for reply in route.dump(Message(38, 0, head, "list the queueing disciplines")):
        _, where, handle, parent, _ = _TCMSG.unpack_from(reply.payload)
        if where == index and handle:
            raw = codec.attributes(reply.payload, _TCMSG.size)
            found.append((hex(parent), codec.string(raw[1]), raw.get(2, b"")))
    filters = sum(_filters(route, index, parent) for parent in (0xFFFFFFF2, 0xFFFFFFF3, 0))
    return [*sorted(found), ("filters", filters)]


def _filters(route: NetlinkSocket, index: int, parent: int) -> int:
    try:
        return len(route.dump(Message(46, 0, _TCMSG.pack(0, index, 0, parent, 0), "list filters")))
    except NetlinkError:
        return 0


def _ethtool(namespace_fd: int, index: int) -> Picture:
    with Ethtool(namespace_fd) as tool:
        found: Picture = {"features": tool.features(index), "private flags": tool.private_flags(index)}
    with closing(GenericSocket("ethtool", 1, namespace_fd)) as socket:
        for what, command in _ETHTOOL.items():
            found[what] = _asked(socket, command, index)
    return found


def _asked(socket: GenericSocket, command: int, index: int) -> Any:
    try:
        (reply,) = socket.request(command, codec.nested(1, codec.u32(1, index)), "ask ethtool")
    except KernelError:
        return None  # this driver has no such thing
    return {key: value for key, value in codec.attributes(reply.payload, GENERIC_HEADER.size).items() if key != 1}


def _sysctls(name: str) -> Picture:
    """Plain system calls: there are some 140 files a link, and a campaign reads them a million times."""
    found: Picture = {}
    for short in (f"{family}/{part}/{name}" for family in ("ipv4", "ipv6") for part in ("conf", "neigh")):
        try:
            folder = os.open(f"/proc/sys/net/{short}", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # such links have no such part
        try:
            for file in sorted(set(os.listdir(folder)) - _UNSTABLE_SYSCTLS):
                found[f"{short}/{file}"] = _value(file, folder)
        finally:
            os.close(folder)
    return found


def _value(file: str, folder: int) -> bytes | int | None:
    """What is in it, or the number of the error."""
    try:
        fd = os.open(file, os.O_RDONLY, dir_fd=folder)
    except OSError as error:
        return error.errno
    try:
        return os.read(fd, 4096).strip()
    except OSError as error:
        return error.errno
    finally:
        os.close(fd)


def differences(before: Picture, after: Picture) -> list[str]:
    """What changed, in words."""
    if not after:
        return ["it is not there"]
    keys = sorted({*before, *after})
    return [
        f"{key}: {before.get(key)!r} is now {after.get(key)!r}" for key in keys if before.get(key) != after.get(key)
    ]
