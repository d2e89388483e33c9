"""RDMA devices over RDMA netlink: what exists, in which state, and moving one into another namespace.

A device can be moved only in the `exclusive` mode of the machine; in `shared` mode every namespace sees every device.
The mode can be changed only while no other network namespace exists. A kernel without RDMA has no
such socket: `open_socket` returns None. Ports are read device by device, because the kernel has no wider request.
"""

from __future__ import annotations

import errno

import msgspec

from dranet.linux import codec
from dranet.linux.codec import Message, number, string
from dranet.linux.netlink import NETLINK_RDMA, NetlinkError, NetlinkSocket

_CLIENT = 5 << 10
_GET, _SET, _, _, _PORT_GET, _SYS_GET = (_CLIENT | command for command in range(1, 7))
_DEV_INDEX, _DEV_NAME, _PORT_INDEX, _FW_VERSION, _NODE_GUID = 1, 2, 3, 5, 6
_PORT_STATE, _PORT_PHYS_STATE, _NODE_TYPE, _NDEV_INDEX, _NDEV_NAME = 12, 13, 14, 50, 51
_NETNS_MODE, _PROTOCOL, _NET_NS_FD = 66, 67, 68
_STATES = ("nop", "down", "init", "armed", "active", "active-defer")
_PHYSICAL = ("nop", "sleep", "polling", "disabled", "training", "link-up", "error-recovery", "phy-test")


class RdmaDevice(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One RDMA device; `protocol` is `ib`, `roce`, `iw` or empty on old kernels; `ports` is their number."""

    index: int
    name: str
    protocol: str
    node_guid: str
    firmware: str
    node_type: int
    ports: int


class RdmaPort(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One port; `netdev_index` is its link in this namespace, None when it has none or the link is elsewhere."""

    device: str
    device_index: int
    number: int
    state: str
    physical_state: str
    netdev_index: int | None
    netdev: str


def open_socket(namespace_fd: int | None = None) -> NetlinkSocket | None:
    """A socket for the functions below, or None on a kernel without RDMA."""
    try:
        return NetlinkSocket(NETLINK_RDMA, namespace_fd)
    except NetlinkError as error:
        if error.errno in (errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT):
            return None
        raise


def list_devices(socket: NetlinkSocket) -> list[RdmaDevice]:
    """Every RDMA device this namespace sees; one dump."""
    replies = socket.dump(Message(_GET, 0, b"", "list the RDMA devices"))
    return sorted((parse_device(reply.payload) for reply in replies), key=lambda device: device.index)


def get_device(socket: NetlinkSocket, name: str) -> RdmaDevice | None:
    """One device by name (the kernel looks up by index only)."""
    return next((device for device in list_devices(socket) if device.name == name), None)


def parse_device(payload: bytes) -> RdmaDevice:
    """A device from a reply."""
    found = codec.attributes(payload)
    return RdmaDevice(
        index=number(found[_DEV_INDEX]),
        name=string(found[_DEV_NAME]),
        protocol=string(found.get(_PROTOCOL, b"")),
        node_guid=_guid(number(found.get(_NODE_GUID, b""))),
        firmware=string(found.get(_FW_VERSION, b"")),
        node_type=number(found.get(_NODE_TYPE, b"")),
        ports=number(found.get(_PORT_INDEX, b"")),
    )


def _guid(value: int) -> str:
    digits = f"{value:016x}"
    return ":".join(digits[start : start + 4] for start in range(0, 16, 4))


def list_ports(socket: NetlinkSocket, device: RdmaDevice) -> list[RdmaPort]:
    """The ports of one device; a device that vanished meanwhile has none."""
    request = Message(_PORT_GET, 0, codec.u32(_DEV_INDEX, device.index), f"list the ports of {device.name}")
    try:
        return [parse_port(reply.payload) for reply in socket.dump(request)]
    except NetlinkError as error:
        if error.errno in (errno.ENODEV, errno.EINVAL):
            return []
        raise


def parse_port(payload: bytes) -> RdmaPort:
    """A port from a reply; the kernel omits what a port does not have."""
    found = codec.attributes(payload)
    return RdmaPort(
        device=string(found.get(_DEV_NAME, b"")),
        device_index=number(found[_DEV_INDEX]),
        number=number(found[_PORT_INDEX]),
        state=_word(_STATES, number(found.get(_PORT_STATE, b""))),
        physical_state=_word(_PHYSICAL, number(found.get(_PORT_PHYS_STATE, b""))),
        netdev_index=number(found[_NDEV_INDEX]) if _NDEV_INDEX in found else None,
        netdev=string(found.get(_NDEV_NAME, b"")),
    )


def _word(words: tuple[str, ...], value: int) -> str:
    return words[value] if value < len(words) else f"unknown{value}"


def is_shared(socket: NetlinkSocket) -> bool:
    """Whether every namespace sees every RDMA device (the kernel's default)."""
    for reply in socket.request(Message(_SYS_GET, 0, b"", "read the RDMA namespace mode")):
        mode = codec.attributes(reply.payload).get(_NETNS_MODE)
        return mode is None or number(mode) == 1
    return True


def move(device_index: int, namespace_fd: int) -> Message:
    """Move a device into another namespace; refused in shared mode and by drivers that cannot (EOPNOTSUPP)."""
    payload = codec.u32(_DEV_INDEX, device_index) + codec.u32(_NET_NS_FD, namespace_fd)
    return Message(_SET, 0, payload, f"move RDMA device {device_index} into another namespace")
