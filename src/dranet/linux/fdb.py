"""Hardware addresses that a link accepts besides its own: unicast (`bridge fdb`) and static multicast (`ip maddr`).

The kernel drops them when the link moves to another namespace. Multicast addresses that are not static belong to the
sockets and protocols that joined a group.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket as sockets
import struct
from collections.abc import Iterable
from pathlib import Path

from dranet.linux import codec, namespaces
from dranet.linux.codec import NLM_F_CREATE, NLM_F_EXCL, Message, mac_bytes, mac_text
from dranet.linux.neighbours import NUD_PERMANENT, RTM_GETNEIGH, RTM_NEWNEIGH
from dranet.linux.netlink import NetlinkSocket

_AF_BRIDGE, _NTF_SELF, _LLADDR = 7, 2, 2
_NDMSG = struct.Struct("=BxxxiHBB")
_SIOCADDMULTI = 0x8931
_IFREQ = struct.Struct("=16sH14s8x")


def list_unicast(socket: NetlinkSocket, index: int) -> list[str]:
    """The additional unicast addresses of a link."""
    request = Message(RTM_GETNEIGH, 0, _NDMSG.pack(_AF_BRIDGE, index, 0, 0, 0), f"list the fdb of link {index}")
    found = [reply.payload for reply in socket.dump(request) if reply.type == RTM_NEWNEIGH]
    own = [payload for payload in found if _NDMSG.unpack_from(payload)[1] == index and payload[10] & _NTF_SELF]
    addresses = (codec.attributes(payload, _NDMSG.size).get(_LLADDR, b"") for payload in own)
    return sorted(mac_text(address) for address in addresses if address and not address[0] & 1)


def add_unicast(index: int, mac: str) -> Message:
    payload = _NDMSG.pack(_AF_BRIDGE, index, NUD_PERMANENT, _NTF_SELF, 0) + codec.attribute(_LLADDR, mac_bytes(mac))
    return Message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, payload, f"add {mac} to the fdb of link {index}")


def list_static_multicast(namespace_fd: int, name: str) -> list[str]:
    """The multicast addresses of a link that were added with `ip maddr`."""
    rows = namespaces.run_in_place(namespace_fd, Path("/proc/thread-self/net/dev_mcast").read_text).splitlines()
    fields = (row.split() for row in rows)
    return sorted(bytes.fromhex(mac).hex(":") for _, link, _, static, mac in fields if link == name and static != "0")


def add_static_multicast(namespace_fd: int, name: str, macs: Iterable[str]) -> list[str]:
    """Add them, and return what was refused. An address that is there already is left alone."""
    missing = sorted(set(macs) - set(list_static_multicast(namespace_fd, name)))
    opened = namespaces.run_in_place(namespace_fd, lambda: sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM))
    refused: list[str] = []
    with contextlib.closing(opened):
        for mac in missing:
            raw = mac_bytes(mac)
            request = _IFREQ.pack(name.encode(errors="surrogateescape"), sockets.AF_UNSPEC, raw)
            try:
                fcntl.ioctl(opened, _SIOCADDMULTI, request)
            except OSError as error:
                refused.append(
                    f"cannot add the multicast address {mac} to {name}: {os.strerror(error.errno or errno.EIO)}"
                )
    return refused
