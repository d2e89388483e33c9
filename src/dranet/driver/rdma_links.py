"""RDMA devices into pods and home again, where the machine keeps them apart by namespace.

In shared mode every namespace sees every RDMA device and there is nothing to move: the character devices are the guard.
The mode is asked for each time, because an administrator may change it while we run.
"""

from __future__ import annotations

from collections.abc import Callable

from dranet.driver.host import Host, Pod
from dranet.kernel import rdma
from dranet.kernel.netlink import NetlinkSocket

Open = Callable[[int], NetlinkSocket | None]


def move_in(host: Host, pod: Pod, name: str, *, open_socket: Open = rdma.open_socket) -> bool:
    """Give the RDMA device to the pod; True where it is in there afterwards, False in shared mode."""
    return _move(open_socket(host.namespace.fd), name, pod.namespace.fd, into=open_socket(pod.namespace.fd))


def bring_home(host: Host, pod: Pod, name: str, *, open_socket: Open = rdma.open_socket) -> bool:
    """Take the RDMA device back from the pod; False where there was nothing to take."""
    return _move(open_socket(pod.namespace.fd), name, host.namespace.fd, into=None)


def _move(source: NetlinkSocket | None, name: str, target_fd: int, *, into: NetlinkSocket | None) -> bool:
    try:
        if source is None or rdma.is_shared(source):
            return False
        device = rdma.get_device(source, name)
        if device is not None:
            source.request(rdma.move(device.index, target_fd))
            return True
        return into is not None and rdma.get_device(into, name) is not None
    finally:
        for socket in (source, into):
            if socket is not None:
                socket.close()
