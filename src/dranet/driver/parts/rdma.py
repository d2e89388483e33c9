"""RDMA devices into pods and home again, where the machine keeps them apart by namespace.

In shared mode every namespace sees every RDMA device and there is nothing to move: the character devices are the guard.
The mode is asked for each time, because an administrator may change it while we run. The kernel takes the namespace a
device comes from from the thread that asks, not from its socket: so the asking is done inside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from dranet.driver.namespaces import Host, PodNamespace
from dranet.driver.parts.base import AttachError, Node, Part, Problems, Said, Witness
from dranet.driver.records.plan import CharDevice, DevicePlan, RdmaRecord, Use
from dranet.inventory.snapshot import NodeDevice
from dranet.kernel import chardev, hardware, rdma
from dranet.kernel.errors import KernelError
from dranet.kernel.links import Link
from dranet.kernel.namespaces import Namespace
from dranet.kernel.netlink import NetlinkSocket
from dranet.kernel.sysfs import Sysfs
from dranet.kube.claims import RDMA_LINK_READY, READY, Condition
from dranet.model import attributes
from dranet.model.errors import DranetError
from dranet.model.netconfig import NetworkConfig

Open = Callable[[int], NetlinkSocket | None]

_BRINGS_RDMA = (Use.MOVED, Use.SHARED, Use.RDMA_ONLY)


class RdmaAttachError(AttachError):
    """The RDMA side of a card could not be given to the pod."""


class RdmaPart(Part[RdmaRecord]):
    """Gives the RDMA device of a card, and the nodes that go with it."""

    tag, place, record = "rdma", 40, RdmaRecord

    def __init__(self, open_socket: Open = rdma.open_socket) -> None:
        self._open = open_socket

    def of(self, device: DevicePlan) -> RdmaRecord | None:
        return device.rdma if device.use in _BRINGS_RDMA else None

    def plan(self, node: Node, seen: NodeDevice, config: NetworkConfig, device: DevicePlan) -> DevicePlan:
        # A device without an interface can be in several pods only where it is another pod's of the same claim.
        company = any(other.key == device.key and other.use is Use.RDMA_ONLY for other in node.tables.others)
        several = device.use is Use.SHARED or company
        if several and seen.rdma_device and not self._is_shared(node.host):
            why = f"the node keeps RDMA devices apart by namespace (exclusive mode), so {seen.rdma_device} cannot serve"
            raise DranetError(f"{why} several pods; use `rdma system set netns shared`, or the whole card")
        return _with_rdma(node, seen.rdma_device, device)

    def _is_shared(self, host: Host) -> bool:
        socket = self._open(host.namespace.fd)
        if socket is None:
            return True
        try:
            return rdma.is_shared(socket)
        finally:
            socket.close()

    def adopt(self, witness: Witness, device: DevicePlan) -> DevicePlan:
        name = witness.published.attributes.get(attributes.RDMA_DEVICE)
        return _with_rdma(witness.node, str(name) if name else None, device)

    def rise(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Said:
        record = self.of(device)
        assert record is not None
        try:
            source, into = self._open(host.namespace.fd), self._open(pod.namespace.fd)
            moved = _move(host.namespace, source, record.device, pod.namespace.fd, into=into)
        except KernelError as error:
            raise RdmaAttachError(f"{device.name}: {error}") from error
        alone = (Condition(READY, True, "RDMAOnlyDeviceReady"),) if device.use is Use.RDMA_ONLY else ()
        yield from ()
        return (*alone, Condition(RDMA_LINK_READY, True, "RDMALinkReady")) if moved else alone

    def leave(self, host: Host, pod: PodNamespace, device: DevicePlan, card: Link | None) -> Problems:
        """Before its netdev: that one's arrival makes the inventory look, and it must see both together.

        One that will not move is a problem in words: the netdev must come home all the same.
        """
        record = self.of(device)
        assert record is not None
        try:
            source = self._open(pod.namespace.fd)
            _move(pod.namespace, source, record.device, host.namespace.fd, into=None)
        except KernelError as error:
            return [f"RDMA device {record.device} did not come home: {error}"]
        yield from ()
        return []


def _with_rdma(node: Node, name: str | None, device: DevicePlan) -> DevicePlan:
    if name is None or device.use not in _BRINGS_RDMA:
        return device
    record = RdmaRecord(device=name, char_devices=char_devices(node, name))
    return msgspec.structs.replace(device, rdma=record)


def char_devices(node: Node, name: str) -> tuple[CharDevice, ...]:
    """The character devices that belong to an RDMA device."""
    # A reader of its own: one remembers what was not there, and RDMA devices may come after the driver.
    names = hardware.rdma_char_devices(Sysfs(node.sysfs.root)).get(name, ())
    nodes = chardev.rdma_devices(names, root=node.dev_root)
    return tuple(CharDevice(path=found.path, major=found.major, minor=found.minor) for found in nodes)


def _move(
    inside: Namespace, source: NetlinkSocket | None, name: str, target_fd: int, *, into: NetlinkSocket | None
) -> bool:
    """Whether the device is in the other namespace afterwards; False in shared mode, where it is in every one."""
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


PART = RdmaPart()
