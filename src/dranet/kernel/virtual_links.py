"""Messages that make the virtual links we need (the kernel must have the kind; it answers EOPNOTSUPP if not)."""

from __future__ import annotations

from dranet.kernel import codec
from dranet.kernel.codec import Message
from dranet.kernel.links import create

_IFINFO_EMPTY = bytes(16)
_IFLA_IFNAME, _IFLA_NET_NS_FD = 3, 28
_MODE, _FLAGS = 1, 2

MACVLAN_MODES = {"private": 1, "vepa": 2, "bridge": 4, "passthru": 8}
IPVLAN_MODES = {"l2": 0, "l3": 1, "l3s": 2}
IPVLAN_FLAGS = {"bridge": 0, "private": 1, "vepa": 2}


def create_veth(name: str, peer_name: str, *, peer_namespace_fd: int | None = None) -> Message:
    """A pair of links; the peer is born in another namespace if one is given."""
    peer = _IFINFO_EMPTY + codec.text(_IFLA_IFNAME, peer_name)
    if peer_namespace_fd is not None:
        peer += codec.u32(_IFLA_NET_NS_FD, peer_namespace_fd)
    return create(name, "veth", codec.nested(1, peer))


def create_vrf(name: str, table: int) -> Message:
    """The message that makes a VRF over a routing table; the table may be filled before or afterwards."""
    return create(name, "vrf", codec.u32(1, table))


def create_bridge(name: str) -> Message:
    """The message that makes a bridge without ports."""
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
    """A child with a hardware address of its own; random where none is given."""
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

    The kernel keeps one mode for all children of a parent and changes that of the others without a word: whoever makes
    a second child asks `ipvlan_mode` of the first.
    """
    data = codec.u16(_MODE, IPVLAN_MODES[mode]) + codec.u16(_FLAGS, IPVLAN_FLAGS[flag])
    return create(name, "ipvlan", data, parent=parent, mtu=mtu, namespace_fd=namespace_fd)


def ipvlan_mode(info: bytes) -> tuple[str, str]:
    """Mode and flag of an ipvlan, from its link's `info`."""
    found = codec.attributes(info)
    mode, flag = (codec.number(found.get(kind, b"\0\0")) for kind in (_MODE, _FLAGS))
    return _name_of(IPVLAN_MODES, mode), _name_of(IPVLAN_FLAGS, flag)


def macvlan_mode(info: bytes) -> str:
    """Mode of a macvlan, from its link's `info`."""
    return _name_of(MACVLAN_MODES, codec.number(codec.attributes(info)[_MODE]))


def _name_of(names: dict[str, int], value: int) -> str:
    return next((name for name, known in names.items() if known == value), str(value))


def vrf_table(info: bytes) -> int | None:
    """The routing table of a VRF, from its link's `info`."""
    found = codec.attributes(info).get(1)
    return None if found is None else codec.number(found)


def vlan_id(info: bytes) -> int | None:
    """The number of a VLAN, from its link's `info`."""
    found = codec.attributes(info).get(1)
    return None if found is None else codec.number(found)
