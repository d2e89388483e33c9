"""RDMA devices into pods and home again, where the machine keeps them apart by namespace.

In shared mode every namespace sees every RDMA device and there is nothing to move: the character devices are the guard.
The mode is asked for each time, because an administrator may change it while we run. The kernel takes the namespace a
device comes from from the thread that asks, not from its socket: so the asking is done inside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dranet.driver.moving.host import Host, Pod
from dranet.kernel import rdma
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket

Open = Callable[[int], NetlinkSocket | None]


def move_in(host: Host, pod: Pod, name: str, *, open_socket: Open) -> bool:
    """Give the RDMA device to the pod; True where it is in there afterwards, False in shared mode."""
    source, into = open_socket(host.namespace.fd), open_socket(pod.namespace.fd)
    return _move(host.namespace, source, name, pod.namespace.fd, into=into)


def bring_home(host: Host, pod: Pod, name: str, *, open_socket: Open) -> bool:
    """Take the RDMA device back from the pod; False where there was nothing to take."""
    return _move(pod.namespace, open_socket(pod.namespace.fd), name, host.namespace.fd, into=None)


def _move(
    inside: Namespace, source: NetlinkSocket | None, name: str, target_fd: int, *, into: NetlinkSocket | None
) -> bool:
    try:
        if source is None or rdma.is_shared(source):
            return False
        device = rdma.get_device(source, name)
        if device is not None:
            inside.run(partial(source.request, rdma.move(device.index, target_fd)))
            return True
        return into is not None and rdma.get_device(into, name) is not None
    finally:
        for socket in (source, into):
            if socket is not None:
                socket.close()
