"""Moves RDMA devices between the host and pods, where the kernel separates them by network namespace (exclusive mode).

In shared mode every namespace sees every RDMA device and nothing moves: containers are kept apart by their character
devices. The mode is read each time, because an administrator may change it while the driver runs. The kernel takes the
source namespace of a move from the calling thread, not from its socket, so the request is sent from inside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from dranet.core.errors import DranetError, KernelError
from dranet.core.netconfig import NetworkConfig
from dranet.kubernetes.api.claims import RDMA_LINK_READY, READY, Condition
from dranet.linux import chardev, hardware, rdma
from dranet.linux.links import Link
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.linux.sysfs import Sysfs
from dranet.node.features.base import AttachError, Conditions, Feature, NodeContext, Problems, RecoveryContext
from dranet.node.inventory.snapshot import NodeDevice
from dranet.node.namespaces import Host, PodNamespace
from dranet.node.records.plan import AttachMode, CharDevice, DevicePlan, RdmaRecord

_OpenSocket = Callable[[int], NetlinkSocket | None]

_MODES_WITH_RDMA = (AttachMode.MOVED, AttachMode.SHARED, AttachMode.RDMA_ONLY)


class RdmaAttachError(AttachError):
    """The RDMA device cannot be attached to the pod."""


class RdmaFeature(Feature[RdmaRecord]):
    """Gives the RDMA device of a device, and its character devices."""

    tag, order, record_type = "rdma", 40, RdmaRecord

    def __init__(self, open_socket: _OpenSocket = rdma.open_socket) -> None:
        self._open = open_socket

    def record_of(self, device: DevicePlan) -> RdmaRecord | None:
        return device.rdma if device.mode in _MODES_WITH_RDMA else None

    def plan(self, node: NodeContext, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        # An RDMA-only device is in several pods only where they share the claim.
        is_multi_pod = any(
            other.key == device.key and other.mode is AttachMode.RDMA_ONLY for other in node.tables.others
        )
        several = device.mode is AttachMode.SHARED or is_multi_pod
        if several and seen.rdma_device and not self._is_shared(node.host):
            why = f"RDMA is in exclusive mode on this node, so several pods cannot share {seen.rdma_device}"
            raise DranetError(f"{why}; run `rdma system set netns shared`, or claim the whole device")
        return _with_rdma(node, seen.rdma_device, device)

    def _is_shared(self, host: Host) -> bool:
        socket = self._open(host.namespace.fd)
        if socket is None:
            return True
        try:
            return rdma.is_shared(socket)
        finally:
            socket.close()

    def recover(self, context: RecoveryContext, device: DevicePlan) -> DevicePlan:
        return _with_rdma(context.node, context.rdma_device, device)

    def bring_up(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link | None) -> Conditions:
        record = self.require(device)
        try:
            source, into = self._open(host.namespace.fd), self._open(pod.namespace.fd)
            moved = _move(host.namespace, source, record.device, pod.namespace.fd, into=into)
        except KernelError as error:
            raise RdmaAttachError(f"{device.name}: {error}") from error
        alone = (Condition(READY, True, "RDMAOnlyDeviceReady"),) if device.mode is AttachMode.RDMA_ONLY else ()
        yield from ()
        return (*alone, Condition(RDMA_LINK_READY, True, "RDMALinkReady")) if moved else alone

    def detach(self, host: Host, pod: PodNamespace, device: DevicePlan, link: Link | None) -> Problems:
        """Before the netdev, whose arrival starts an inventory scan, which must see both.

        A device that does not move is a problem and not an error, because the netdev must be detached in any case.
        """
        record = self.require(device)
        try:
            source = self._open(pod.namespace.fd)
            _move(pod.namespace, source, record.device, host.namespace.fd, into=None)
        except KernelError as error:
            return [f"RDMA device {record.device} cannot return to the host network namespace: {error}"]
        yield from ()
        return []


def _with_rdma(node: NodeContext, name: str | None, device: DevicePlan) -> DevicePlan:
    if name is None or device.mode not in _MODES_WITH_RDMA:
        return device
    record = RdmaRecord(device=name, char_devices=char_devices(node, name))
    return msgspec.structs.replace(device, rdma=record)


def char_devices(node: NodeContext, name: str) -> tuple[CharDevice, ...]:
    """The character devices that belong to an RDMA device."""
    # A new reader, because one caches what does not exist, and RDMA devices may appear after the driver starts.
    names = hardware.rdma_char_devices(Sysfs(node.sysfs.root)).get(name, ())
    nodes = chardev.rdma_devices(names, root=node.dev_root)
    return tuple(CharDevice(path=found.path, major=found.major, minor=found.minor) for found in nodes)


def _move(
    inside: Namespace, source: NetlinkSocket | None, name: str, target_fd: int, *, into: NetlinkSocket | None
) -> bool:
    """Whether the device is in the target namespace afterwards; False in shared mode, where it is in every one."""
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


FEATURE = RdmaFeature()
