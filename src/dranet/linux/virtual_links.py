"""Messages that create virtual links, and their settings. EOPNOTSUPP if the kernel does not have the kind."""

from __future__ import annotations

from dranet.linux import codec
from dranet.linux.codec import Message
from dranet.linux.links import create

_IFINFO_EMPTY = bytes(16)
_IFLA_IFNAME, _IFLA_NET_NS_FD = 3, 28
_MODE, _FLAGS = 1, 2

MACVLAN_MODES = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8}
IPVLAN_MODES = {"l2": 0, "l3": 1, "l3s": 2}
IPVLAN_FLAGS = {"bridge": 0, "private": 1, "vepa": 2}


def create_veth(name: str, peer_name: str, *, peer_namespace_fd: int | None = None) -> Message:
    """A pair of links; the peer is created in another namespace if one is given."""
    peer = _IFINFO_EMPTY + codec.text(_IFLA_IFNAME, peer_name)
    if peer_namespace_fd is not None:
        peer += codec.u32(_IFLA_NET_NS_FD, peer_namespace_fd)
    return create(name, "veth", codec.nested(1, peer))


def create_vrf(name: str, table: int) -> Message:
    """A VRF with a routing table, which may be filled before or afterwards."""
    return create(name, "vrf", codec.u32(1, table))


def create_bridge(name: str) -> Message:
    """A bridge without ports."""
    return create(name, "bridge")


def create_macvlan(
    name: str,
    parent: int,
    mode: str,
    *,
    mac: str | None = None,
    mtu: int | None = None,
    namespace_fd: int | None = None,
) -> Message:
    """A child with its own hardware address, random if not given."""
    data = codec.u32(_MODE, MACVLAN_MODES[mode])
    return create(name, "macvlan", data, parent=parent, mac=mac, mtu=mtu, namespace_fd=namespace_fd)


def create_ipvlan(
    name: str,
    parent: int,
    mode: str,
    flag: str = "bridge",
    *,
    mtu: int | None = None,
    namespace_fd: int | None = None,
) -> Message:
    """A child with its parent's hardware address.

    The kernel has one mode for all children of a parent, and silently changes that of existing ones.
    """
    data = codec.u16(_MODE, IPVLAN_MODES[mode]) + codec.u16(_FLAGS, IPVLAN_FLAGS[flag])
    return create(name, "ipvlan", data, parent=parent, mtu=mtu, namespace_fd=namespace_fd)


def vrf_table(info: bytes) -> int | None:
    """The routing table of a VRF, from its link's `info`."""
    return _first_number(info)


def vlan_id(info: bytes) -> int | None:
    """The number of a VLAN, from its link's `info`."""
    return _first_number(info)


def _first_number(info: bytes) -> int | None:
    found = codec.attributes(info).get(1)
    return None if found is None else codec.number(found)
