"""Network links: the record, one dump for all of them, and the messages that change them.

`change` builds one RTM_NEWLINK for all changes: the kernel first moves the link to the other namespace and applies the
rest there, so a move with a new name, MTU and MAC is one request. If the rest is refused (also because the name is in
use), the link HAS moved and kept its old name. A link usually keeps its index, unless the target namespace uses that
index: look the link up by name there.

Namespace ids (nsid) are here too, because links refer to other namespaces by them.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dranet.linux import codec, devconf
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, Message, Reply, mac_text, number, signed, string, value_at
from dranet.linux.netlink import NetlinkError, NetlinkSocket

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWLINKPROP, RTM_DELLINKPROP = 108, 109
_RTM_NEWNSID, _RTM_GETNSID = 88, 90
_NETNSA_NSID, _NETNSA_FD, _NETNSA_TARGET = 1, 3, 4
_NSID_HEADER = bytes(4)
IFF_UP, IFF_LOOPBACK, IFF_NOARP, IFF_PROMISC, IFF_ALLMULTI, IFF_MULTICAST = 0x1, 0x8, 0x80, 0x100, 0x200, 0x1000

IFINFO = struct.Struct("=BxHiII")  # family, ARP hardware type, index, flags, mask of flags to change
_unpack_ifinfo = IFINFO.unpack_from
_u32 = struct.Struct("=I").unpack_from

_ADDRESS, _BROADCAST, _IFNAME, _MTU, _LINK, _MASTER, _TXQLEN, _OPERSTATE = 1, 2, 3, 4, 5, 10, 13, 16
_LINKMODE, _LINKINFO, _GSO_MAX_SEGS = 17, 18, 40
_IFALIAS, _NUM_VF, _STATS64, _AF_SPEC, _GROUP, _NET_NS_FD, EXT_MASK, _PROMISCUITY = 20, 21, 23, 26, 27, 28, 29, 30
_LINK_NETNSID, _GSO_MAX_SIZE, _XDP, _PROP_LIST, _ALT_IFNAME, _PERM_ADDRESS = 37, 41, 43, 52, 53, 54
_PARENT_DEV_NAME, _PARENT_DEV_BUS_NAME, _GRO_MAX_SIZE = 56, 57, 58
_GSO_IPV4_MAX_SIZE, _GRO_IPV4_MAX_SIZE, _NETNS_IMMUTABLE = 63, 64, 67
_VXLAN_LINK = 3
_INFO_KIND, _INFO_DATA = 1, 2
FILTER_VF, _FILTER_SKIP_STATS = 1, 8
_XDP_FD, _XDP_FLAGS = 1, 3
_XDP_MODES = {"drv": (5, 4), "skb": (6, 2), "hw": (7, 8)}  # attribute with the program id, flag of the mode

_OPERSTATES = ("unknown", "not-present", "down", "lower-layer-down", "testing", "dormant", "up")
_ENCAPSULATIONS: Mapping[int, str] = {
    0: "generic",
    1: "ether",
    32: "infiniband",
    256: "slip",
    512: "ppp",
    768: "ipip",
    769: "tunnel6",
    772: "loopback",
    776: "sit",
    778: "gre",
    801: "ieee802.11",
    823: "gre6",
    65534: "none",
    65535: "void",
}
_COUNTERS = struct.Struct("=10Q")


class LinkCounters(msgspec.Struct, frozen=True, gc=False):
    """Counters of a link since its creation."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_errors: int
    tx_errors: int
    rx_dropped: int
    tx_dropped: int
    multicast: int
    collisions: int


class XdpProgram(msgspec.Struct, frozen=True, gc=False):
    """An XDP program on a link; `mode` is `drv`, `skb` or `hw`."""

    mode: str
    id: int


class Link(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One network link as the kernel describes it. `kind` is `device` for hardware, else `veth`, `vlan`, ...

    `parent_index` is the link below (vlan, macvlan) or the peer (veth); with `parent_netnsid` set it counts in that
    other namespace. `counters` and the IP settings (see `devconf`) are present only on request.
    """

    index: int
    name: str
    kind: str
    flags: int
    mtu: int
    mac: str
    permanent_mac: str
    alias: str
    operstate: str
    encapsulation: str
    master: int
    parent_index: int | None
    parent_netnsid: int | None
    parent_device: str
    parent_bus: str
    gso_max_size: int | None
    gro_max_size: int | None
    gso_ipv4_max_size: int | None
    gro_ipv4_max_size: int | None
    num_vf: int | None
    altnames: tuple[str, ...]
    promiscuity: int
    txqlen: int
    group: int
    xdp_programs: tuple[XdpProgram, ...]
    info: bytes
    counters: LinkCounters | None
    broadcast: str = ""
    link_mode: int = 0
    """1 if user space decides when the link is ready; until then it is dormant."""
    gso_max_segs: int | None = None
    ipv4_settings: devconf.Values = ()
    ipv6_settings: devconf.Values = ()
    ipv6_token: str = ""
    immovable: bool = False
    """It cannot leave its namespace. Reported since Linux 6.15; older kernels refuse the move."""

    @property
    def lower_index(self) -> int | None:
        """The lower link in this namespace. A veth has none: its `parent_index` is its peer."""
        if self.kind == "vxlan":  # the only kind with its lower link in its own attributes
            return number(codec.attributes(self.info).get(_VXLAN_LINK, b"")) or None
        none = self.kind == "veth" or self.parent_netnsid is not None or self.parent_index == self.index
        return None if none else self.parent_index or None

    @property
    def is_up(self) -> bool:
        return bool(self.flags & IFF_UP)

    @property
    def is_loopback(self) -> bool:
        return bool(self.flags & IFF_LOOPBACK)


def list_links(socket: NetlinkSocket, *, counters: bool = False, virtual_functions: bool = False) -> list[Link]:
    """All links of the socket's namespace, by index; one dump."""
    wanted = (0 if counters else _FILTER_SKIP_STATS) | (FILTER_VF if virtual_functions else 0)
    return _in_order(parse(payload, counters) for payload in _dump(socket, wanted))


def _dump(socket: NetlinkSocket, wanted: int) -> list[bytes]:
    request = Message(RTM_GETLINK, 0, IFINFO.pack(0, 0, 0, 0, 0) + codec.u32(EXT_MASK, wanted), "list the links")
    return [reply.payload for reply in socket.dump(request) if reply.type == RTM_NEWLINK]


def _in_order(links: Iterable[Link]) -> list[Link]:
    return sorted(links, key=lambda link: link.index)


class LinkCache:
    """Lists links repeatedly, and parses only those whose message differs from the last time."""

    def __init__(self) -> None:
        self._last: dict[bytes, Link] = {}

    def list_links(self, socket: NetlinkSocket) -> list[Link]:
        payloads = _dump(socket, _FILTER_SKIP_STATS)
        self._last = {payload: self._last.get(payload) or parse(payload) for payload in payloads}
        return _in_order(self._last.values())


def get_link(socket: NetlinkSocket, which: str | int, *, counters: bool = False) -> Link | None:
    """One link by its name, alternative name or index; None if there is none."""
    (found,) = get_links(socket, [which], counters=counters)
    return found


def get_links(
    socket: NetlinkSocket, wanted: Sequence[str | int], *, counters: bool = False, settings: bool = False
) -> list[Link | None]:
    """Several links in one batch, in the given order."""
    answers = socket.ask([_get(which, counters) for which in wanted])
    return [_found(answer, counters, settings) for answer in answers]


def _get(which: str | int, counters: bool) -> Message:
    wanted = codec.u32(EXT_MASK, FILTER_VF | (0 if counters else _FILTER_SKIP_STATS))
    if isinstance(which, int):
        payload = IFINFO.pack(0, 0, which, 0, 0) + wanted
    else:
        kind = _IFNAME if len(which.encode(errors="surrogateescape")) < 16 else _ALT_IFNAME
        payload = IFINFO.pack(0, 0, 0, 0, 0) + wanted + codec.text(kind, which)
    return Message(RTM_GETLINK, 0, payload, f"look up the link {which}")


def _found(answer: Reply | NetlinkError, counters: bool, settings: bool) -> Link | None:
    if isinstance(answer, Reply):
        return parse(answer.payload, counters, settings)
    if answer.errno in (errno.ENODEV, errno.ERANGE):  # ERANGE: the name is too long to exist
        return None
    raise answer


def parse(payload: bytes, counters: bool = False, settings: bool = False) -> Link:
    """A Link from the payload of an RTM_NEWLINK or RTM_DELLINK. Optimized, because a node may have thousands."""
    _, hardware, index, flags, _ = _unpack_ifinfo(payload)
    at = codec.offsets(payload, IFINFO.size)
    info = codec.attributes(value_at(payload, at[_LINKINFO])) if _LINKINFO in at else {}
    ip_settings = value_at(payload, at[_AF_SPEC]) if settings and _AF_SPEC in at else b""
    ipv4, ipv6 = devconf.read(ip_settings)
    return Link(
        index=index,
        name=_text(payload, at, _IFNAME),
        kind=string(info[_INFO_KIND]) if _INFO_KIND in info else "device",
        flags=flags,
        mtu=_u32(payload, at[_MTU])[0] if _MTU in at else 0,
        mac=mac_text(value_at(payload, at[_ADDRESS])) if _ADDRESS in at else "",
        permanent_mac=mac_text(value_at(payload, at[_PERM_ADDRESS])) if _PERM_ADDRESS in at else "",
        alias=_text(payload, at, _IFALIAS),
        operstate=_name_of_operstate(payload[at[_OPERSTATE]] if _OPERSTATE in at else 0),
        encapsulation=_ENCAPSULATIONS.get(hardware) or f"unknown{hardware}",
        master=_u32(payload, at[_MASTER])[0] if _MASTER in at else 0,
        parent_index=_u32(payload, at[_LINK])[0] if _LINK in at else None,
        parent_netnsid=signed(value_at(payload, at[_LINK_NETNSID])) if _LINK_NETNSID in at else None,
        parent_device=_text(payload, at, _PARENT_DEV_NAME),
        parent_bus=_text(payload, at, _PARENT_DEV_BUS_NAME),
        gso_max_size=_u32(payload, at[_GSO_MAX_SIZE])[0] if _GSO_MAX_SIZE in at else None,
        gro_max_size=_u32(payload, at[_GRO_MAX_SIZE])[0] if _GRO_MAX_SIZE in at else None,
        gso_ipv4_max_size=_u32(payload, at[_GSO_IPV4_MAX_SIZE])[0] if _GSO_IPV4_MAX_SIZE in at else None,
        gro_ipv4_max_size=_u32(payload, at[_GRO_IPV4_MAX_SIZE])[0] if _GRO_IPV4_MAX_SIZE in at else None,
        num_vf=_u32(payload, at[_NUM_VF])[0] if _NUM_VF in at else None,
        altnames=_altnames(value_at(payload, at[_PROP_LIST])) if _PROP_LIST in at else (),
        promiscuity=_u32(payload, at[_PROMISCUITY])[0] if _PROMISCUITY in at else 0,
        txqlen=_u32(payload, at[_TXQLEN])[0] if _TXQLEN in at else 0,
        group=_u32(payload, at[_GROUP])[0] if _GROUP in at else 0,
        xdp_programs=_xdp_programs(value_at(payload, at[_XDP])) if _XDP in at else (),
        info=info.get(_INFO_DATA, b""),
        counters=LinkCounters(*_COUNTERS.unpack_from(payload, at[_STATS64])) if counters and _STATS64 in at else None,
        immovable=bool(payload[at[_NETNS_IMMUTABLE]]) if _NETNS_IMMUTABLE in at else False,
        broadcast=mac_text(value_at(payload, at[_BROADCAST])) if _BROADCAST in at else "",
        link_mode=payload[at[_LINKMODE]] if _LINKMODE in at else 0,
        gso_max_segs=_u32(payload, at[_GSO_MAX_SEGS])[0] if _GSO_MAX_SEGS in at else None,
        ipv4_settings=ipv4,
        ipv6_settings=ipv6,
        ipv6_token=devconf.read_token(ip_settings),
    )


def _text(payload: bytes, at: dict[int, int], kind: int) -> str:
    return string(value_at(payload, at[kind])) if kind in at else ""


def _name_of_operstate(state: int) -> str:
    return _OPERSTATES[state] if state < len(_OPERSTATES) else f"unknown{state}"


def _altnames(value: bytes) -> tuple[str, ...]:
    return tuple(string(name) for kind, name in codec.attribute_list(value) if kind == _ALT_IFNAME)


def _xdp_programs(value: bytes) -> tuple[XdpProgram, ...]:
    if len(value) <= 8:  # nearly every link: one attribute with the value "none"
        return ()
    found = codec.attributes(value)
    return tuple(XdpProgram(mode, number(found[kind])) for mode, (kind, _) in _XDP_MODES.items() if kind in found)


def change(
    index: int,
    *,
    up: bool | None = None,
    namespace_fd: int | None = None,
    name: str | None = None,
    mtu: int | None = None,
    mac: str | None = None,
    broadcast: str | None = None,
    link_mode: int | None = None,
    alias: str | None = None,
    master: int | None = None,
    txqlen: int | None = None,
    group: int | None = None,
    gso_max_size: int | None = None,
    gso_max_segs: int | None = None,
    gro_max_size: int | None = None,
    gso_ipv4_max_size: int | None = None,
    gro_ipv4_max_size: int | None = None,
) -> Message:
    """One message for all changes; `master=0` releases, `alias=""` clears, `namespace_fd` moves."""
    numbers = (
        (_NET_NS_FD, namespace_fd),
        (_MTU, mtu),
        (_MASTER, master),
        (_TXQLEN, txqlen),
        (_GROUP, group),
        (_GSO_MAX_SIZE, gso_max_size),
        (_GSO_MAX_SEGS, gso_max_segs),
        (_GRO_MAX_SIZE, gro_max_size),
        (_GSO_IPV4_MAX_SIZE, gso_ipv4_max_size),
        (_GRO_IPV4_MAX_SIZE, gro_ipv4_max_size),
    )
    parts = [IFINFO.pack(0, 0, index, IFF_UP if up else 0, 0 if up is None else IFF_UP)]
    parts += [codec.u32(kind, value) for kind, value in numbers if value is not None]
    if name is not None:
        parts.append(codec.text(_IFNAME, name))
    if mac is not None:
        parts.append(codec.attribute(_ADDRESS, codec.mac_bytes(mac)))
    if broadcast is not None:
        parts.append(codec.attribute(_BROADCAST, codec.mac_bytes(broadcast)))
    if link_mode is not None:
        parts.append(codec.u8(_LINKMODE, link_mode))
    if alias is not None:
        parts.append(codec.attribute(_IFALIAS, alias.encode(errors="surrogateescape")))
    return Message(RTM_NEWLINK, 0, b"".join(parts), _describe_change(index, up, namespace_fd, name))


def _describe_change(index: int, up: bool | None, namespace_fd: int | None, name: str | None) -> str:
    if namespace_fd is not None:
        return f"move link {index} into another namespace" + (f" as {name}" if name else "")
    if name is not None:
        return f"rename link {index} to {name}"
    return f"change link {index}" if up is None else f"set link {index} {'up' if up else 'down'}"


def set_ipv6_token(index: int, token: str) -> Message:
    """Refused unless the link accepts router advertisements and sends solicitations."""
    payload = IFINFO.pack(0, 0, index, 0, 0) + codec.nested(_AF_SPEC, devconf.pack_token(token))
    return Message(RTM_NEWLINK, 0, payload, f"set the IPv6 token of link {index}")


def change_flags(index: int, mask: int, flags: int) -> Message:
    """Set the flags in `mask` to their values in `flags`."""
    return Message(RTM_NEWLINK, 0, IFINFO.pack(0, 0, index, flags & mask, mask), f"change the flags of link {index}")


def add_altname(index: int, name: str) -> Message:
    """Add an alternative name. It is unique in a namespace like the first one, and moves with the link."""
    return _altname(RTM_NEWLINKPROP, NLM_F_CREATE | NLM_F_EXCL, index, name, "add")


def delete_altname(index: int, name: str) -> Message:
    """Delete an alternative name of a link."""
    return _altname(RTM_DELLINKPROP, 0, index, name, "delete")


def _altname(kind: int, flags: int, index: int, name: str, verb: str) -> Message:
    payload = IFINFO.pack(0, 0, index, 0, 0) + codec.nested(_PROP_LIST, codec.text(_ALT_IFNAME, name))
    return Message(kind, flags, payload, f"{verb} the alternative name {name} of link {index}")


def delete(index: int) -> Message:
    """Delete a link. Only virtual links can be deleted; a veth is deleted with its peer."""
    return Message(RTM_DELLINK, 0, IFINFO.pack(0, 0, index, 0, 0), f"delete link {index}")


def create(
    name: str,
    kind: str,
    *data: bytes,
    parent: int | None = None,
    mac: str | None = None,
    mtu: int | None = None,
    namespace_fd: int | None = None,
) -> Message:
    """A new virtual link of any kind; `data` are the kind's own attributes. See `virtual_links` for the usual kinds.

    With `namespace_fd` it is created there; `parent` is an index in the namespace of the socket that sends the message.
    """
    info = codec.text(_INFO_KIND, kind) + (codec.nested(_INFO_DATA, *data) if data else b"")
    payload = IFINFO.pack(0, 0, 0, 0, 0) + codec.text(_IFNAME, name) + codec.nested(_LINKINFO, info)
    if parent is not None:
        payload += codec.u32(_LINK, parent)
    if mac is not None:
        payload += codec.attribute(_ADDRESS, codec.mac_bytes(mac))
    if mtu is not None:
        payload += codec.u32(_MTU, mtu)
    if namespace_fd is not None:
        payload += codec.u32(_NET_NS_FD, namespace_fd)
    return Message(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, payload, f"create the {kind} link {name}")


def detach_xdp(index: int, mode: str) -> Message:
    """Remove the XDP program of a mode. Refused for a program of a BPF link: detach that link instead (see `bpf`)."""
    nothing = codec.i32(_XDP_FD, -1) + codec.u32(_XDP_FLAGS, _XDP_MODES[mode][1])
    payload = IFINFO.pack(0, 0, index, 0, 0) + codec.nested(_XDP, nothing)
    return Message(RTM_NEWLINK, 0, payload, f"detach the XDP program of link {index}")


def get_nsid(socket: NetlinkSocket, namespace_fd: int) -> int | None:
    """The id of another namespace in the socket's namespace, as in `Link.parent_netnsid`; None if it has none."""
    return _lookup_nsid(socket, codec.u32(_NETNSA_FD, namespace_fd), "look up the id of a namespace")


def ensure_nsid(socket: NetlinkSocket, namespace_fd: int) -> int:
    """Like `get_nsid`, but assigns an id if there is none. It is valid until the other namespace is deleted."""
    found = get_nsid(socket, namespace_fd)
    if found is None:
        payload = _NSID_HEADER + codec.u32(_NETNSA_FD, namespace_fd) + codec.i32(_NETNSA_NSID, -1)
        socket.request(Message(_RTM_NEWNSID, 0, payload, "assign an id to a namespace"))
        found = get_nsid(socket, namespace_fd)
    assert found is not None
    return found


def translate_nsid(socket: NetlinkSocket, nsid: int, target: int) -> int | None:
    """The id in namespace `target` (an id too) of the namespace that has `nsid` here; None if it has none."""
    question = codec.i32(_NETNSA_NSID, nsid) + codec.i32(_NETNSA_TARGET, target)
    return _lookup_nsid(socket, question, "translate the id of a namespace")


def _lookup_nsid(socket: NetlinkSocket, question: bytes, what: str) -> int | None:
    for reply in socket.request(Message(_RTM_GETNSID, 0, _NSID_HEADER + question, what)):
        found = signed(codec.attributes(reply.payload, len(_NSID_HEADER))[_NETNSA_NSID])
        return found if found >= 0 else None
    return None
