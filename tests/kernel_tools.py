"""What tests ask of the kernel and the driver does not: over the same sockets, so that both see the same namespace."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dranet.linux import codec, namespaces
from dranet.linux.codec import Message
from dranet.linux.netlink import NetlinkError, NetlinkSocket

_RDMA = 5 << 10
_DEV_INDEX, _DEV_NAME, _PORT_INDEX, _NDEV_NAME, _LINK_TYPE, _NETNS_MODE = 1, 2, 3, 51, 65, 66
_CHARDEV_TYPE, _CHARDEV_NAME, _CHARDEV = 69, 70, 72


class CharDevice(NamedTuple):
    """A character device by its name below /dev/infiniband and its numbers."""

    name: str
    major: int
    minor: int


def char_device(
    socket: NetlinkSocket, kind: str, device_index: int | None = None, port: int | None = None
) -> CharDevice | None:
    """The character device of a kind: `uverbs` of a device, `umad` of a port, `rdma_cm` of the machine; or None."""
    payload = codec.text(_CHARDEV_TYPE, kind)
    payload += codec.u32(_DEV_INDEX, device_index) if device_index is not None else b""
    payload += codec.u32(_PORT_INDEX, port) if port is not None else b""
    try:
        replies = socket.request(Message(_RDMA | 15, 0, payload, f"look up a {kind} device"))
    except NetlinkError:
        return None
    found = codec.attributes(replies[0].payload)
    number = codec.number(found[_CHARDEV])
    return CharDevice(codec.string(found[_CHARDEV_NAME]), os.major(number), os.minor(number))


def set_shared(shared: bool) -> Message:
    """Whether every namespace sees every RDMA device; refused while other namespaces exist."""
    return Message(_RDMA | 7, 0, codec.u8(_NETNS_MODE, int(shared)), "set the RDMA namespace mode")


def create_rdma(name: str, kind: str, netdev: str) -> Message:
    """A software RDMA device (`rxe`, `siw`) on top of a netdev."""
    payload = codec.text(_DEV_NAME, name) + codec.text(_LINK_TYPE, kind) + codec.text(_NDEV_NAME, netdev)
    return Message(_RDMA | 3, 0, payload, f"create the {kind} device {name} on {netdev}")


def delete_rdma(device_index: int) -> Message:
    return Message(_RDMA | 4, 0, codec.u32(_DEV_INDEX, device_index), f"delete RDMA device {device_index}")


def read_sysctls(namespace_fd: int | None, paths: Iterable[str]) -> dict[str, str | None]:
    """Settings as a thread inside the namespace sees them; None for those that do not exist."""
    found: dict[str, str | None] = {}

    def work() -> None:
        for path in paths:
            file = Path("/proc/sys", path)
            found[path] = file.read_text().strip() if file.exists() else None

    if namespace_fd is None:
        work()
    else:
        namespaces.run_inside(namespace_fd, work)
    return found
