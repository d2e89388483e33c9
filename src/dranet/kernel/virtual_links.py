"""Messages that make the virtual links we need (the kernel must have the kind; it answers EOPNOTSUPP if not)."""

from __future__ import annotations

from dranet.kernel import codec
from dranet.kernel.codec import Message
from dranet.kernel.links import create

_IFINFO_EMPTY = bytes(16)
_IFLA_IFNAME, _IFLA_NET_NS_FD = 3, 28


def create_veth(name: str, peer_name: str, *, peer_namespace_fd: int | None = None) -> Message:
    """A pair of links; the peer is born in another namespace if one is given."""
    peer = _IFINFO_EMPTY + codec.text(_IFLA_IFNAME, peer_name)
    if peer_namespace_fd is not None:
        peer += codec.u32(_IFLA_NET_NS_FD, peer_namespace_fd)
    return create(name, "veth", codec.nested(1, peer))


def create_vrf(name: str, table: int) -> Message:
    return create(name, "vrf", codec.u32(1, table))


def create_bridge(name: str) -> Message:
    return create(name, "bridge")


def vrf_table(info: bytes) -> int | None:
    """The routing table of a VRF, from its link's `info`."""
    found = codec.attributes(info).get(1)
    return None if found is None else codec.number(found)
