"""One look at a card, from sysfs alone: a few dozen small files, no netlink, no waiting.

A card in a pod is read in two places: its PCI side on the node, its interface and RDMA port in the sysfs of the pod's
network namespace. What does not change while a card stays where it is is read once, when the reader is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from dranet.health.gpudirect import obstacle
from dranet.health.kept_files import KeptFiles, Read
from dranet.health.pauses import Pauses
from dranet.health.reading import CardReading, PcieLink
from dranet.kernel import gids, pcie
from dranet.kernel.hardware import PciFunction
from dranet.kernel.sysfs import Sysfs
from dranet.model.faults import FaultKind
from dranet.model.gids import ROCE_V2, Gid

ERROR_COUNTERS = (
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_xmit_discards",
)
TRANSPORT_COUNTERS = (
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "implied_nak_seq_err",
    "roce_slow_restart",
)


OF_STATISTICS = ("rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")
OF_PORTS = ("port_rcv_data", "port_xmit_data", "port_xmit_wait")
OF_ROCE = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled")
_OF_INTERFACES = ("flags", "operstate", "speed", "mtu", "carrier_changes")
_NO_CARRIER = frozenset({"down", "lowerlayerdown", "notpresent"})


class Card(msgspec.Struct, frozen=True):
    """What the inventory knows of a card and a look needs."""

    device: str
    function: PciFunction | None = None
    interface: str = ""
    """Its interface, on the node or in the pod that has it; empty where it is out of reach or has none."""
    rdma_device: str = ""
    addresses: tuple[str, ...] = ()
    """Without prefix length."""
    holder: str = ""
    """The claim that has it; empty on the node."""
    certain: tuple[tuple[FaultKind, str], ...] = ()
    """What the inventory is certain of."""


class CardReader:
    """Reads one card again and again, until it moves."""

    def __init__(
        self,
        node: Sysfs,
        card: Card,
        files: KeptFiles,
        gpus: Sequence[PciFunction] = (),
        pod: Sysfs | None = None,
        pauses: Pauses | None = None,
    ) -> None:
        self.device = card.device
        self._card, self._is_in_pod = card, pod is not None
        # In RDMA's shared mode the device stays the node's, and a pod need not see it.
        in_pod = pod is not None and bool(card.rdma_device) and pod.exists("class/infiniband", card.rdma_device)
        self._rdma = pod if pod is not None and in_pod else node
        self._files = _files(card, files, node, pod or node, self._rdma)
        self._counters = _counter_files(card, files, self._rdma)
        self._traffic = _traffic_files(card, files, pod or node, self._rdma) if card.holder else {}
        self._pauses = pauses
        self._index = (pod or node).read_number(f"class/net/{card.interface}", "ifindex") if card.interface else None
        self._kept = files
        self._speed: int | None = None
        self._speed_of: tuple[bool, int | None] | None = None
        port = f"class/infiniband/{card.rdma_device}/ports/1"
        self._has_gids = bool(card.interface and card.rdma_device) and self._rdma.read(port, "link_layer") == "Ethernet"
        self._fixed = CardReading(
            device=card.device,
            at=0.0,
            model=f"{card.function.vendor}:{card.function.device}" if card.function else "",
            holder=card.holder,
            interface=card.interface,
            pcie_best=_pcie(pcie.best_link(node, card.function.path)) if card.function else None,
            rdma_device=card.rdma_device,
            firmware=self._firmware(),
            has_address=bool(card.addresses),
            no_gpudirect=obstacle(node, card.function, gpus, bool(card.rdma_device)) if card.function else "",
        )

    def read(self, at: float) -> CardReading:
        """The card now."""
        is_up = bool((self._number("flags") or 0) & 1)
        carrier_changes = self._number("carrier_changes")
        # Asking for the speed takes the kernel's one lock over all links, which cards on their way into a pod need.
        if self._speed_of != (is_up, carrier_changes):
            self._speed_of, self._speed = (is_up, carrier_changes), self._read_speed()
        return msgspec.structs.replace(
            self._fixed,
            at=at,
            certain=(*self._card.certain, *self._no_carrier(is_up)),
            is_up=is_up,
            speed_mbps=self._speed,
            mtu=self._number("mtu"),
            carrier_changes=carrier_changes,
            pcie=_pcie(pcie.link_state(self._text("current_link_speed"), self._text("current_link_width"))),
            has_gid=self._has_gid() if self._has_gids else None,
            counters=_numbers(self._counters),
            traffic=_numbers(self._traffic) | self._pause_frames(at),
        )

    def _text(self, name: str) -> str | None:
        raw = self._raw(name)
        return None if raw is None else raw.decode(errors="replace").strip()

    def _number(self, name: str) -> int | None:
        return _number(self._raw(name))

    def _raw(self, name: str) -> bytes | None:
        read = self._files.get(name)
        try:
            return read() if read is not None else None
        except OSError:
            return None

    def _no_carrier(self, is_up: bool) -> Iterator[tuple[FaultKind, str]]:
        """In a pod only: on the node the inventory says so."""
        if not self._is_in_pod or not is_up or self._card.function is None:
            return
        state = self._text("operstate")
        if state in _NO_CARRIER:
            yield FaultKind.LINK_DOWN, f"{self._card.interface} is switched on in its pod, but its state is {state}"

    def _pause_frames(self, at: float) -> dict[str, int]:
        return self._pauses.of(self._index, at) if self._pauses and self._card.interface else {}

    def _firmware(self) -> str:
        device = self._card.rdma_device
        return (self._rdma.read(f"class/infiniband/{device}", "fw_ver") or "") if device else ""

    def _read_speed(self) -> int | None:
        """In Mb/s. A link that is down answers EINVAL, some drivers -1: both are unknown."""
        speed = self._number("speed")
        if speed is not None and speed > 0:
            return speed
        rate = (self._text("rate") or "").partition(" ")[0]
        try:
            return int(float(rate) * 1000) or None
        except ValueError:
            return None

    def _has_gid(self) -> bool | None:
        """Whether any address has a RoCE v2 entry. Tables are long, so the slot found last is kept open and asked
        first."""
        if self._is_own(self._kept_gid()):
            return True
        empty = True
        for gid in gids.read_gids(self._rdma, self._card.rdma_device):
            empty = False
            if self._is_own(gid):
                self._keep_gid(gid.index)
                return True
        return None if empty else False

    def _kept_gid(self) -> Gid | None:
        address = gids.address_in(self._text("gid") or "")
        if address is None:
            return None
        return Gid(0, address, self._text("gid type") or "", self._text("gid netdev") or "")

    def _keep_gid(self, index: int) -> None:
        paths = gids.slot_files(self._card.rdma_device, index)
        for name, path in zip(("gid", "gid type", "gid netdev"), paths, strict=True):
            self._files[name] = self._kept.reader(self._rdma, path) or (lambda: None)

    def _is_own(self, gid: Gid | None) -> bool:
        if gid is None or gid.kind != ROCE_V2 or gid.interface != self._card.interface:
            return False
        return str(gid.address) in self._card.addresses


def _pcie(link: pcie.LinkState | None) -> PcieLink | None:
    return None if link is None else PcieLink(link.speed, link.width)


def _files(card: Card, files: KeptFiles, node: Sysfs, net: Sysfs, rdma: Sysfs) -> dict[str, Read]:
    """How to read each value that may change, by the file's name; without those that are not there."""
    places: list[tuple[Sysfs, str, tuple[str, ...]]] = []
    if card.interface:
        places.append((net, f"class/net/{card.interface}", _OF_INTERFACES))
    if card.rdma_device:
        places.append((rdma, f"class/infiniband/{card.rdma_device}/ports/1", ("rate",)))
    if card.function:
        places.append((node, card.function.path, ("current_link_speed", "current_link_width")))
    return _readers(files, places)


def _counter_files(card: Card, files: KeptFiles, rdma: Sysfs) -> dict[str, Read]:
    if not card.rdma_device:
        return {}
    port = f"class/infiniband/{card.rdma_device}/ports/1"
    # Soft-RoCE has them all among its driver's own; those of its port are there and answer with errors.
    drivers = (rdma, f"{port}/hw_counters", (*ERROR_COUNTERS, *TRANSPORT_COUNTERS))
    return _readers(files, [(rdma, f"{port}/counters", ERROR_COUNTERS), drivers])


def _traffic_files(card: Card, files: KeptFiles, net: Sysfs, rdma: Sysfs) -> dict[str, Read]:
    places: list[tuple[Sysfs, str, tuple[str, ...]]] = []
    if card.interface:
        places.append((net, f"class/net/{card.interface}/statistics", OF_STATISTICS))
    if card.rdma_device:
        port = f"class/infiniband/{card.rdma_device}/ports/1"
        places += [(rdma, f"{port}/counters", OF_PORTS), (rdma, f"{port}/hw_counters", OF_ROCE)]
    return _readers(files, places)


def _numbers(readers: Mapping[str, Read]) -> dict[str, int]:
    found = {}
    for name, read in readers.items():
        try:
            found[name] = int(read() or b"", 0)
        except (OSError, ValueError):
            continue  # soft-RoCE has files that answer with errors
    return found


def _readers(files: KeptFiles, places: Iterable[tuple[Sysfs, str, tuple[str, ...]]]) -> dict[str, Read]:
    """A name that two places have is read in the later one."""
    found = [(name, files.reader(sysfs, folder, name)) for sysfs, folder, names in places for name in names]
    return {name: read for name, read in found if read is not None}


def _number(raw: bytes | None) -> int | None:
    try:
        return None if raw is None else int(raw, 0)
    except ValueError:
        return None
