"""Messages that make virtual links of the usual kinds (the kernel must have the kind; it answers EOPNOTSUPP if not)."""

from __future__ import annotations

import struct

from dranet.kernel import codec
from dranet.kernel.codec import Message
from dranet.kernel.links import create

_IFINFO_EMPTY = bytes(16)
_IFLA_IFNAME, _IFLA_NET_NS_FD = 3, 28
_MACVLAN_MODES = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8}
_IPVLAN_MODES = {"l2": 0, "l3": 1, "l3s": 2}


def create_veth(name: str, peer_name: str, *, peer_namespace_fd: int | None = None) -> Message:
    """A pair of links; the peer is born in another namespace if one is given."""
    peer = _IFINFO_EMPTY + codec.text(_IFLA_IFNAME, peer_name)
    if peer_namespace_fd is not None:
        peer += codec.u32(_IFLA_NET_NS_FD, peer_namespace_fd)
    return create(name, "veth", codec.nested(1, peer))


def create_macvlan(name: str, parent: int, *, mode: str = "bridge") -> Message:
    return create(name, "macvlan", codec.u32(1, _MACVLAN_MODES[mode]), parent=parent)


def create_ipvlan(name: str, parent: int, *, mode: str = "l2") -> Message:
    return create(name, "ipvlan", codec.u16(1, _IPVLAN_MODES[mode]), parent=parent)


def create_vlan(name: str, parent: int, vlan_id: int) -> Message:
    return create(name, "vlan", codec.u16(1, vlan_id), parent=parent)


def create_vrf(name: str, table: int) -> Message:
    return create(name, "vrf", codec.u32(1, table))


def create_dummy(name: str) -> Message:
    return create(name, "dummy")


def create_bridge(name: str) -> Message:
    return create(name, "bridge")


def create_bond(name: str, *, mode: int = 1) -> Message:
    """A bond; mode 1 is active-backup."""
    return create(name, "bond", codec.u8(1, mode))


def create_vxlan(name: str, network_id: int, *, port: int = 4789) -> Message:
    return create(name, "vxlan", codec.u32(1, network_id), codec.attribute(15, struct.pack("!H", port)))


def vrf_table(info: bytes) -> int | None:
    """The routing table of a VRF, from its link's `info`."""
    found = codec.attributes(info).get(1)
    return None if found is None else codec.number(found)
