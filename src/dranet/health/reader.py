"""One look at the cards of a node, from sysfs alone: a few dozen small files a card, no netlink, no waiting.

A card whose interface is in a pod shows its PCI and RDMA side only; its speed and MTU are then unknown here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from dranet.health.reading import CardReading, PcieLink
from dranet.kernel import gids, pcie
from dranet.kernel.hardware import PciFunction
from dranet.kernel.sysfs import Sysfs
from dranet.model.gids import ROCE_V2

_ERROR_COUNTERS = (
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_xmit_discards",
)
_TRANSPORT_COUNTERS = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "implied_nak_seq_err",
    "roce_slow_restart",
)


class Card(msgspec.Struct, frozen=True):
    """What the inventory knows of a card and a look needs."""

    device: str
    function: PciFunction | None = None
    interface: str = ""
    """Its interface on this node; empty while a pod has it."""
    rdma_device: str = ""
    addresses: tuple[str, ...] = ()
    """Without prefix length."""


def read_cards(sysfs: Sysfs, cards: Iterable[Card], gpus: Sequence[PciFunction], at: float) -> list[CardReading]:
    """A reading of each card."""
    return [_read(sysfs, card, gpus, at) for card in cards]


def _read(sysfs: Sysfs, card: Card, gpus: Sequence[PciFunction], at: float) -> CardReading:
    net = f"class/net/{card.interface}" if card.interface else ""
    port = f"class/infiniband/{card.rdma_device}/ports/1" if card.rdma_device else ""
    function = card.function
    return CardReading(
        device=card.device,
        at=at,
        model=f"{function.vendor}:{function.device}" if function else "",
        interface=card.interface,
        is_up=bool(net) and bool((_flags(sysfs, net) or 0) & 1),
        speed_mbps=_speed(sysfs, net, port),
        mtu=sysfs.read_number(net, "mtu") if net else None,
        carrier_changes=sysfs.read_number(net, "carrier_changes") if net else None,
        pcie=_pcie(pcie.current_link(sysfs, function.path)) if function else None,
        pcie_best=_pcie(pcie.best_link(sysfs, function.path)) if function else None,
        rdma_device=card.rdma_device,
        firmware=(sysfs.read(f"class/infiniband/{card.rdma_device}", "fw_ver") or "") if port else "",
        has_address=bool(card.addresses),
        has_gid=_has_gid(sysfs, card, port) if port and net else None,
        counters=_counters(sysfs, port) if port else {},
        redirecting_bridge=_redirecting_bridge(sysfs, function, gpus) if function else "",
    )


def _flags(sysfs: Sysfs, net: str) -> int | None:
    return sysfs.read_number(net, "flags")


def _speed(sysfs: Sysfs, net: str, port: str) -> int | None:
    """In Mb/s. A link that is down answers EINVAL, some drivers -1: both are unknown."""
    speed = sysfs.read_number(net, "speed") if net else None
    if speed is not None and speed > 0:
        return speed
    rate = (sysfs.read(port, "rate") or "").partition(" ")[0] if port else ""
    try:
        return int(float(rate) * 1000) or None
    except ValueError:
        return None


def _pcie(link: pcie.LinkState | None) -> PcieLink | None:
    return None if link is None else PcieLink(link.speed, link.width)


def _has_gid(sysfs: Sysfs, card: Card, port: str) -> bool | None:
    if sysfs.read(port, "link_layer") != "Ethernet":
        return None
    table = list(gids.read_gids(sysfs, card.rdma_device))
    if not table:
        return None
    own = {str(gid.address) for gid in table if gid.kind == ROCE_V2 and gid.interface == card.interface}
    return not own.isdisjoint(card.addresses)


def _counters(sysfs: Sysfs, port: str) -> dict[str, int]:
    found = {name: sysfs.read_number(port, "counters", name) for name in _ERROR_COUNTERS}
    found |= {name: sysfs.read_number(port, "hw_counters", name) for name in _TRANSPORT_COUNTERS}
    return {name: value for name, value in found.items() if value is not None}


def _redirecting_bridge(sysfs: Sysfs, function: PciFunction, gpus: Sequence[PciFunction]) -> str:
    """The nearest bridge above the card with a GPU below it too, if a port between them redirects their traffic."""
    for gpu in gpus:
        common = _common_bridges(function, gpu)
        if not common:
            continue
        for address in _ports_between(function, common) + _ports_between(gpu, common):
            if pcie.redirects_peers(sysfs, f"bus/pci/devices/{address}"):
                return address
    return ""


def _common_bridges(one: PciFunction, other: PciFunction) -> list[str]:
    return [bridge for bridge in one.bridges if bridge in other.bridges]


def _ports_between(function: PciFunction, common: Sequence[str]) -> list[str]:
    """The bridges below the last common one: a switch's downstream ports, where redirection is decided."""
    return [bridge for bridge in function.bridges if bridge not in common]
