"""The node we are on, read: its cards as the inventory finds them, those in pods where their pods have them.

`dranet check` reads twice, the driver again and again. Opening a file costs more than reading it, so a `NodeReader`
keeps its files open until something moves, and for five minutes at most: a firmware may be changed in place.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec

from dranet.health.judging import Expected
from dranet.health.kept_files import KeptFiles
from dranet.health.pauses import Pauses
from dranet.health.reader import Card, CardReader
from dranet.health.reading import CardReading
from dranet.inventory.cards import NETWORK_CLASS
from dranet.inventory.snapshot import NodeDevice, Snapshot
from dranet.kernel import hardware
from dranet.kernel.errors import KernelError
from dranet.kernel.namespace_sysfs import sysfs_of
from dranet.kernel.namespaces import Namespace, NamespaceGone
from dranet.kernel.sysfs import Sysfs
from dranet.model import attributes
from dranet.model.gpus import BASE_CLASSES, is_gpu

if TYPE_CHECKING:
    from dranet.topology.shape import Shape

log = logging.getLogger(__name__)

_KEPT_SECONDS = 300.0


class Held(msgspec.Struct, frozen=True):
    """A card that a claim has, and where it is."""

    claim: str
    netns: str = ""
    """The pod's network namespace; empty while the card is still, or again, on the node."""
    interface: str = ""
    addresses: tuple[str, ...] = ()
    """Without prefix length."""


class NodeReader:
    """Reads all cards of a node. Its readers in pods hold a mount each, which `close` lets go."""

    def __init__(
        self,
        sysfs_root: str = "/sys",
        *,
        in_pods: bool = True,
        moves: Callable[[str], int] = lambda name: 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`moves` says of a device how many moves the driver has begun and ended."""
        self._sysfs_root, self._in_pods, self._moves, self._clock = sysfs_root, in_pods, moves, clock
        self._known: tuple[Sequence[NodeDevice], Mapping[str, Held]] | None = None
        self._made = 0.0
        self._readers: list[CardReader] = []
        self._mounts, self._files = ExitStack(), KeptFiles()
        self._said: set[str] = set()

    def __call__(self, snapshot: Snapshot, held: Mapping[str, Held] | None = None) -> list[CardReading]:
        """Every PCI and RDMA card now."""
        now, known = self._clock(), (snapshot.devices, held or {})
        if known != self._known or now - self._made > _KEPT_SECONDS:
            self.close()
            self._readers = list(self._make(*known))
            self._known, self._made = known, now
        readings = [self._read(reader, now) for reader in self._readers]
        if any(card.interface and card.mtu is None for card in readings):
            self._known = None  # an interface on its way: what was not there a moment ago may be there the next time
        return readings

    def _read(self, reader: CardReader, now: float) -> CardReading:
        before = self._moves(reader.device)
        reading = reader.read(now)
        after = self._moves(reader.device)
        # What was read while a move began or ended is of a card on its way.
        return msgspec.structs.replace(reading, moves=after if after == before else after | 1) if after else reading

    def close(self) -> None:
        """Let go of the pods' namespaces; the next reading finds them again."""
        self._known = None
        self._files.close()
        self._mounts.close()

    def _make(self, devices: Sequence[NodeDevice], held: Mapping[str, Held]) -> Iterator[CardReader]:
        node = Sysfs(self._sysfs_root)
        functions = {f.address: f for f in hardware.pci_functions(node, BASE_CLASSES | {NETWORK_CLASS})}
        gpus = [f for f in functions.values() if is_gpu(f.class_code)]
        pods = {netns: self._pod(netns) for netns in {where.netns for where in held.values() if where.netns}}
        for device in devices:
            if device.pci or device.rdma_device:
                where = held.get(device.name)
                pod = pods.get(where.netns) if where is not None else None
                card = _card(device, where, functions, pod is not None)
                yield CardReader(node, card, self._files, gpus, *(pod or ()))

    def _pod(self, netns: str) -> tuple[Sysfs, Pauses] | None:
        if not self._in_pods:
            return None
        try:
            with Namespace.open(netns) as namespace:
                sysfs = self._mounts.enter_context(sysfs_of(namespace.fd))
                return sysfs, Pauses(netns)
        except NamespaceGone:
            return None  # its pod ends just now
        except KernelError as error:
            if str(error) not in self._said:
                self._said.add(str(error))
                log.warning("cards in the pod at %s are judged by their PCI side alone: %s", netns, error)
            return None


def _card(device: NodeDevice, where: Held | None, functions: Mapping[str, hardware.PciFunction], in_pod: bool) -> Card:
    said = device.device.attributes
    cidrs = (c for key in (attributes.IPV4, attributes.IPV6) for c in str(said.get(key, "")).split(",") if c)
    own = tuple(cidr.partition("/")[0] for cidr in cidrs)
    return Card(
        device=device.name,
        function=functions.get(str(device.pci)) if device.pci else None,
        interface=where.interface if where and in_pod else device.netdev.name if device.netdev.is_here else "",
        rdma_device=device.rdma_device or "",
        addresses=where.addresses if where and in_pod else own,
        holder=where.claim if where else "",
        certain=tuple((fault.kind, fault.detail) for fault in device.faults),
    )


def expected_of(shape: Shape, pci: Mapping[str, str]) -> Expected:
    """What the machine's description says of devices with these PCI addresses, where it gives them."""
    kinds = {str(nic.pci): shape.nic_kind(nic) for nic in shape.nics}
    speeds = {device: kinds[address].speed_gbit for device, address in pci.items() if address in kinds}
    return Expected(
        speed_mbps={name: gbit * 1000 for name, gbit in speeds.items() if gbit},
        cards=len(shape.nics),
    )


def pci_of(devices: Sequence[NodeDevice]) -> dict[str, str]:
    """PCI addresses by device."""
    return {device.name: str(device.pci) for device in devices if device.pci}


def not_told(card: CardReading) -> list[str]:
    """What the kernel does not say of a card, so that no check could look at it."""
    told = {
        "speed": card.speed_mbps is not None,
        "PCIe link": card.pcie is not None and card.pcie_best is not None,
        "MTU": card.mtu is not None,
        "carrier": card.carrier_changes is not None,
        "firmware": bool(card.firmware) or not card.rdma_device,
        "GIDs": card.has_gid is not None or not card.rdma_device,
        "error counters": bool(card.counters) or not card.rdma_device,
    }
    return [name for name, known in told.items() if not known]
