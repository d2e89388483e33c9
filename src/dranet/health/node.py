"""The node we are on, checked: its cards as the inventory finds them, what its description expects, and findings.

`dranet check` does this once, the driver whenever it looks. A single look cannot see what grows, so whoever checks once
takes two looks some seconds apart.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from dranet.health.judging import Expected
from dranet.health.reader import Card, read_cards
from dranet.health.reading import CardReading
from dranet.inventory.cards import NETWORK_CLASS
from dranet.inventory.snapshot import NodeDevice, Snapshot
from dranet.kernel import hardware
from dranet.kernel.sysfs import Sysfs
from dranet.model import attributes
from dranet.model.gpus import BASE_CLASSES, is_gpu
from dranet.topology.shape import Shape


class NodeReader(msgspec.Struct, frozen=True):
    """Reads all cards of a snapshot."""

    sysfs_root: str = "/sys"

    def __call__(self, snapshot: Snapshot) -> list[CardReading]:
        sysfs = Sysfs(self.sysfs_root)
        functions = {f.address: f for f in hardware.pci_functions(sysfs, BASE_CLASSES | {NETWORK_CLASS})}
        gpus = [f for f in functions.values() if is_gpu(f.class_code)]
        cards = [_card(device, functions) for device in snapshot.devices if device.pci or device.rdma_device]
        return read_cards(sysfs, cards, gpus, time.monotonic())


def _card(device: NodeDevice, functions: dict[str, hardware.PciFunction]) -> Card:
    said = device.device.attributes
    cidrs = (c for key in (attributes.IPV4, attributes.IPV6) for c in str(said.get(key, "")).split(",") if c)
    return Card(
        device=device.name,
        function=functions.get(str(device.pci)) if device.pci else None,
        interface=device.netdev.name if device.netdev.is_here else "",
        rdma_device=device.rdma_device or "",
        addresses=tuple(cidr.partition("/")[0] for cidr in cidrs),
    )


def expected_of(shape: Shape, devices: Sequence[NodeDevice]) -> Expected:
    """What the machine's description says of these devices, matched by PCI address where it gives them."""
    kinds = {str(nic.pci): shape.nic_kind(nic) for nic in shape.nics}
    speeds = {device.name: kinds[str(device.pci)].speed_gbit for device in devices if str(device.pci) in kinds}
    return Expected(
        speed_mbps={name: gbit * 1000 for name, gbit in speeds.items() if gbit},
        cards=len(shape.nics),
    )


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
